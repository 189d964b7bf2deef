"""Views: the ways in which a join reads the rows of a table. (The HTTP views of a worker are another thing.)

The view of a materialized table reads its store. A table without a store, such as a filtered table, has another view.
Each read of this view computes the row from the parent table's row. Views are part of the topology's description, and
`TableView.bind` turns a view into a function for one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamapp.engine.operator import NodeContext, ValueGetter
from streamapp.engine.operators.table_answers import or_none
from streamapp.engine.operators.transformer import bind_transformer
from streamapp.on_error import Answer, Chooser
from streamapp.records import RecordContext
from streamapp.serdes.base import Serde
from streamapp.state.last_written import LastWritten

__all__ = [
    "AsOfGetter",
    "FilterView",
    "JoinView",
    "MapView",
    "RowReader",
    "SessionView",
    "StoreView",
    "TableView",
    "TransformView",
    "WindowView",
]

AsOfGetter = Callable[[Any, int], "tuple[Any, int] | None"]
"""Reads a table's row by key, as of a time in ms. A table that is not versioned gives its current row."""

RowReader = Callable[[Any], "tuple[Any, int, bytes | None] | None"]
"""Reads a table's current row by key: (value, timestamp in ms, bytes of the value if they are known), or None."""


class TableView:
    """The base class of views. A row is a tuple that starts with value and timestamp (ms), or None if it is missing."""

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the view reads. A node with this view has to be connected with them."""
        raise NotImplementedError

    def bind(self, ctx: NodeContext) -> ValueGetter:
        """The function that reads a current row."""
        raise NotImplementedError

    def bind_flushed(self, ctx: NodeContext) -> ValueGetter:
        """As `bind`, but an update of the row that waits in a record cache is flushed before the row is read.

        A foreign-key join needs this flush. Otherwise an insertion and a deletion between two flushes cancel each other
        in the cache. A join that has read the row in between would not learn of the deletion, and its result would keep
        the row.
        """
        return self._flushing(ctx, self.bind(ctx))

    def bind_with_bytes(self, ctx: NodeContext, *, decoded: bool = True) -> RowReader:
        """As `bind_flushed`, with a third element of each row: the bytes of the value in the table's store.

        The bytes are None if the table has no store, or if the store keeps no bytes. Without ``decoded``, the value may
        be None if the bytes are known.
        """
        get = self.bind_flushed(ctx)

        def get_without_bytes(key: Any) -> tuple[Any, int, None] | None:
            row = get(key)
            return None if row is None else (row[0], row[1], None)

        return get_without_bytes

    def value_serde(self, ctx: NodeContext) -> Serde[Any] | None:
        """The serde of the values in the store that a `StoreView` reads. None for all other views, also those of
        windows and sessions."""
        return None

    def last_written(self, ctx: NodeContext) -> LastWritten | None:
        """The value that the table's operator has written last, with its bytes; None if nothing notes it."""
        return None

    def _flushing(self, ctx: NodeContext, get: Callable[[Any], Any]) -> Callable[[Any], Any]:
        stores = [store for store in map(ctx.store, self.store_names) if store.cached]
        if not stores:
            return get

        def get_flushed(key: Any) -> Any:
            for store in stores:
                store.flush_key(key)
            return get(key)

        return get_flushed

    def bind_as_of(self, ctx: NodeContext) -> AsOfGetter:
        """The function that reads a row as of a timestamp."""
        get = self.bind(ctx)
        return lambda key, timestamp: get(key)


@dataclass(frozen=True)
class StoreView(TableView):
    """The view of a materialized table, which reads the table's store."""

    store: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store,)

    def bind(self, ctx: NodeContext) -> ValueGetter:
        store = ctx.store(self.store)
        get: ValueGetter = store.reader()
        return get

    def bind_with_bytes(self, ctx: NodeContext, *, decoded: bool = True) -> RowReader:
        get = ctx.store(self.store).reader_with_bytes(decoded)
        return super().bind_with_bytes(ctx) if get is None else self._flushing(ctx, get)

    def value_serde(self, ctx: NodeContext) -> Serde[Any] | None:
        serde: Serde[Any] | None = ctx.store(self.store).spec.value_serde
        return serde

    def last_written(self, ctx: NodeContext) -> LastWritten | None:
        last: LastWritten | None = ctx.store(self.store).last_written()
        return last

    def bind_as_of(self, ctx: NodeContext) -> AsOfGetter:
        store = ctx.store(self.store)
        return store.get if store.versioned else super().bind_as_of(ctx)


@dataclass(frozen=True)
class WindowView(TableView):
    """The view of the table of a windowed aggregation, whose keys are `Windowed`."""

    store: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store,)

    def bind(self, ctx: NodeContext) -> ValueGetter:
        get = ctx.store(self.store).get
        return lambda key: get(key.key, key.start)


@dataclass(frozen=True)
class SessionView(TableView):
    """The view of the table of a session aggregation. A row's timestamp is the session's end."""

    store: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store,)

    def bind(self, ctx: NodeContext) -> ValueGetter:
        fetch = ctx.store(self.store).get

        def get(key: Any) -> tuple[Any, int] | None:
            value = fetch(key.key, key.start, key.end)
            return None if value is None else (value, key.end)

        return get


@dataclass(frozen=True)
class _DerivedView(TableView):
    parent: TableView

    @property
    def store_names(self) -> tuple[str, ...]:
        return self.parent.store_names

    def bind(self, ctx: NodeContext) -> ValueGetter:
        return self.derive(ctx, self.parent.bind(ctx))

    def bind_as_of(self, ctx: NodeContext) -> AsOfGetter:
        return self.derive(ctx, self.parent.bind_as_of(ctx))

    def derive(self, ctx: NodeContext, read: Callable[..., Any]) -> Callable[..., Any]:
        """The getter of the view, over the parent's getter ``read``. Both take the key, or key and timestamp."""
        raise NotImplementedError


@dataclass(frozen=True)
class FilterView(_DerivedView):
    """The rows of another table for which a predicate holds."""

    predicate: Callable[[Any, Any], bool]
    negate: bool
    on_error: Answer | Chooser | None = None

    def bind_with_bytes(self, ctx: NodeContext, *, decoded: bool = True) -> RowReader:
        return self.derive(ctx, self.parent.bind_with_bytes(ctx))  # the predicate needs the value

    def derive(self, ctx: NodeContext, read: Callable[..., Any]) -> Callable[..., Any]:
        predicate, negate = self.predicate, self.negate
        fits = or_none(lambda key, value: bool(predicate(key, value)) is not negate, self.on_error)

        def get(*at: Any) -> Any:
            row = read(*at)
            return row if row is not None and fits(at[0], row[0]) else None

        return get


@dataclass(frozen=True)
class MapView(_DerivedView):
    """The rows of another table with mapped values."""

    mapper: Callable[..., Any]
    with_key: bool

    def derive(self, ctx: NodeContext, read: Callable[..., Any]) -> Callable[..., Any]:
        mapper, with_key = self.mapper, self.with_key

        def get(*at: Any) -> Any:
            row = read(*at)
            if row is None:
                return None
            value = mapper(at[0], row[0]) if with_key else mapper(row[0])
            return None if value is None else (value, row[1])

        return get


@dataclass(frozen=True)
class TransformView(_DerivedView):
    """The rows of another table, with the values of a transformer that only this view uses.

    The transformer is also called for missing rows, with None.
    """

    supplier: Callable[[], Any]
    on_error: Answer | Chooser | None = None

    def derive(self, ctx: NodeContext, read: Callable[..., Any]) -> Callable[..., Any]:
        transform, task = or_none(bind_transformer(ctx, self.supplier), self.on_error), ctx.task

        def get(*at: Any) -> Any:
            row = read(*at)
            value, timestamp = (None, -1) if row is None else (row[0], row[1])
            # The record that wrote the row is no longer known, so its context is empty (KTableTransformValuesGetter).
            result = task.work_as(RecordContext(None, -1, -1, timestamp), transform, at[0], value)
            return None if result is None else (result, timestamp)

        return get


@dataclass(frozen=True)
class JoinView(TableView):
    """The result of a table-table join, computed from the rows of both sides.

    With ``left_alone``, a row of the left side is in the result even without a match; likewise ``right_alone``.
    """

    left: TableView
    right: TableView
    joiner: Callable[[Any, Any], Any]
    left_alone: bool
    right_alone: bool

    @property
    def store_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.left.store_names + self.right.store_names))

    def bind(self, ctx: NodeContext) -> ValueGetter:
        read_left, read_right, join = self.left.bind(ctx), self.right.bind(ctx), self.joiner
        left_alone, right_alone = self.left_alone, self.right_alone

        def get(key: Any) -> tuple[Any, int] | None:
            left = read_left(key)
            if left is None and not right_alone:
                return None
            right = read_right(key)
            if right is None and (left is None or not left_alone):
                return None
            if left is None or right is None:
                row = left or right
                assert row is not None
                value = join(row[0], None) if right is None else join(None, row[0])
                timestamp = row[1]
            else:
                value, timestamp = join(left[0], right[0]), max(left[1], right[1])
            return None if value is None else (value, timestamp)

        return get
