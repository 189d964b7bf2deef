"""Aggregations of streams by key, without windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.operators.forward import NOT_PUT, copier_for_old, table_forwarder
from streamapp.records import Headers

__all__ = ["StreamAggregate", "StreamReduce"]


@dataclass(frozen=True)
class StreamAggregate(Operator):
    """Aggregates the values of each key, for ``aggregate`` and ``count`` of grouped and co-grouped streams.

    Records with a null key or value are dropped. The timestamp of a result is the largest timestamp of its records. If
    the aggregator returns None, the row is deleted. In the changelog, the deletion has the timestamp of the present
    record (a versioned store: of the result). As in Kafka Streams, the old value of a key's first update is the
    initializer's value; with a record cache, the old value is None. Source: ``KStreamAggregate``.
    """

    persistent_name = "StreamAggregate"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "null_value",
    )

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store = ctx.store(self.store)
        if store.versioned:
            return self._bind_versioned(ctx, store)
        drop, forward = ctx.drop, table_forwarder(ctx, store, self.send_old)
        keep_old = copier_for_old(store, self.send_old) is not None
        fold = store.folder(self.initializer, self.aggregator, keep_old)

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null_key" if key is None else "null_value")
                return
            new, old, latest = fold(key, value, timestamp)
            forward(key, new, old, latest, headers)

        return aggregate

    def _bind_versioned(self, ctx: NodeContext, store: Any) -> ProcessFn:
        initializer, aggregator, drop, forward, send_old = (
            self.initializer,
            self.aggregator,
            ctx.drop,
            ctx.forward,
            self.send_old,
        )
        copy = copier_for_old(store, send_old)

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null_key" if key is None else "null_value")
                return
            row = store.get(key)
            if row is None:
                before = old = initializer()
                if copy is not None:
                    before = initializer()
            else:
                old, timestamp = row[0], max(row[1], timestamp)
                before = old if copy is None else copy(old)
            new = aggregator(key, value, before)
            valid_to = store.put(key, new, timestamp)
            if valid_to != NOT_PUT:
                forward(key, (new, old if send_old else None, valid_to is None), timestamp, headers)

        return aggregate


@dataclass(frozen=True)
class StreamReduce(Operator):
    """Combines the values of each key, for ``KGroupedStream.reduce``. The first value of a key is the first result."""

    persistent_name = "StreamReduce"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "null_value",
    )

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        store = ctx.store(self.store)
        reducer, drop, send_old = self.reducer, ctx.drop, self.send_old
        get, put = store.get, store.put
        versioned, forward_all = store.versioned, ctx.forward
        forward = None if versioned else table_forwarder(ctx, store, send_old)
        copy = copier_for_old(store, send_old)

        def reduce(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null_key" if key is None else "null_value")
                return
            row = get(key)
            latest = timestamp
            if row is None:
                old, new = None, value
            else:
                old = row[0]
                new = reducer(old if copy is None else copy(old), value)
                if row[1] > timestamp:
                    latest = row[1]
            if forward is not None:
                put(key, new, timestamp if new is None else latest)
                forward(key, new, old, latest, headers)
                return
            valid_to = put(key, new, latest)
            if valid_to != NOT_PUT:
                forward_all(key, (new, old if send_old else None, valid_to is None), latest, headers)

        return reduce
