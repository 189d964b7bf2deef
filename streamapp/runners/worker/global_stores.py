"""Fills the global stores of this process: to the end of their topics before any task starts, and on from there."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError

from streamapp.broker.consumer import RecordConsumer, open_consumer
from streamapp.broker.requests import LastingAdmin
from streamapp.engine.global_state import GlobalState
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import consumer_settings, list_offsets
from streamapp.runners.worker.livetask import now_ms
from streamapp.runners.worker.topics import Topics
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan

__all__ = ["GlobalStores"]

logger: logging.Logger = logging.getLogger(__name__)

_BATCH = 10_000


class GlobalStores:
    """The global stores, in memory, fed by a consumer of their own from all partitions of their topics."""

    def __init__(self, plan: Plan, admin: LastingAdmin, topics: Topics, rows: RowMemory) -> None:
        self.state: GlobalState = GlobalState(plan, wall_clock_ms=now_ms, rows=rows)
        self._missing: dict[TopicPartition, int] = {}
        """Partition -> the end that has to be reached before tasks may start."""
        self._consumer: RecordConsumer | None = None
        partitions = [
            TopicPartition(topic, p) for topic in self.state.topics for p in range(topics.partitions[topic])
        ]
        if partitions:
            first = list_offsets(admin, partitions, latest=False)
            end = list_offsets(admin, partitions, latest=True)
            self._missing = {tp: end[tp] for tp in partitions if first[tp] < end[tp]}
            self._consumer = open_consumer(
                {**consumer_settings(plan.config, "global"), "auto.offset.reset": "earliest"}
            )
            self._consumer.assign({tp: first[tp] for tp in partitions})

    @property
    def ready(self) -> bool:
        """The stores have everything that was in their topics when the worker started."""
        return not self._missing

    def poll(self, timeout: float) -> None:
        """Applies what has arrived."""
        if self._consumer is None:
            return
        batches, events = self._consumer.poll(_BATCH, timeout)
        for tp, batch in batches:
            self.state.process(tp, batch)
            self._reached(tp, batch.offsets[-1] + 1)
        for tp, offset, error in events:
            if error.code() == KafkaError._PARTITION_EOF:
                self._reached(tp, offset)
            elif not error.retriable():
                raise BrokerError(f"the global topic {tp.topic} cannot be read: {error.str()}")

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self.state.close()

    def _reached(self, tp: TopicPartition, position: int) -> None:
        if self._missing and position >= self._missing.get(tp, position + 1):
            del self._missing[tp]
            if not self._missing:
                logger.info("the global stores are complete")
