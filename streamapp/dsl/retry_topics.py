"""The builder of ``on_error=Retry.topics(...)``: the nodes that write and read an operator's retry topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamapp.dsl.answers import answered, staged
from streamapp.dsl.graph_nodes import ProcessorNode, SinkNode, SourceNode
from streamapp.dsl.steps import Fixed
from streamapp.engine.operator import Operator
from streamapp.engine.operators.staged import Delayed, ParkedRecordSerde, Staged, partition_it_came_from
from streamapp.engine.operators.stateless import PassThrough
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.on_error import OnError
from streamapp.serdes import BytesSerde
from streamapp.serdes.base import Serde
from streamapp.state.kinds import KeyValue
from streamapp.state.spec import StoreSpec

if TYPE_CHECKING:
    from streamapp.dsl.graph import Node
    from streamapp.dsl.kstream import KStream

__all__ = ["appended"]

_KEYS, _ROWS = BytesSerde(), ParkedRecordSerde()


def appended(
    stream: KStream[Any, Any],
    operator: Operator,
    on_error: OnError | None,
    name: str,
    make_node: Callable[[str, Fixed], ProcessorNode],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    *,
    named: bool,
) -> Node:
    """Appends an operator with its ``on_error`` to a stream, and returns the node from which the results come.

    ``named`` is true if the user chose the name of the operator, which the stores and topics of a `Retry` get, too.

    With retry topics, the returned node merges the results of the first attempt and of the retries. ``make_node`` makes
    the operator's node from a name and a step, the description of the operator. ``key_serde`` and ``value_serde``
    belong to the records that the operator gets, and encode a record that waits for a retry.
    """
    in_stages = staged(stream._context, operator, on_error, name, key_serde, value_serde)
    if in_stages is not None:
        return _behind_retry_topics(stream, in_stages, make_node, named)
    step = answered(stream._context, operator, on_error, name, key_serde, value_serde)
    if not named:
        for store in step.stores():
            stream._context.names.note_generated(store=store.name, changelog=f"{store.name}-changelog")
    node = make_node(name, step)
    stream._context.graph.add(node, stream._node)
    return node


def _behind_retry_topics(
    stream: KStream[Any, Any], staged: Staged, make_node: Callable[[str, Fixed], ProcessorNode], named: bool
) -> Node:
    """Appends an operator and its retry topics to a stream. Returns the node from which the results come."""
    context, graph, name = stream._context, stream._context.graph, staged.named
    stages = range(1, len(staged.sinks) + 1)
    first = make_node(name, Fixed(staged))
    graph.add(first, stream._node)
    sinks = [_sink(sink, f"{name}-retry-{stage}") for stage, sink in zip(stages, staged.sinks, strict=True)]
    for sink in sinks:
        graph.add(sink, first)
    back = f"{name}-retry-back"
    returning: list[SinkNode] = []
    for stage, sink, delay_ms in zip(stages, sinks, staged.retry.delays_ms, strict=True):
        store = StoreSpec[Any](
            name=f"{name}-retry-{stage}-waiting",
            kind=KeyValue(),
            key_serde=_KEYS,
            value_serde=_KEYS,
            persistent=context.config.dsl_store_type == "rocksdb",
        )
        if not named:
            context.names.note_generated(
                store=store.name, changelog=f"{store.name}-changelog", retry=f"{name}-retry-{stage}"
            )
        source = _source(f"{name}-retry-{stage}")
        graph.add(source, sink)
        delayed = ProcessorNode(f"{name}-retry-{stage}-delay", Fixed(Delayed(store.name, delay_ms), store))
        graph.add(delayed, source)
        # Each delay has a sink of its own, and so tasks of its own: records of a long delay must not hold up others.
        returning.append(_sink(f"{back}-from-{stage}-sink", back))
        graph.add(returning[-1], delayed)
    if not named:
        context.names.note_generated(retry=back)
    source = _source(back)
    graph.add(source, *returning)
    names = tuple(f"{name}-retry-again-{stage}-sink" for stage in stages)
    again = make_node(f"{name}-retry-again", Fixed(replace(staged, sinks=names, again=True)))
    graph.add(again, source)
    for stage, sink_name in zip(stages, names, strict=True):
        graph.add(_sink(sink_name, f"{name}-retry-{stage}"), again)
    results = ProcessorNode(f"{name}-retry-results", Fixed(PassThrough()), merge=True)
    graph.add(results, first, again)
    return results


def _sink(name: str, topic: str) -> SinkNode:
    return SinkNode(name, topic, _KEYS, _ROWS, partition_it_came_from, internal=True)


def _source(topic: str) -> SourceNode:
    return SourceNode(f"{topic}-source", (topic,), _KEYS, _ROWS, fail_on_invalid_timestamp)
