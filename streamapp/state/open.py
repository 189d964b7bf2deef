"""Opens the store that a `StoreSpec` describes."""

from __future__ import annotations

from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.state.backend import OrderedBytes
from streamapp.state.buffers import OuterJoinStore, SuppressBuffer, TimeOrderedBuffer
from streamapp.state.cache import RecordCache, cached_store
from streamapp.state.key_value import KeyValueStore, TimestampedKeyValueStore
from streamapp.state.lru import LruStore
from streamapp.state.session import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.versioned import VersionedStore
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import Store, StoreContext

__all__ = ["open_store"]

_KINDS: dict[str, type[Store]] = {
    "key_value": KeyValueStore,
    "timestamped": TimestampedKeyValueStore,
    "subscription": TimestampedKeyValueStore,
    "lru": LruStore,
    "window": WindowStore,
    "timestamped_window": TimestampedWindowStore,
    "session": SessionStore,
    "versioned": VersionedStore,
    "list": OuterJoinStore,
    "time_ordered_buffer": TimeOrderedBuffer,
    "suppress_buffer": SuppressBuffer,
}


def open_store(
    spec: StoreSpec, table: OrderedBytes, task: StoreContext, cache: RecordCache | None = None
) -> Any:
    """The store of one task over its table in the task's `StateBackend`; a `Store` of the class that ``spec.kind`` says.

    With a `RecordCache`, one for all stores of a task, and ``spec.cached`` the store has a record cache.
    """
    if spec.kind not in _KINDS:
        raise InvalidStoreError(
            f"store {spec.name!r} has the unknown kind {spec.kind!r}; one of {sorted(_KINDS)}"
        )
    if spec.cached and cache is not None:
        store = cached_store(spec, table, task, cache)
        if store is not None:
            return store
    return _KINDS[spec.kind](spec, table, task)
