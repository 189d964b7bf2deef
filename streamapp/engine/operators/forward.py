"""Functions with which table operators write their store and hand changes to their children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streamapp.engine.operator import NodeContext
from streamapp.records import Headers
from streamapp.state.versioned import NOT_PUT

__all__ = [
    "NOT_PUT",
    "Copy",
    "TableForward",
    "TableWrite",
    "copier",
    "copier_for_old",
    "emit_nothing",
    "nowhere",
    "table_forwarder",
    "table_writer",
]

TableForward = Callable[[Any, Any, Any, int, Headers], None]
"""Takes one update: key, new value, old value, timestamp in ms, headers."""


Copy = Callable[[Any], Any]
"""Gives another object with the same value."""


class TableWrite(Protocol):
    """As `TableForward`, with a further argument ``arrived``: the timestamp in ms of the record that caused the update.

    The store and its changelog get this timestamp for a deletion, as in Kafka Streams. If ``arrived`` is None, or if
    the store is versioned, store and changelog get the update's timestamp also for a deletion.
    """

    def __call__(
        self, key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None, /
    ) -> None: ...


def nowhere(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """The forward function of a node without children."""


def emit_nothing(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
    """The forward function of an operator whose updates are forwarded elsewhere: at the flush of a record cache, or at
    the close of a window."""


def copier(store: Any) -> Copy | None:
    """The function that copies a value of a store. None if no function can change such a value in place.

    A user's function may change an aggregate in place and return the same object. So an operator that needs the
    aggregate afterwards gives the function a copy.
    """
    serde = store.spec.value_serde
    if serde.immutable:
        return None
    serialize, deserialize = serde.serialize, serde.deserialize
    return lambda value: deserialize(serialize(value))


def copier_for_old(store: Any, send_old: bool) -> Copy | None:
    """`copier` for an operator that hands on the aggregate as the old value of a change.

    None if no operator needs old values, or if the store has a record cache, whose flush decodes the old values anew.
    """
    return copier(store) if send_old and not store.cached else None


def table_forwarder(ctx: NodeContext, store: Any, send_old: bool) -> TableForward:
    """The function with which an operator hands a change to its children, after it has written its store.

    A store with a record cache hands changes to the children itself, at its flush. The function then does nothing
    (`emit_nothing`).
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
        store.set_flush_listener(ctx.handled(forward_change), send_old)
    return emit_nothing


def table_writer(ctx: NodeContext, store: Any, send_old: bool) -> TableWrite:
    """The function that writes one update to a table's store and hands the change to the children.

    A versioned store also takes updates that come out of order, and the change says if the update is the latest of its
    key. An update older than the history of the store is neither written nor handed on.
    """
    if store.versioned:
        return _versioned_writer(ctx, store, send_old)
    put, forward, child = store.writer(), table_forwarder(ctx, store, send_old), ctx.forward

    def write(
        key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None
    ) -> None:
        put(key, new, timestamp if arrived is None or new is not None else arrived)
        child(key, (new, old if send_old else None, True), timestamp, headers)

    def write_only(
        key: Any, new: Any, old: Any, timestamp: int, headers: Headers, arrived: int | None = None
    ) -> None:
        put(key, new, timestamp if arrived is None or new is not None else arrived)

    return write_only if forward is emit_nothing else write


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
