"""The builder of `KTable.suppress`: its node and store, and the grace period of the windows before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamapp._base.names import check_name
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import ProcessorNode
from streamapp.dsl.steps import AggregateStep, SuppressStep
from streamapp.engine.operators.suppress import SuppressView, TableSuppress
from streamapp.errors import TopologyError
from streamapp.state import operator_kinds
from streamapp.state.spec import StoreSpec
from streamapp.suppressed import Suppressed

if TYPE_CHECKING:
    from streamapp.dsl.ktable import KTable

__all__ = ["suppress"]


def suppress(table: KTable[Any, Any], suppressed: Suppressed) -> KTable[Any, Any]:
    """The table behind a suppression. Raises `TopologyError` for tables that cannot be suppressed."""
    if not isinstance(suppressed, Suppressed):
        raise TopologyError(
            f"suppress() of {table.name} takes Suppressed.until_window_closes(...) or "
            f"until_time_limit(...), not {suppressed!r}"
        )
    if table._node.is_versioned():
        raise TopologyError(
            f"suppress() does not work on versioned tables, and {table.name} is versioned, or is made of versioned "
            "tables; leave history_retention out"
        )
    context, buffer = table._context, suppressed.buffer
    until_window_closes = suppressed.until == "window_closes"
    name = suppressed.name
    node_name = check_name(name) if name is not None else context.names.new("KTABLE-SUPPRESS-")
    wait_ms = suppressed.time_limit_ms
    if until_window_closes:
        wait_ms = _window_grace_ms(table._node, node_name)
    assert wait_ms is not None
    store = f"{name}-store" if name is not None else context.names.new_store("KTABLE-SUPPRESS-")
    if name is None and buffer.logging:
        context.names.note_generated(changelog=f"{store}-changelog")
    spec = StoreSpec(
        name=store,
        kind=operator_kinds.Suppression(),
        key_serde=context.key_serde(table.key_serde, node_name),
        value_serde=context.value_serde(table.value_serde, node_name),
        persistent=False,
        logged=buffer.logging,
        internal=True,
    )
    context.stores[store] = spec
    operator = TableSuppress(
        store=store,
        wait_ms=wait_ms,
        until_window_closes=until_window_closes,
        max_records=buffer.max_records,
        max_bytes=buffer.max_bytes,
        shut_down_when_full=buffer.when_full == "shut_down",
        idle_timeout_ms=suppressed.idle_timeout_ms,
    )
    if suppressed.idle_timeout_ms is not None:
        for aggregation in _window_aggregations(table._node):
            aggregation.close_when_idle(suppressed.idle_timeout_ms)
    # While the buffer holds updates of a key, joins read the value from before the first of these updates.
    table._step.enable_old_values(True)
    step = SuppressStep(table._step, spec, operator, lambda parent: SuppressView(parent, store))
    node = ProcessorNode(node_name, step)
    node.output_versioned = False
    context.graph.add(node, table._node)
    return context.faces.table(
        context, node_name, node, table._sources, table.key_serde, table.value_serde, step, None
    )


def _window_aggregations(node: Node) -> Iterator[AggregateStep]:
    """The nearest windowed aggregations upstream of a node, on each path."""
    if node.grace_ms is None:
        for parent in node.parents:
            yield from _window_aggregations(parent)
    elif isinstance(node, ProcessorNode) and isinstance(node.step, AggregateStep):
        yield node.step


def _window_grace_ms(node: Node, suppression: str) -> int:
    """The largest grace period of the nearest windowed aggregations upstream of a node, on all paths."""
    if node.grace_ms is not None:
        return node.grace_ms
    if not node.parents:
        raise TopologyError(
            f"{suppression}: only windows close, so until_window_closes needs a windowed table; use "
            "until_time_limit for other tables"
        )
    return max(_window_grace_ms(parent, suppression) for parent in node.parents)
