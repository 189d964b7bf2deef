"""Opens the store that a `StoreSpec` describes."""

from __future__ import annotations

from typing import Any

from streamapp.state.backend import OrderedBytes
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec
from streamapp.state.store import Store, StoreContext
from streamapp.state.write_behind import WriteBehindStore

__all__ = ["open_store"]


def open_store(
    spec: StoreSpec,
    table: OrderedBytes,
    task: StoreContext,
    cache: RecordCache | None = None,
    memory: RowMemory | None = None,
) -> Any:
    """Opens the store that ``spec`` describes, for one task. ``table`` has its bytes in the task's `StateBackend`.

    ``cache`` is the limit that the record caches of a process share. The store has a record cache if the limit is over
    0 bytes, and the spec asks for a cache (``cached``). Kinds without a ``cached_class`` have no record cache.
    ``memory`` is the limit for rows that all stores of a process keep for later reads.
    """
    kind = spec.kind
    if spec.cached and kind.cached_class is not None and cache is not None and cache.max_bytes > 0:
        cached = kind.cached_class(spec, table, task, memory, **kind.store_options)
        cached.attach(cache)
        store: Store = cached
    else:
        store = kind.store_class(spec, table, task, memory, **kind.store_options)
    if isinstance(store, WriteBehindStore):
        store.open_writes()
    return store
