"""Builders of ``to``, ``repartition`` and ``to_table``, and of the repartition topics before joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamapp._base.callables import require_function
from streamapp._base.names import check_name, check_topic_name, of_topics
from streamapp.dsl.arguments import check_materialized
from streamapp.dsl.graph_nodes import ProcessorNode, SinkNode
from streamapp.dsl.materialize import Materialized, key_value_spec, named_store
from streamapp.dsl.repartition import repartition_node
from streamapp.dsl.steps import SourceStep
from streamapp.errors import TopologyError
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde, check_given_serdes
from streamapp.topology.edges import UNWRITABLE, answer_of_edge, check_partitioner
from streamapp.topology.nodes import Partitioner

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream
    from streamapp.dsl.ktable import KTable

__all__ = ["as_table", "repartitioned", "repartitioned_for_join", "written"]


def written(
    stream: KStream[Any, Any],
    topic: str | Callable[[Any, Any, Any], str],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    partitioner: Partitioner | None,
    name: str | None,
    on_error: OnError | None,
) -> None:
    """Adds the sink of `KStream.to`."""
    context = stream._context
    node_name = context.names.given_or_new(name, "KSTREAM-SINK-")
    check_partitioner(partitioner, node_name)
    if isinstance(topic, str):
        check_topic_name(topic, "topic")
    else:
        require_function(topic, node_name, "a topic, or a function of key, value and context", 3)
    where = of_topics(node_name, topic) if isinstance(topic, str) else node_name
    node = SinkNode(
        node_name,
        topic,
        context.key_serde(key_serde or stream.key_serde, where),
        context.value_serde(value_serde or stream.value_serde, where),
        partitioner,
        on_error=answer_of_edge(on_error, where, UNWRITABLE),
    )
    context.graph.add(node, stream._node)


def repartitioned(
    stream: KStream[Any, Any],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    partitions: int | None,
    partitioner: Partitioner | None,
    name: str | None,
) -> KStream[Any, Any]:
    """The stream behind the repartition topic of `KStream.repartition`."""
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise TopologyError(
            f"the repartition topic behind {stream.name} needs a number of partitions of at least 1, not {partitions!r}"
        )
    check_partitioner(partitioner, f"repartition() of {stream.name}")
    context = stream._context
    prefix = check_name(name) if name is not None else context.names.new("KSTREAM-REPARTITION-")
    key_serde, value_serde = key_serde or stream.key_serde, value_serde or stream.value_serde
    node = repartition_node(
        context.names,
        prefix,
        context.key_serde(key_serde, prefix),
        context.value_serde(value_serde, prefix),
        named=name is not None,
        partitioner=partitioner,
        partitions=partitions,
        optimizable=False,
    )
    context.graph.add(node, stream._node)
    sources = frozenset((node.name,))
    return context.faces.stream(context, node.name, node, sources, key_serde, value_serde)


def repartitioned_for_join(
    stream: KStream[Any, Any],
    prefix: str,
    named: bool,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> KStream[Any, Any]:
    """The stream behind a repartition topic before a join. All joins of a stream without a name of the user's choice
    share one such topic."""
    context = stream._context
    key_serde, value_serde = key_serde or stream.key_serde, value_serde or stream.value_serde
    operator = f"the join of {stream.name}"
    node = repartition_node(
        context.names,
        prefix,
        context.key_serde(key_serde, operator),
        context.value_serde(value_serde, operator),
        named=named,
    )
    if stream._repartitioned is None or prefix != stream.name:
        stream._repartitioned = node
        context.graph.add(node, stream._node)
    node = stream._repartitioned
    sources = frozenset((node.name,))
    return context.faces.stream(context, node.name, node, sources, key_serde, value_serde)


def as_table(
    stream: KStream[Any, Any],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    materialized: Materialized | None,
    name: str | None,
) -> KTable[Any, Any]:
    """The table of `KStream.to_table`."""
    operator = f"to_table() of {stream.name}"
    check_given_serdes(operator, key_serde=key_serde, value_serde=value_serde)
    key_serde, value_serde = key_serde or stream.key_serde, value_serde or stream.value_serde
    check_materialized(materialized, operator, key_serde, value_serde)
    context, names = stream._context, stream._context.names
    node_name = names.given_or_new(name, "KSTREAM-TOTABLE-")
    store_name = named_store(context, materialized, "KSTREAM-TOTABLE-")
    m = materialized or Materialized()
    key_serde, value_serde = m.key_serde or key_serde, m.value_serde or value_serde
    parent, sources = stream._node, stream._sources
    if stream.repartition_required:
        parent = repartition_node(
            names,
            node_name,
            context.key_serde(key_serde, node_name),
            context.value_serde(value_serde, node_name),
            named=name is not None,
        )
        context.graph.add(parent, stream._node)
        sources = frozenset((parent.name,))
    spec = key_value_spec(context, store_name, materialized, key_serde, value_serde)
    step = SourceStep(spec, m.name is not None)
    node = ProcessorNode(node_name, step)
    node.output_versioned = m.versioned
    context.graph.add(node, parent)
    return context.faces.table(context, node_name, node, sources, key_serde, value_serde, step, m.name)
