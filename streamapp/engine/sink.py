"""Sinks: typed records out of the chain become bytes for the collector."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from streamapp.engine.failures import Failures
from streamapp.engine.operator import ProcessFn
from streamapp.partitioning import partition_for
from streamapp.records import Headers
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamapp.topology.nodes import SinkNode

if TYPE_CHECKING:
    from streamapp.engine.task import Task

__all__ = ["RecordContext", "bind_sink"]

Partitioner = Callable[[str, Any, Any, int], "int | None"]


class RecordContext(NamedTuple):
    """What a topic name function may look at besides key and value."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


def bind_sink(node: SinkNode, task: Task, failures: Failures) -> ProcessFn:
    """The function that serializes a record and hands it to the collector."""
    send = task.collector.send
    name, target = node.name, node.topic
    static = isinstance(target, str)
    bound_to = target if isinstance(target, str) else ""
    key_bytes = node.key_serde.bind(bound_to, True).serialize
    value_bytes = node.value_serde.bind(bound_to, False).serialize
    partitioner = node.partitioner or _windowed_partitioner(node)

    if static and partitioner is None:

        def sink(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                raw_key = None if key is None else key_bytes(key)
                raw_value = None if value is None else value_bytes(value)
            except Exception as error:
                failures.production(error, name, bound_to)
                return
            send(bound_to, raw_key, raw_value, timestamp, headers, None)

        return sink

    partition_count = task.collector.partition_count

    def choosing_sink(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if isinstance(target, str):
            topic = target
        else:
            topic = target(
                key, value, RecordContext(task.topic, task.source_partition, task.offset, timestamp, headers)
            )
            if not isinstance(topic, str) or not topic:
                raise TypeError(
                    f"the topic function of {name} gave {topic!r}: it has to give the name of a topic"
                )
        try:
            raw_key = None if key is None else key_bytes(key)
            raw_value = None if value is None else value_bytes(value)
        except Exception as error:
            failures.production(error, name, topic)
            return
        partition = None
        if partitioner is not None:
            count = partition_count(topic)
            partition = partitioner(topic, key, value, count)
            if partition is not None and not 0 <= partition < (sys.maxsize if task.any_partition else count):
                raise ValueError(
                    f"the partitioner of {name} chose partition {partition} of {topic}, which has {count}"
                )
        send(topic, raw_key, raw_value, timestamp, headers, partition)

    return choosing_sink


def _windowed_partitioner(node: SinkNode) -> Partitioner | None:
    """Windowed keys go where their inner key goes, so that all windows of a key stay together
    (Kafka Streams' WindowedStreamPartitioner)."""
    serde = node.key_serde
    if not isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return None
    inner = serde.inner.serialize

    def by_inner_key(topic: str, key: Any, value: Any, count: int) -> int | None:
        return None if key is None else partition_for(inner(key.key), count)

    return by_inner_key
