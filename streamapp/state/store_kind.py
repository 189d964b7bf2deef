"""`StoreKind`: the interface of a kind of store, through which the rest of streamapp uses the kind.

A new kind is one file, with the store and a frozen dataclass derived from `StoreKind`, decorated with `register`.
`tests/unit/state/test_toy_store.py` is an example. `kinds.py` has the kinds of streamapp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from streamapp.errors import InvalidStoreError

if TYPE_CHECKING:
    from streamapp.state.cache import CachedStore
    from streamapp.state.row_shape import RowShape
    from streamapp.state.store import Store

__all__ = ["StoreKind", "register", "registered"]

_REGISTERED: dict[str, type[StoreKind]] = {}
_REMEMBERED = ("window_size_ms", "retention_ms", "ttl_ms", "max_entries", "time_index")

T = TypeVar("T", bound="type[StoreKind]")


class StoreKind:
    """A kind of store. A subclass is a frozen dataclass, and its fields are the parameters of this kind.

    streamapp reads the attributes of a kind for a topology or a store as a whole, never for each record.
    """

    persistent_name: ClassVar[str]
    """The name that users see, and that plans, state folders and snapshots contain. So it must never change."""
    changelog_format: ClassVar[str] = ""
    """The name of the changelog's format. Kinds with the same name can restore from each other's changelogs."""
    shape: ClassVar[RowShape | None] = None
    """The shape of the rows for users; None if the store is internal to an operator."""
    store_class: ClassVar[Callable[..., Store]]
    """Makes the store. The arguments are its `StoreSpec`, its table in the backend, its task, a `RowMemory`, and
    `store_options` as keywords."""
    cached_class: ClassVar[Callable[..., CachedStore] | None] = None
    """Makes the store with a record cache, with the same arguments; None if the kind has no cache."""
    latest_is_enough: ClassVar[bool] = True
    """True if the last record of each key in the changelog is enough to restore the store."""
    drops_rows: ClassVar[bool] = False
    """True if rows may disappear for other reasons than a deletion and the end of their retention."""
    drops: ClassVar[tuple[str, ...]] = ()
    """The reasons for which stores of this kind may drop a row, for metrics that begin with 0."""
    headers_format: ClassVar[bool] = False
    """True if ``dsl_store_format="headers"`` changes tables of this kind on disk."""
    keeps_headers: ClassVar[bool] = False
    """True if each row also has the headers of its record, as its last element."""

    @property
    def store_options(self) -> Mapping[str, Any]:
        """The keyword arguments with which `store_class` is called, by default the parameters of the kind."""
        return vars(self)

    @property
    def topic_config(self) -> dict[str, str]:
        """The settings of the changelog topic."""
        return {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}

    @property
    def changelog_rows(self) -> str:
        """The words that describe the rows of the changelog, with all that a reader has to know and that no row says.

        The metadata of committed offsets contains these words. A version of the application whose store has other words
        is refused. So the words of a kind must never change.
        """
        return self.changelog_format or self.persistent_name.replace("_", " ")

    @property
    def window_size_ms(self) -> int:
        """The length of the store's windows in ms; 0 if rows are not windows, or have no length (a join of equal
        timestamps)."""
        return 0

    @property
    def segment_ms(self) -> int:
        """The length of a segment in ms; 0 if the kind has no segments.

        A segment is a span of time whose rows are deleted together. In a scan, rows may be out of time order by at most
        one segment.
        """
        return 0

    @property
    def history_ms(self) -> int | None:
        """The time in ms for which old versions of a table can be read; None if only the latest can be read."""
        return None

    @property
    def ttl_ms(self) -> int:
        """The time to live of rows in ms, after which the store's operator expires rows; 0 if rows do not expire."""
        return 0

    def layout(self, persistent: bool) -> str:
        """The text that identifies the format of the rows on disk, as part of the plan's fingerprint.

        State with another text is refused.
        """
        name = f"{self.persistent_name} with headers" if self.keeps_headers and persistent else str(self)
        return f"{name} {self.layout_details}"

    @property
    def layout_details(self) -> str:
        """The parameters without which the bytes on disk cannot be read."""
        return ""

    @property
    def remembered(self) -> dict[str, int]:
        """The numbers that a snapshot contains, for a comparison with a later topology. 0 if the kind does not have
        the number."""
        return {name: int(getattr(self, name, 0)) for name in _REMEMBERED}

    def __str__(self) -> str:
        return self.persistent_name


def register(kind: T) -> T:
    """A decorator that registers a kind under its ``persistent_name``.

    Raises `InvalidStoreError` if another kind has this name already. A subclass of a registered kind may inherit its
    name, if both have the same rows in the changelog. Do not decorate such a subclass.
    """
    known = _REGISTERED.setdefault(kind.persistent_name, kind)
    if known is not kind:
        raise InvalidStoreError(
            f"the persistent name {kind.persistent_name!r} of {kind.__name__} is that of {known.__name__}, too; "
            f"give {kind.__name__} another persistent_name"
        )
    return kind


def registered(name: str) -> type[StoreKind] | None:
    """The kind with a persistent name; None if no kind has the name."""
    return _REGISTERED.get(name)
