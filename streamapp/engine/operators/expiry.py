"""Tables whose rows have a time to live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.records import NO_HEADERS, Headers

__all__ = ["Expiring"]


@dataclass(frozen=True)
class Expiring(Operator):
    """Runs the operator that writes a table, and deletes the rows whose time to live is over.

    Stream time is the largest timestamp that an operator on the store has seen. A row expires when stream time reaches
    the row's timestamp + ``ttl_ms``, so rows expire only when records come. Before a record that advances stream time
    is processed, the expired rows are deleted, in the order of timestamps and key bytes. Each deletion is a tombstone
    in the changelog and downstream, with the time of expiry as its timestamp. A row that is too old when it is written
    is deleted at once.
    """

    persistent_name = "Expiring"

    operator: Operator
    store: str
    ttl_ms: int
    send_old: bool

    def bind(self, ctx: NodeContext) -> ProcessFn:
        process, forward, send_old, ttl = self.operator.bind(ctx), ctx.forward, self.send_old, self.ttl_ms
        store, task = ctx.store(self.store), ctx.task

        def stream_time() -> int:
            return store.observed  # type: ignore[no-any-return]

        store.observed = max(store.observed, task.remember(f"{self.store}.expiry-time", stream_time))

        def expired(key: Any, old: Any, timestamp: int) -> None:
            deletion = (None, old if send_old else None, True)
            task.restamped(timestamp, NO_HEADERS, forward, key, deletion, timestamp, NO_HEADERS)

        def process_alive(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > store.observed:
                store.observed = timestamp
                store.expire(expired)
                process(key, value, timestamp, headers)
            else:
                process(key, value, timestamp, headers)
                if timestamp <= store.observed - ttl:
                    store.expire(expired)

        return process_alive
