"""Inputs whose first records Kafka has deleted, so that a computation from Kafka alone lacks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.batch_source import KafkaRange
from streamapp.runners.spark.run_order import topics_of
from streamapp.topology import Plan

__all__ = ["inputs_of", "late_inputs"]


def late_inputs(plan: Plan, names: Collection[str]) -> dict[TopicPartition, int]:
    """The partitions that begin behind offset 0, with their first offsets, of all inputs of some tables and outputs."""
    kafka = KafkaRange(client_of(plan.config))
    existing = kafka.partition_counts()
    inputs = inputs_of(plan, names, existing) - {topic.name for topic in plan.internal_topics}
    every = [TopicPartition(topic, p) for topic in sorted(inputs) for p in range(existing.get(topic, 0))]
    return {tp: first for tp, (first, _) in kafka.committed(every).items() if first > 0}


def inputs_of(plan: Plan, names: Collection[str], existing: Mapping[str, int]) -> set[str]:
    """The topics whose records reach the sub-topologies of tables and outputs, repartition topics included."""
    waiting = [
        sub
        for sub in plan.subtopologies
        if not {*sub.sink_topics, *(spec.name for spec in sub.stores)}.isdisjoint(names)
    ]
    found: set[str] = set()
    while waiting:
        new = set(topics_of(waiting.pop(), existing)) - found
        found |= new
        waiting += [writer for writer in plan.subtopologies if new.intersection(writer.sink_topics)]
    return found
