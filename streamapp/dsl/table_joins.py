"""Joins of two tables, by the same key or by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from streamapp._base.callables import require_function
from streamapp.dsl.answers import answer_of_table
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.foreign_key import join_on_foreign_key
from streamapp.dsl.graph_nodes import TableJoinNode
from streamapp.dsl.materialize import (
    DERIVED_TTL,
    Materialized,
    key_value_spec,
    named_store,
    refuse_ttl,
)
from streamapp.dsl.steps import JoinSideStep, JoinStep
from streamapp.engine.operators.table_answers import or_none
from streamapp.engine.operators.views import JoinView
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser, OnError
from streamapp.topology.edges import check_partitioner
from streamapp.topology.nodes import Partitioner

if TYPE_CHECKING:
    from streamapp.dsl.ktable import KTable

__all__ = ["join_tables"]


Kind = Literal["inner", "left", "outer"]


def join_tables(
    kind: Kind,
    this: KTable[Any, Any],
    other: Any,
    joiner: Callable[[Any, Any], Any],
    foreign_key: Callable[..., Any] | None,
    foreign_key_with_key: bool,
    other_partitioner: Partitioner | None,
    materialized: Materialized | None,
    name: str | None,
    on_error: OnError | None,
) -> KTable[Any, Any]:
    """The result of a join of two tables: by ``foreign_key``, or without one by the same key.

    Raises `TopologyError` for wrong arguments.
    """
    operator = f"the join of {this.name}"
    if not isinstance(other, this._context.faces.table):
        raise TopologyError(
            f"table {this.name} joins with a KTable, not {other!r}; begin with the stream, stream.join(table), or turn "
            "the stream into a table with to_table()"
        )
    require_function(joiner, operator, "a joiner of left and right value", 2)
    check_materialized(materialized, operator)
    refuse_ttl(materialized, operator, DERIVED_TTL)
    answer = answer_of_table(on_error, operator)
    if foreign_key is None:
        if other_partitioner is not None:
            raise TopologyError(
                f"{operator} has other_partitioner without foreign_key: tables that join by the same key need the same "
                "partitioner"
            )
        return _join_by_key(kind, this, other, joiner, materialized, name, answer)
    takes = 2 if foreign_key_with_key else 1
    require_function(foreign_key, operator, "a function that extracts the foreign key", takes)
    check_partitioner(other_partitioner, operator)
    return join_on_foreign_key(
        this,
        other,
        foreign_key,
        foreign_key_with_key,
        other_partitioner,
        joiner,
        kind == "left",
        materialized,
        name,
        answer,
    )


def _join_by_key(
    kind: Kind,
    this: KTable[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    materialized: Materialized | None,
    name: str | None,
    answer: Answer | Chooser | None,
) -> KTable[Any, Any]:
    """Adds two nodes, which look up the rows of each other's table, and a merger of their results.

    Source: ``KTableImpl.doJoin``.
    """
    context, names = this._context, this._context.names
    store = None if materialized is None else named_store(context, materialized, "KTABLE-MERGE-")
    merge_name = names.given_or_new(name, "KTABLE-MERGE-")
    sources = this._copartition(other)
    left_alone, right_alone = kind != "inner", kind == "outer"
    if left_alone:
        this._step.enable_old_values(True)
    if right_alone:
        other._step.enable_old_values(True)
    m = materialized or Materialized()
    key_serde, value_serde, spec = this.key_serde, None, None
    if store is not None:
        key_serde = context.key_serde(m.key_serde or this.key_serde, merge_name)
        value_serde = context.value_serde(m.value_serde, merge_name)
        spec = key_value_spec(context, store, m, key_serde, value_serde)
    this_view, other_view = this._step.view(), other._step.view()
    this_side = JoinSideStep(this._step, other_view, joiner, left_alone, right_alone, answer)
    other_side = JoinSideStep(other._step, this_view, _Swapped(joiner), right_alone, left_alone, answer)
    this_name = names.suffixed_or_new(name, "-join-this", "KTABLE-JOINTHIS-")
    other_name = names.suffixed_or_new(name, "-join-other", "KTABLE-JOINOTHER-")
    view = JoinView(this_view, other_view, or_none(joiner, answer), left_alone, right_alone)
    step = JoinStep(this_side, other_side, spec, view)
    node = TableJoinNode(
        merge_name, this_name, other_name, step, (this.name, this._node), (other.name, other._node)
    )
    node.output_versioned = m.versioned
    context.graph.add(node, this._node, other._node)
    return context.faces.table(context, merge_name, node, sources, key_serde, value_serde, step, store)


class _Swapped:
    """The joiner with its two arguments in the other order, for the right side. `_Swapped` is a class, because a lambda
    cannot be pickled."""

    def __init__(self, joiner: Callable[[Any, Any], Any]) -> None:
        self._joiner = joiner

    def __call__(self, right: Any, left: Any) -> Any:
        return self._joiner(left, right)
