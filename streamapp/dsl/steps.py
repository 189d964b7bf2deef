"""Steps: descriptions of operators that may still change while the user describes the topology.

A later call may change an earlier operator. For example, a join needs stores of both its tables, and a grouping needs
old values in a table's changes. So each node has a step instead of an operator, and later calls change the step. When
the topology is written, the step makes the operator, which is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamapp.engine.operator import Operator
from streamapp.engine.operators.closing import LateOutput
from streamapp.engine.operators.expiry import Expiring
from streamapp.engine.operators.guarded import guarded
from streamapp.engine.operators.stateless import PassThrough
from streamapp.engine.operators.table import TableRepartitionMap, TableSource
from streamapp.engine.operators.table_join import TableJoin, TableJoinMerger
from streamapp.engine.operators.views import JoinView, StoreView, TableView
from streamapp.engine.operators.window_aggregate import WindowedAggregate
from streamapp.on_error import Answer, Chooser
from streamapp.state.spec import StoreSpec

__all__ = [
    "AggregateStep",
    "CogroupStep",
    "DerivedStep",
    "Fixed",
    "GroupStep",
    "JoinSideStep",
    "JoinStep",
    "SourceStep",
    "Step",
    "StreamJoinStep",
    "SuppressStep",
    "TableStep",
]


class Step:
    """The description of a node's operator, and its stores."""

    def operator(self, versioned: bool) -> Operator:
        """The operator. ``versioned`` is true if the operator reads a versioned table."""
        raise NotImplementedError

    def stores(self) -> Sequence[StoreSpec]:
        """The stores that come with the operator."""
        return ()


class Fixed(Step):
    """A step whose operator does not change."""

    def __init__(self, operator: Any, *stores: StoreSpec) -> None:
        self._operator, self._stores = operator, stores

    def operator(self, versioned: bool) -> Operator:
        return self._operator  # type: ignore[no-any-return]

    def stores(self) -> Sequence[StoreSpec]:
        return self._stores


class StreamJoinStep(Fixed):
    """One side of a stream-stream join."""

    late: str | None = None
    """The name of the child that gets late records; None if the topology does not read late records."""
    on_error: Answer | Chooser | None = None

    def operator(self, versioned: bool) -> Operator:
        operator = super().operator(versioned)
        assert isinstance(operator, LateOutput)
        if self.late is not None:
            operator = replace(operator, late=self.late)
        return guarded(operator, self.on_error, holds=True)


class GroupStep(Fixed):
    """The mapping of a table's rows to their groups, before the repartition topic of ``KTable.group_by``."""

    def __init__(
        self, fn: Callable[[Any, Any], tuple[Any, Any] | None], on_error: Answer | Chooser | None
    ) -> None:
        super().__init__(None)
        self._fn, self._on_error = fn, on_error

    def operator(self, versioned: bool) -> TableRepartitionMap:
        return TableRepartitionMap(self._fn, versioned, self._on_error)


class TableStep(Step):
    """A step that makes a table. Later steps may ask for old values in its changes, or for a view to read its rows."""

    def __init__(self) -> None:
        self.send_old: bool = False

    def enable_old_values(self, force: bool) -> bool:
        """Asks the table to send the old value with each change. Returns True if the table will do so.

        A table read from a topic needs a store for old values. Such a store is added only with ``force``.
        """
        raise NotImplementedError

    def view(self) -> TableView:
        """The view with which joins read the table. The table gets a store if the view needs one."""
        raise NotImplementedError


class SourceStep(TableStep):
    """A topic or stream read as a table. The table has a store if the user named one, if rows have a ttl, or if a later
    step needs one."""

    def __init__(self, spec: StoreSpec, materialized: bool) -> None:
        super().__init__()
        self.spec: StoreSpec = spec
        self.materialized: bool = materialized or spec.kind.ttl_ms > 0

    def enable_old_values(self, force: bool) -> bool:
        if not force and not self.materialized:
            return False
        self.send_old = self.materialized = True
        return True

    def view(self) -> TableView:
        self.materialized = True
        return StoreView(self.spec.name)

    def operator(self, versioned: bool) -> Operator:
        source = TableSource(self.spec.name if self.materialized else None, self.send_old)
        return _expiring(source, self.spec, self.send_old)

    def stores(self) -> Sequence[StoreSpec]:
        return (self.spec,) if self.materialized else ()


class DerivedStep(TableStep):
    """A table that is computed row by row from another table: filtered, mapped or transformed."""

    def __init__(
        self,
        parent: TableStep,
        spec: StoreSpec | None,
        make_operator: Callable[[str | None, bool, bool], Operator],
        make_view: Callable[[TableView], TableView],
        wants_old: bool = False,
    ) -> None:
        super().__init__()
        self._parent, self._spec = parent, spec
        self._make_operator, self._make_view = make_operator, make_view
        if wants_old:
            self.send_old: bool = parent.enable_old_values(False)

    def enable_old_values(self, force: bool) -> bool:
        if self._spec is not None or self._parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> TableView:
        return self._make_view(self._parent.view()) if self._spec is None else StoreView(self._spec.name)

    def operator(self, versioned: bool) -> Operator:
        return self._make_operator(None if self._spec is None else self._spec.name, self.send_old, versioned)

    def stores(self) -> Sequence[StoreSpec]:
        return () if self._spec is None else (self._spec,)


class AggregateStep(TableStep):
    """An aggregation, which always has a store."""

    def __init__(
        self,
        spec: StoreSpec,
        make_operator: Callable[[bool], Operator],
        view: TableView,
        on_error: Answer | Chooser | None = None,
    ) -> None:
        super().__init__()
        self._spec, self._make_operator, self._view = spec, make_operator, view
        self._on_error = on_error
        self.late: str | None = None
        """The name of the child that gets late records; None if the topology does not read late records."""
        self.idle_timeout_ms: int | None = None

    def enable_old_values(self, force: bool) -> bool:
        self.send_old = True
        return True

    def view(self) -> TableView:
        return self._view

    def close_when_idle(self, timeout_ms: int) -> None:
        """Makes stream time follow the wall clock after ``timeout_ms`` without records, so that windows close. If there
        are several calls, the longest time-out counts."""
        self.idle_timeout_ms = max(timeout_ms, self.idle_timeout_ms or 0)

    def operator(self, versioned: bool) -> Operator:
        operator = self._make_operator(self.send_old)
        if self._on_error is not None and isinstance(operator, WindowedAggregate):
            operator = replace(operator, all_or_none=True)
        if self.late is None and self.idle_timeout_ms is None:
            operator = _expiring(operator, self._spec, self.send_old)
        else:
            assert isinstance(operator, WindowedAggregate)
            operator = replace(operator, late=self.late, idle_timeout_ms=self.idle_timeout_ms)
        # With a record cache, results are not held back (holds=False), because the cache hands them on later anyway.
        return guarded(operator, self._on_error, holds=False)

    def stores(self) -> Sequence[StoreSpec]:
        return (self._spec,)


class CogroupStep(TableStep):
    """The merger of the aggregations of co-grouped streams, which share one store."""

    def __init__(self, parents: Sequence[AggregateStep]) -> None:
        super().__init__()
        self._parents = parents

    def enable_old_values(self, force: bool) -> bool:
        for parent in self._parents:
            parent.enable_old_values(force)
        return True

    def view(self) -> TableView:
        return self._parents[0].view()

    def operator(self, versioned: bool) -> Operator:
        return PassThrough()


def _expiring(operator: Operator, spec: StoreSpec, send_old: bool) -> Operator:
    ttl_ms = spec.kind.ttl_ms
    return Expiring(operator, spec.name, ttl_ms, send_old) if ttl_ms else operator


class JoinSideStep(Step):
    """One side of a table-table join."""

    def __init__(
        self,
        this: TableStep,
        other: TableView,
        joiner: Callable[[Any, Any], Any],
        alone: bool,
        other_alone: bool,
        on_error: Answer | Chooser | None = None,
    ) -> None:
        self._on_error = on_error
        self.table: TableStep = this
        self.reads: TableView = other
        self._joiner = joiner
        self._alone, self._other_alone = alone, other_alone
        self.send_old: bool = False

    def enable_old_values(self) -> None:
        self.table.enable_old_values(True)
        self.send_old = True

    def operator(self, versioned: bool) -> Operator:
        return TableJoin(
            self.reads,
            self._joiner,
            self._alone,
            self._other_alone,
            self.send_old,
            versioned,
            self._on_error,
        )


class JoinStep(TableStep):
    """The merger of the two sides of a table-table join."""

    def __init__(
        self, this: JoinSideStep, other: JoinSideStep, spec: StoreSpec | None, view: JoinView
    ) -> None:
        super().__init__()
        self.this: JoinSideStep = this
        self.other: JoinSideStep = other
        self._spec, self._view = spec, view

    def enable_old_values(self, force: bool) -> bool:
        self.this.enable_old_values()
        self.other.enable_old_values()
        self.send_old = True
        return True

    def view(self) -> TableView:
        return self._view if self._spec is None else StoreView(self._spec.name)

    def operator(self, versioned: bool) -> Operator:
        return TableJoinMerger(None if self._spec is None else self._spec.name, self.send_old)

    def stores(self) -> Sequence[StoreSpec]:
        return () if self._spec is None else (self._spec,)


class SuppressStep(TableStep):
    """A suppression, which holds a table's changes back in a buffer."""

    def __init__(
        self,
        parent: TableStep,
        spec: StoreSpec,
        operator: Operator,
        make_view: Callable[[TableView], TableView],
    ) -> None:
        super().__init__()
        self._parent, self._spec, self._operator, self._make_view = parent, spec, operator, make_view

    def enable_old_values(self, force: bool) -> bool:
        return self._parent.enable_old_values(force)

    def view(self) -> TableView:
        return self._make_view(self._parent.view())

    def operator(self, versioned: bool) -> Operator:
        return self._operator

    def stores(self) -> Sequence[StoreSpec]:
        return (self._spec,)
