"""Joins of a stream with a table or a global table: each record of the stream looks up a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.operators.guarded import Guarded
from streamapp.engine.operators.views import TableView
from streamapp.errors import StreamsError
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers, RecordContext

__all__ = ["StreamGlobalTableJoin", "StreamTableJoin"]


@dataclass(frozen=True)
class StreamTableJoin(Operator):
    """Joins each record of a stream with the table's row for its key. The result has the record's timestamp.

    A versioned table gives the row that was valid at the record's time; any other table gives its current row. With a
    grace period, a record waits in ``buffer_store`` until stream time is ``grace_ms`` past the record's time. So late
    updates of the (versioned) table count, too. A record that is already ``grace_ms`` behind stream time when it comes
    is joined at once. An inner join drops null keys and null values, a left join only null values. In a left join with
    a grace period, a null key raises `StreamsError`. Source: ``KStreamKTableJoinProcessor``.
    """

    persistent_name = "StreamTableJoin"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "null_value",
    )

    table: TableView
    joiner: Callable[[Any, Any, Any], Any]
    left: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    on_error: Answer | Chooser | None = None
    """The answer to exceptions in a join with a buffer. In a join without a buffer, this field is None, and a `Guarded`
    around the join answers."""

    def bind(self, ctx: NodeContext) -> ProcessFn:
        if self.on_error is not None:
            at_once = replace(self, grace_ms=None, buffer_store=None, on_error=None)
            return self._buffered(ctx, Guarded(at_once, self.on_error).bind(ctx))
        get, forward, drop, joiner, left = (
            self.table.bind_as_of(ctx),
            ctx.forward,
            ctx.drop,
            self.joiner,
            self.left,
        )

        def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop("null_value" if value is None else "null_key")
                return
            row = None if key is None else get(key, timestamp)
            if row is not None:
                forward(key, joiner(key, value, row[0]), timestamp, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp, headers)

        if self.buffer_store is None:
            return join
        return self._buffered(ctx, join)

    def _buffered(self, ctx: NodeContext, join: ProcessFn) -> ProcessFn:
        assert self.buffer_store is not None
        buffer, task, drop, left = ctx.store(self.buffer_store), ctx.task, ctx.drop, self.left

        join_held = ctx.handled(join)

        def emit(key: Any, value: Any, context: RecordContext) -> None:
            task.work_as(context, join_held, key, value, context.timestamp, context.headers)

        def wait(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop("null_value" if value is None else "null_key")
            elif key is None:
                raise StreamsError(
                    f"{ctx.name} got a null key: a join with a grace period orders its buffer by key. "
                    "Filter null keys out first"
                )
            elif buffer.put(key, value, timestamp, headers):
                buffer.evict(emit)
            else:
                join(key, value, timestamp, headers)

        return wait


@dataclass(frozen=True)
class StreamGlobalTableJoin(Operator):
    """Joins each record of a stream with a row of a global table. ``key_selector`` computes the key of the row.

    The result has the record's key and timestamp. An inner join drops a record whose selected key is None. Records with
    a null value are always dropped.
    """

    persistent_name = "StreamGlobalTableJoin"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "null_value",
    )

    table: TableView
    key_selector: Callable[[Any, Any], Any]
    joiner: Callable[[Any, Any, Any], Any]
    left: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        get, forward, drop = self.table.bind(ctx), ctx.forward, ctx.drop
        select, joiner, left = self.key_selector, self.joiner, self.left

        def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            selected = select(key, value)
            if value is None or (selected is None and not left):
                drop("null_value" if value is None else "null_key")
                return
            row = None if selected is None else get(selected)
            if row is not None:
                forward(key, joiner(key, value, row[0]), timestamp, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp, headers)

        return join
