"""How table operators write their store and tell their children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streamapp.engine.operator import NodeContext
from streamapp.records import Headers
from streamapp.state.versioned import NOT_PUT

__all__ = [
    "NOT_PUT",
    "TableForward",
    "TableWrite",
    "emit_nothing",
    "nowhere",
    "table_forwarder",
    "table_writer",
]

TableForward = Callable[[Any, Any, Any, int, Headers], None]
"""Takes key, new value, old value, timestamp in ms and headers of one update."""


class TableWrite(Protocol):
    """As `TableForward`. ``arrived`` is the time of the record that caused the update, if it may be another: a deletion has no
    time of its own, so the store and its changelog get this one (Kafka Streams' record context)."""

    def __call__(
        self, key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None, /
    ) -> None: ...


def nowhere(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """What a node without children hands its records to."""


def emit_nothing(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
    """In place of an update's forward where something else emits: a cache, or the close of a window."""


def table_forwarder(ctx: NodeContext, store: Any, send_old: bool) -> TableForward:
    """What an operator calls after it has written its store: hands the change to the children.

    A cached store tells them itself, when it is flushed; the function is then `emit_nothing`.
    """
    forward = ctx.forward

    def with_old(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old, True), timestamp, headers)

    def without_old(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, None, True), timestamp, headers)

    forward_change = with_old if send_old else without_old
    if not store.cached:
        return forward_change
    if forward is nowhere:
        store.let_through()
    else:
        store.set_flush_listener(ctx.handled(forward_change))
    return emit_nothing


def table_writer(ctx: NodeContext, store: Any, send_old: bool) -> TableWrite:
    """Writes one update to a table's store and hands the change to the children.

    Versioned stores take updates out of order and say whether an update is the latest of its key; what is
    older than their history they do not take, and then nothing is handed on.
    """
    if store.versioned:
        return _versioned_writer(ctx, store, send_old)
    put, forward = store.put, table_forwarder(ctx, store, send_old)

    def write(
        key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None
    ) -> None:
        put(key, new, timestamp if arrived is None or new is not None else arrived)
        forward(key, new, old, timestamp, headers)

    return write


def _versioned_writer(ctx: NodeContext, store: Any, send_old: bool) -> TableWrite:
    put, forward = store.put, ctx.forward

    def write(
        key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None
    ) -> None:
        valid_to = put(key, new, timestamp)
        if valid_to is None:
            forward(key, (new, old if send_old else None, True), timestamp, headers)
        elif valid_to != NOT_PUT:
            forward(key, (new, old if send_old else None, False), timestamp, headers)

    return write
