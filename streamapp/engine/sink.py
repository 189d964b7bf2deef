"""Sinks: the last nodes of a task, which serialize records and hand the bytes to the collector."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, SupportsIndex

from streamapp._base.partitioning import partition_for
from streamapp.engine.collector import ResultRefused
from streamapp.engine.failures import Failures
from streamapp.engine.operator import ProcessFn
from streamapp.engine.running_task import RunningTask
from streamapp.records import Headers
from streamapp.serdes.base import Serde
from streamapp.serdes.framing import Framing
from streamapp.serdes.placing import placing_bytes
from streamapp.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamapp.topology.nodes import SinkNode

__all__ = ["bind_sink"]

Partitioner = Callable[[str, Any, Any, int], "int | None"]
Bound = tuple[Callable[[Any], bytes], Callable[[Any], bytes], Partitioner | None, Framing]
"""The parts of a sink for one topic: serializers of key and value, the partitioner, and the place of schema ids."""


def bind_sink(node: SinkNode, task: RunningTask, failures: Failures) -> ProcessFn:
    """The function that serializes a record and hands it to the collector."""
    send = task.collector.send
    name, target = node.name, node.topic
    bound: dict[str, Bound] = {}

    def bind_to(topic: str) -> Bound:
        key_serde, value_serde = node.key_serde.bind(topic, True), node.value_serde.bind(topic, False)
        partitioner = node.partitioner or _windowed_partitioner(key_serde)
        framing = Framing(key_serde, value_serde)
        bound[topic] = key_serde.serialize, value_serde.serialize, partitioner, framing
        return bound[topic]

    if isinstance(target, str):
        key_bytes, value_bytes, partitioner, framing = bind_to(target)
        bound_to = target

    if isinstance(target, str) and partitioner is None and not framing.parts:

        def sink(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                raw_key = None if key is None else key_bytes(key)
                raw_value = None if value is None else value_bytes(value)
            except Exception as error:
                failures.production(error, name, bound_to)
                return
            try:
                send(bound_to, raw_key, raw_value, timestamp, headers, None)
            except ResultRefused as error:
                failures.refused(error, name, bound_to)

        return sink

    partition_count = task.collector.partition_count

    def choosing_sink(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if isinstance(target, str):
            topic = target
        else:
            topic = target(key, value, task.record_context._replace(timestamp=timestamp, headers=headers))
            if not isinstance(topic, str) or not topic:
                raise TypeError(
                    f"the topic function of {name} gave {topic!r}: it has to give the name of a topic"
                )
        try:
            key_bytes, value_bytes, partitioner, framing = bound.get(topic) or bind_to(topic)
            raw_key = None if key is None else key_bytes(key)
            raw_value = None if value is None else value_bytes(value)
            if framing.parts:
                raw_key, raw_value, headers = framing.parted(raw_key, raw_value, headers)
        except Exception as error:
            failures.production(error, name, topic)
            return
        partition = None
        if partitioner is not None:
            count = partition_count(topic)
            partition = partitioner(topic, key, value, count)
            if partition is not None and not isinstance(partition, SupportsIndex):
                raise TypeError(
                    f"the partitioner of {name} gave {partition!r}: it has to give the number of one partition, or "
                    "None for Kafka's default partitioner"
                )
            if partition is not None and not 0 <= partition < (sys.maxsize if task.any_partition else count):
                raise ValueError(
                    f"the partitioner of {name} chose partition {partition} of {topic}, whose partitions are 0 to "
                    f"{count - 1}"
                )
        try:
            send(topic, raw_key, raw_value, timestamp, headers, partition)
        except ResultRefused as error:
            failures.refused(error, name, topic)

    return choosing_sink


def _windowed_partitioner(serde: Serde[Any]) -> Partitioner | None:
    """The partitioner for windowed keys, which chooses the partition by `placing_bytes`; None for other keys, for which
    the client's partitioner does so."""
    if not isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return None

    def by_inner_key(topic: str, key: Any, value: Any, count: int) -> int | None:
        return None if key is None else partition_for(placing_bytes(serde, serde.serialize(key)), count)

    return by_inner_key
