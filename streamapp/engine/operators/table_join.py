"""Table-table joins by key. Each side looks up the other side's row, and a merger puts both sides' results together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.operator import Change, NodeContext, Operator, ProcessFn
from streamapp.engine.operators.forward import table_writer
from streamapp.engine.operators.table_answers import new_and_old
from streamapp.engine.operators.views import TableView
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers

__all__ = ["TableJoin", "TableJoinMerger"]


@dataclass(frozen=True)
class TableJoin(Operator):
    """One side of a table-table join. ``joiner`` gets this side's value, then the other side's.

    With ``alone``, rows of this side are in the result even without a match; with ``other_alone``, rows of the other
    side are. A left join has ``alone`` on its left side, an outer join on both sides.
    """

    persistent_name = "TableJoin"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "out_of_order",
    )

    other: TableView
    joiner: Callable[[Any, Any], Any]
    alone: bool = False
    other_alone: bool = False
    send_old: bool = False
    versioned: bool = False
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        look_up, forward, drop = self.other.bind(ctx), ctx.forward, ctx.drop
        join, join_old = new_and_old(ctx, self.joiner, self.on_error)
        alone, other_alone, send_old, versioned = self.alone, self.other_alone, self.send_old, self.versioned

        def process(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            new, old, latest = value
            if key is None or (versioned and not latest):
                drop("null_key" if key is None else "out_of_order")
                return
            row = look_up(key)
            other = None if row is None else row[0]
            if other is None:
                if not alone or (new is None and old is None):
                    return
                needed = False
            else:
                needed = other_alone
                if row[1] > timestamp:  # type: ignore[index]
                    timestamp = row[1]  # type: ignore[index]
            new_result = join(new, other) if needed or new is not None else None
            old_result = join_old(old, other) if send_old and (needed or old is not None) else None
            forward(key, (new_result, old_result, latest), timestamp, headers)

        return process


@dataclass(frozen=True)
class TableJoinMerger(Operator):
    """Hands on the results of both sides, and writes them to a store if the result is materialized."""

    persistent_name = "TableJoinMerger"

    store: str | None = None
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        forward = ctx.forward
        if self.store is not None:
            write = table_writer(ctx, ctx.store(self.store), self.send_old)

            def materialized(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
                write(key, value[0], value[1], timestamp, headers)

            return materialized
        if self.send_old:
            return forward

        def new_only(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            forward(key, (value[0], None, value[2]), timestamp, headers)

        return new_only
