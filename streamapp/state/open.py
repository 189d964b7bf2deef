"""Opens the store that a `StoreSpec` describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.state.backend import OrderedBytes
from streamapp.state.buffers import OuterJoinStore, SuppressBuffer, TimeOrderedBuffer
from streamapp.state.cache import CachedStore, RecordCache
from streamapp.state.cached_tables import (
    CachedKeyValueStore,
    CachedLruStore,
    CachedPlainTableStore,
    CachedTimestampedLruStore,
    CachedTimestampedStore,
)
from streamapp.state.cached_windows import (
    CachedSessionStore,
    CachedTimestampedWindowStore,
    CachedWindowStore,
)
from streamapp.state.expiring import ExpiringStore
from streamapp.state.headers import HeadersSubscriptionStore, HeadersWindowStore
from streamapp.state.key_value import (
    KeyValueStore,
    PlainTableStore,
    SubscriptionStore,
    TimestampedKeyValueStore,
)
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.row_memory import RowMemory
from streamapp.state.session_store import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.versioned import VersionedStore
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import Store, StoreContext, WriteBehindStore

__all__ = ["open_store"]

_KINDS: dict[str, Callable[..., Store]] = {
    "key_value": KeyValueStore,
    "timestamped": TimestampedKeyValueStore,
    "plain_table": PlainTableStore,
    "subscription": SubscriptionStore,
    "subscription_with_headers": HeadersSubscriptionStore,
    "lru": LruStore,
    "timestamped_lru": TimestampedLruStore,
    "expiring": ExpiringStore,
    "window": WindowStore,
    "timestamped_window": TimestampedWindowStore,
    "timestamped_window_with_headers": HeadersWindowStore,
    "session": SessionStore,
    "versioned": VersionedStore,
    "list": OuterJoinStore,
    "time_ordered_buffer": TimeOrderedBuffer,
    "suppress_buffer": SuppressBuffer,
}

_CACHED_KINDS: dict[str, Callable[..., CachedStore]] = {
    "key_value": CachedKeyValueStore,
    "timestamped": CachedTimestampedStore,
    "plain_table": CachedPlainTableStore,
    "lru": CachedLruStore,
    "timestamped_lru": CachedTimestampedLruStore,
    "window": CachedWindowStore,
    "timestamped_window": CachedTimestampedWindowStore,
    "session": CachedSessionStore,
}


def open_store(
    spec: StoreSpec,
    table: OrderedBytes,
    task: StoreContext,
    cache: RecordCache | None = None,
    memory: RowMemory | None = None,
) -> Any:
    """The store of one task over its table in the task's `StateBackend`: a `Store` as ``spec.kind`` says.

    ``cache`` is the budget that the record caches of a process share; without one, or with one of no bytes, no store is
    cached. ``memory`` is the limit of the rows that all stores of a process keep to be read again.
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
    elif spec.keeps_headers:
        kind = f"{kind}_with_headers"
    if spec.cached and cache is not None and cache.max_bytes > 0 and kind in _CACHED_KINDS:
        cached = _CACHED_KINDS[kind](spec, table, task, memory)
        cached.attach(cache)
        store: Store = cached
    else:
        store = _KINDS[kind](spec, table, task, memory)
    if isinstance(store, WriteBehindStore):
        store.open_writes()
    return store
