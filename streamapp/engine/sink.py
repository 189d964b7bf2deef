"""Sinks: the last nodes of a task, which serialize records and hand the bytes to the collector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from operator import index
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
from streamapp.topology.nodes import Partitioner, SinkNode

__all__ = ["bind_sink"]

_ANY = (None,)
"""The partition that Kafka's default partitioner chooses."""

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
        partitions: Sequence[int | None] = _ANY
        if partitioner is not None:
            count = partition_count(topic)
            chosen = partitioner(topic, key, value, count)
            if type(chosen) is int and 0 <= chosen < count:
                partitions = (chosen,)
            elif chosen is not None:
                partitions = _checked(chosen, sys.maxsize if task.any_partition else count, name, topic)
            if not partitions:
                task.drop(1, name, "no_partition")
        try:
            for partition in partitions:
                send(topic, raw_key, raw_value, timestamp, headers, partition)
        except ResultRefused as error:  # by all partitions alike, so the handler answers once
            failures.refused(error, name, topic)

    return choosing_sink


def _checked(chosen: Any, count: int, name: str, topic: str) -> Sequence[int]:
    """The partitions that a partitioner chose, each once, in ascending order. Raises if these are no partitions."""
    many = chosen if isinstance(chosen, Collection) else (chosen,)  # an array of numpy is a number, too
    if not all(isinstance(each, SupportsIndex) for each in many):
        raise TypeError(
            f"the partitioner of {name} gave {chosen!r}. Return the number of a partition, a collection of numbers, or "
            "None for Kafka's default partitioner"
        )
    partitions = sorted(set(map(index, many)))
    for partition in partitions:
        if not 0 <= partition < count:
            raise ValueError(
                f"the partitioner of {name} chose partition {partition} of {topic}, whose partitions are 0 to "
                f"{count - 1}"
            )
    return partitions


def _windowed_partitioner(serde: Serde[Any]) -> Partitioner | None:
    """The partitioner for windowed keys, which chooses the partition by `placing_bytes`; None for other keys, for which
    the client's partitioner does so."""
    if not isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return None

    def by_inner_key(topic: str, key: Any, value: Any, count: int) -> int | None:
        return None if key is None else partition_for(placing_bytes(serde, serde.serialize(key)), count)

    return by_inner_key
