"""The port of a kind of store: all that the rest of streamapp asks of the kind.

A new kind is one file: its store, and a frozen dataclass derived from `StoreKind`, with the decorator `register`.
`tests/unit/state/test_toy_store.py` is such a file. `kinds.py` has the kinds of streamapp.
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
_REMEMBERED = ("window_size_ms", "retention_ms", "ttl_ms", "max_entries")

T = TypeVar("T", bound="type[StoreKind]")


class StoreKind:
    """A kind of store. A subclass is a frozen dataclass, and its fields are the parameters of this kind.

    streamapp reads these attributes to describe and plan a topology and to open a store, never for each record.
    """

    persistent_name: ClassVar[str]
    """The name that plans, state folders and snapshots remember, and that users see. The name never changes."""
    changelog_format: ClassVar[str] = ""
    """Kinds with the same word can restore from each other's changelogs."""
    shape: ClassVar[RowShape | None] = None
    """The shape of the rows for users; None if the store is internal to an operator."""
    store_class: ClassVar[Callable[..., Store]]
    """Makes the store from its spec, its table in the backend, its task, a `RowMemory` and `store_options`."""
    cached_class: ClassVar[Callable[..., CachedStore] | None] = None
    """Makes the store with a record cache; None if the kind has no cache."""
    latest_is_enough: ClassVar[bool] = True
    """True if the last record of each key in the changelog restores the store."""
    drops_rows: ClassVar[bool] = False
    """True if rows go for other reasons than a deletion and the end of their retention."""
    headers_format: ClassVar[bool] = False
    """True if ``dsl_store_format="headers"`` applies to tables of this kind on disk."""
    keeps_headers: ClassVar[bool] = False
    """True if rows end with the headers of their records."""

    @property
    def store_options(self) -> Mapping[str, Any]:
        """The keyword arguments of the store's class: the parameters of the kind."""
        return vars(self)

    @property
    def topic_config(self) -> dict[str, str]:
        """The settings of the changelog."""
        return {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}

    @property
    def window_size_ms(self) -> int:
        """The length of the store's windows in ms; 0 if rows are no windows, or windows without length."""
        return 0

    @property
    def segment_ms(self) -> int:
        """The length of a segment in ms; 0 without segments.

        A store forgets rows by segments. Rows of a scan may be out of time order by at most one segment.
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
        """The layout of the rows on disk in the form that state folders remember: the name, and `layout_details`."""
        name = f"{self.persistent_name} with headers" if self.keeps_headers and persistent else str(self)
        return f"{name} {self.layout_details}"

    @property
    def layout_details(self) -> str:
        """The parameters without which the bytes on disk cannot be read."""
        return ""

    @property
    def remembered(self) -> dict[str, int]:
        """The numbers that a snapshot keeps for a comparison with a later topology; 0 if the kind lacks a number."""
        return {name: getattr(self, name, 0) for name in _REMEMBERED}

    def __str__(self) -> str:
        return self.persistent_name


def register(kind: T) -> T:
    """Makes a kind known under its name. Raises `InvalidStoreError` if another kind has the name.

    A subclass of a registered kind may keep the name as a variant, which has the same rows in the changelog. A variant
    is not registered.
    """
    known = _REGISTERED.setdefault(kind.persistent_name, kind)
    if known is not kind:
        raise InvalidStoreError(
            f"the persistent name {kind.persistent_name!r} of {kind.__name__} is that of {known.__name__}; "
            "give the kind one of its own"
        )
    return kind


def registered(name: str) -> type[StoreKind] | None:
    """The kind with a persistent name; None if no kind has the name."""
    return _REGISTERED.get(name)
