"""The operators of tables. The value of each record between them is a change: (new value, old value, is_latest).

Fields of the operators: ``store`` is the store of the table, or None if the table is not materialized. ``send_old`` is
true if an operator downstream needs old values. ``versioned`` is true if the table upstream is versioned, so that
``is_latest`` may be False.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.engine.equality import same
from streamapp.engine.operator import Change, NodeContext, Operator, ProcessFn
from streamapp.engine.operators.forward import copier_for_old, table_writer
from streamapp.engine.operators.table_answers import new_and_old
from streamapp.engine.operators.transformer import ValueTransformer, bind_transformer
from streamapp.errors import StreamsError
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers

__all__ = [
    "TableAggregate",
    "TableFilter",
    "TableMapValues",
    "TableReduce",
    "TableRepartitionMap",
    "TableSource",
    "TableTransformValues",
]


@dataclass(frozen=True)
class TableSource(Operator):
    """Turns the records of a topic or a stream into changes of a table. Records without a key are dropped."""

    persistent_name = "TableSource"
    drops: ClassVar[tuple[str, ...]] = ("null_key",)

    store: str | None
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        drop, forward = ctx.drop, ctx.forward

        def stateless(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null_key")
            else:
                forward(key, (value, None, True), timestamp, headers)

        if self.store is None:
            return stateless
        store = ctx.store(self.store)
        get, write = store.reader_before_put(), table_writer(ctx, store, self.send_old)

        def new_only(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null_key")
            else:
                write(key, value, None, timestamp, headers)

        def new_and_old(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null_key")
            else:
                row = get(key)
                write(key, value, None if row is None else row[0], timestamp, headers)

        return new_and_old if self.send_old else new_only


@dataclass(frozen=True)
class TableFilter(Operator):
    """Keeps the rows for which the predicate is true. If a row changes and the predicate becomes false, the result's
    row is deleted."""

    persistent_name = "TableFilter"

    predicate: Callable[[Any, Any], bool]
    negate: bool = False
    store: str | None = None
    send_old: bool = False
    versioned: bool = False
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        predicate, negate = self.predicate, self.negate

        def compute(key: Any, value: Any) -> Any:
            return value if value is not None and bool(predicate(key, value)) is not negate else None

        # Nobody needs the deletion of a row that was never forwarded, except the history of a versioned table.
        return _derived(ctx, self, compute, skip_empty=self.send_old and not self.versioned)


@dataclass(frozen=True)
class TableMapValues(Operator):
    """Replaces the value of each row by the mapper's result. Deletions are handed on without a call of the mapper."""

    persistent_name = "TableMapValues"

    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old: bool = False
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        mapper = self.mapper

        def by_value(key: Any, value: Any) -> Any:
            return None if value is None else mapper(value)

        def by_key_and_value(key: Any, value: Any) -> Any:
            return None if value is None else mapper(key, value)

        return _derived(ctx, self, by_key_and_value if self.with_key else by_value)


@dataclass(frozen=True)
class TableTransformValues(Operator):
    """Replaces the value of each row by the result of a `ValueTransformer`, which is also called for deletions."""

    persistent_name = "TableTransformValues"

    supplier: Callable[[], ValueTransformer]
    store: str | None = None
    send_old: bool = False
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        process, task = _derived(ctx, self, bind_transformer(ctx, self.supplier)), ctx.task

        def restamped(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            # The transformer's stores take times from the current record. A join or an aggregation before this operator
            # may have given the change another time.
            task.restamped(timestamp, headers, process, key, value, timestamp, headers)

        return restamped


def _derived(
    ctx: NodeContext,
    table: TableFilter | TableMapValues | TableTransformValues,
    compute: Callable[[Any, Any], Any],
    skip_empty: bool = False,
) -> ProcessFn:
    """The function of a table that is computed row by row from another table.

    With a store, old values are read from the store. Without one, they are computed from the other table's old values.
    """
    store_name, send_old = table.store, table.send_old
    of_new, of_old = new_and_old(ctx, compute, table.on_error)
    if store_name is None:
        forward = ctx.forward

        def stateless(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            new, old, latest = value
            new = of_new(key, new)
            old = of_old(key, old) if send_old else None
            if skip_empty and new is None and old is None:
                return
            forward(key, (new, old, latest), timestamp, headers)

        return stateless
    store = ctx.store(store_name)
    get, write = store.reader_before_put(), table_writer(ctx, store, send_old)

    def materialized(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
        new = of_new(key, value[0])
        row = get(key) if send_old else None
        old = None if row is None else row[0]
        if skip_empty and new is None and old is None:
            return
        write(key, new, old, timestamp, headers)

    return materialized


@dataclass(frozen=True)
class TableRepartitionMap(Operator):
    """Maps each row of a table to (group key, value), for ``KTable.group_by``. Needs the old values of the table.

    If a row changes but stays in its group, one record has old and new value. If a row moves to another group, a first
    record removes the row from the old group. A second record adds the row to the new group. A row for which the mapper
    returns None, or None as key or value, is in no group.
    """

    persistent_name = "TableRepartitionMap"

    mapper: Callable[[Any, Any], tuple[Any, Any] | None]
    versioned: bool = False
    on_error: Answer | Chooser | None = None

    def bind(self, ctx: NodeContext) -> ProcessFn:
        versioned, forward = self.versioned, ctx.forward
        of_new, of_old = new_and_old(ctx, self.mapper, self.on_error)
        name = ctx.name

        def pair(mapper: Callable[..., Any], key: Any, value: Any) -> tuple[Any, Any]:
            found = None if value is None else mapper(key, value)
            return (None, None) if found is None else found

        def process(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsError(
                    f"{name}: a table that is grouped cannot have a row without key. Filter out records without key "
                    "before the table"
                )
            new, old, latest = value
            if versioned and not latest:
                return
            new_key, new_value = pair(of_new, key, new)
            old_key, old_value = pair(of_old, key, old)
            has_new = new_key is not None and new_value is not None
            has_old = old_key is not None and old_value is not None
            if has_new and has_old and same(new_key, old_key):
                forward(new_key, (new_value, old_value, latest), timestamp, headers)
                return
            if has_old:
                forward(old_key, (None, old_value, latest), timestamp, headers)
            if has_new:
                forward(new_key, (new_value, None, latest), timestamp, headers)

        return process


@dataclass(frozen=True)
class TableAggregate(Operator):
    """Aggregates a grouped table: the subtractor removes a row's old value, then the adder adds the row's new value.

    A result's timestamp is the largest timestamp of the changes in it.
    """

    persistent_name = "TableAggregate"

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        initializer, adder, subtractor = self.initializer, self.adder, self.subtractor
        store = ctx.store(self.store)
        get, write = store.reader_before_put(), table_writer(ctx, store, self.send_old)
        name, copy = ctx.name, copier_for_old(store, self.send_old)

        def process(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsError(f"{name}: a grouped table cannot have a row without key")
            new, old, _ = value
            row = get(key)
            before, at_least = (None, timestamp) if row is None else (row[0], max(timestamp, row[1]))
            aggregate, at = before if copy is None or before is None else copy(before), timestamp
            if old is not None and before is not None:
                aggregate, at = subtractor(key, old, aggregate), at_least
            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
                at = at_least
            write(key, aggregate, before, at, headers, timestamp)

        return process


@dataclass(frozen=True)
class TableReduce(Operator):
    """Reduces a grouped table: the subtractor removes a row's old value, then the adder adds the row's new value."""

    persistent_name = "TableReduce"

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, ctx: NodeContext) -> ProcessFn:
        adder, subtractor = self.adder, self.subtractor
        store = ctx.store(self.store)
        get, write = store.reader_before_put(), table_writer(ctx, store, self.send_old)
        name, copy = ctx.name, copier_for_old(store, self.send_old)

        def process(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsError(f"{name}: a grouped table cannot have a row without key")
            new, old, _ = value
            row = get(key)
            before, at_least = (None, timestamp) if row is None else (row[0], max(timestamp, row[1]))
            aggregate, at = before if copy is None or before is None else copy(before), timestamp
            if old is not None and before is not None:
                aggregate, at = subtractor(aggregate, old), at_least
            if new is not None:
                if aggregate is None:
                    aggregate = new
                else:
                    aggregate, at = adder(aggregate, new), at_least
            write(key, aggregate, before, at, headers, timestamp)

        return process
