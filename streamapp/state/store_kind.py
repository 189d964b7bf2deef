"""The port of a kind of store: everything that the rest of streamapp asks of the kind.

A new kind is one file: its store, and a frozen dataclass derived from `StoreKind`, with `register` above.
`tests/unit/state/test_toy_store.py` is such a file. The kinds there are stand in `kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from streamapp.errors import InvalidStoreError

if TYPE_CHECKING:
    from streamapp.state.cache import CachedStore
    from streamapp.state.row_shape import RowShape
    from streamapp.state.write_behind import Store

__all__ = ["StoreKind", "register", "registered"]

_REGISTERED: dict[str, type[StoreKind]] = {}
_REMEMBERED = ("window_size_ms", "retention_ms", "ttl_ms", "max_entries")

T = TypeVar("T", bound="type[StoreKind]")


class StoreKind:
    """A kind of store. A subclass is a frozen dataclass; its fields are the parameters that only this kind has.

    Everything here is asked when a topology is described or planned, or when a store is opened: never for each record.
    """

    persistent_name: ClassVar[str]
    """The name that plans, state folders and snapshots remember, and that users see. It never changes."""
    changelog_format: ClassVar[str] = ""
    """Kinds with the same word here restore from the changelogs of each other."""
    shape: ClassVar[RowShape | None] = None
    """How users see the rows; None: the store is internal to an operator."""
    store_class: ClassVar[Callable[..., Store]]
    """Makes the store from its spec, its table in the backend, its task, a `RowMemory` and `store_options`."""
    cached_class: ClassVar[Callable[..., CachedStore] | None] = None
    """Makes the store with a record cache; None: the kind has none."""
    latest_is_enough: ClassVar[bool] = True
    """The last record of each key in the changelog restores the store."""
    drops_rows: ClassVar[bool] = False
    """Rows go for other reasons than deletion and the end of their retention."""
    headers_format: ClassVar[bool] = False
    """A table of this kind on disk takes part in ``dsl_store_format="headers"``."""
    keeps_headers: ClassVar[bool] = False
    """Rows end with the headers of their records."""

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
        """The length of the windows that are the rows; 0: rows are no windows, or have no length."""
        return 0

    @property
    def segment_ms(self) -> int:
        """The step in which the store forgets rows by time, and by which its scans are out of order at most."""
        return 0

    @property
    def history_ms(self) -> int | None:
        """The time for which a table can be read as it was; None: only as it is."""
        return None

    @property
    def ttl_ms(self) -> int:
        """The time after which the store has to be told to expire its rows; 0: never."""
        return 0

    def layout(self, persistent: bool) -> str:
        """The layout of the rows on disk, as state folders remember the layout: the name, and `layout_details`."""
        name = f"{self.persistent_name} with headers" if self.keeps_headers and persistent else str(self)
        return f"{name} {self.layout_details}"

    @property
    def layout_details(self) -> str:
        """The parameters without which the bytes on disk cannot be read."""
        return ""

    @property
    def remembered(self) -> dict[str, int]:
        """The numbers that a snapshot keeps to be compared with those of the next release; 0: the kind has no such number."""
        return {name: getattr(self, name, 0) for name in _REMEMBERED}

    def __str__(self) -> str:
        return self.persistent_name


def register(kind: T) -> T:
    """Makes a kind known under its name. Raises `InvalidStoreError` for a name that another kind has.

    A subclass of a registered kind may keep the name, as a variant of the kind with the same rows in the changelog. A variant is
    not registered.
    """
    known = _REGISTERED.setdefault(kind.persistent_name, kind)
    if known is not kind:
        raise InvalidStoreError(
            f"the persistent name {kind.persistent_name!r} of {kind.__name__} is that of {known.__name__}; give the kind one "
            "of its own"
        )
    return kind


def registered(name: str) -> type[StoreKind] | None:
    """The kind of a persistent name."""
    return _REGISTERED.get(name)
