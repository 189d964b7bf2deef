"""Opens the store that a `StoreSpec` describes."""

from __future__ import annotations

from streamapp.errors import InvalidStoreError
from streamapp.state.backend import OrderedBytes
from streamapp.state.key_value import KeyValueStore, TimestampedKeyValueStore
from streamapp.state.session import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import Store, StoreContext

__all__ = ["open_store"]

_KINDS: dict[str, type[Store]] = {
    "key_value": KeyValueStore,
    "timestamped": TimestampedKeyValueStore,
    "subscription": TimestampedKeyValueStore,
    "window": WindowStore,
    "timestamped_window": TimestampedWindowStore,
    "session": SessionStore,
}


def open_store(spec: StoreSpec, table: OrderedBytes, task: StoreContext) -> Store:
    """The store of one task over its table in the task's `StateBackend`."""
    kind = _KINDS.get(spec.kind)
    if kind is None:
        raise InvalidStoreError(f"store {spec.name!r} has the unknown kind {spec.kind!r}; one of {sorted(_KINDS)}")
    return kind(spec, table, task)
