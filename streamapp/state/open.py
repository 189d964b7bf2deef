"""Opens the store that a `StoreSpec` describes."""

from __future__ import annotations

from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.state.backend import OrderedBytes
from streamapp.state.buffers import OuterJoinStore, SuppressBuffer, TimeOrderedBuffer
from streamapp.state.cache import RecordCache, cached_store
from streamapp.state.expiring import ExpiringStore
from streamapp.state.key_value import (
    KeyValueStore,
    PlainTableStore,
    SubscriptionStore,
    TimestampedKeyValueStore,
)
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.session import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.versioned import VersionedStore
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import Store, StoreContext

__all__ = ["open_store"]

_KINDS: dict[str, type[Store]] = {
    "key_value": KeyValueStore,
    "timestamped": TimestampedKeyValueStore,
    "plain_table": PlainTableStore,
    "subscription": SubscriptionStore,
    "lru": LruStore,
    "timestamped_lru": TimestampedLruStore,
    "expiring": ExpiringStore,
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
    """The store of one task over its table in the task's `StateBackend`: a `Store` as ``spec.kind`` says.

    ``cache`` is the budget that the record caches of a process share; without one, or with one of no bytes, no store is
    cached.
    """
    if spec.kind not in _KINDS:
        raise InvalidStoreError(
            f"store {spec.name!r} has the unknown kind {spec.kind!r}; one of {sorted(_KINDS)}"
        )
    kind: str = spec.kind
    if kind == "timestamped":
        if spec.max_entries:
            kind = "timestamped_lru"
        elif spec.ttl_ms:
            kind = "expiring"
        elif not spec.keeps_timestamps:
            kind = "plain_table"
    if spec.cached and cache is not None and cache.max_bytes > 0:
        store = cached_store(kind, spec, table, task, cache)
        if store is not None:
            return store
    return _KINDS[kind](spec, table, task)
