"""Faust's consumer as the control plane: the worker's member in the consumer group, and the reader of agents' topics.

The group also assigns the partitions of the topology to this consumer. But aiokafka does not fetch these partitions,
and Faust's record loop does not see them, because the data plane reads them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from aiokafka import TopicPartition as AioTopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streamapp.errors import StreamsError
from streamapp.runners.worker.agents.consumer import AgentConsumer, AgentTransport
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread
from streamapp.runners.worker.group import listen_to_heartbeats

__all__ = ["StreamsTransport"]


class _RebalanceListener(driver.ConsumerRebalanceListener):  # type: ignore[misc]
    async def on_partitions_assigned(self, assigned: Any) -> None:
        # The pause comes first, so that aiokafka does not begin to fetch partitions that librdkafka will fetch.
        ours = self._thread.app.streams.is_source
        self._thread._ensure_consumer().pause(
            *(AioTopicPartition(tp.topic, tp.partition) for tp in assigned if ours(tp.topic))
        )
        await super().on_partitions_assigned(assigned)


class _ConsumerThread(AgentConsumerThread):
    async def on_start(self) -> None:
        await super().on_start()
        coordinator = self._ensure_consumer()._coordinator
        # After this time without a fetch, aiokafka leaves the group and does not join again. A worker without plain
        # agents or without partitions fetches nothing here. The watchdog looks for code that hangs.
        coordinator._max_poll_interval = math.inf
        listen_to_heartbeats(coordinator, self.app.streams.on_heartbeat)

    def on_refused(self, error: StreamsError) -> None:
        self.app.streams.on_fenced(error)


class _Consumer(AgentConsumer):
    RebalanceListener = _RebalanceListener

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def _set_active_tps(self, tps: set[TP]) -> Any:
        return super()._set_active_tps(self._plain(tps))

    def resume_partitions(self, tps: Any) -> None:
        super().resume_partitions(self._plain(tps))

    def _plain(self, tps: Any) -> set[TP]:
        ours = self.app.streams.is_source
        return {tp for tp in tps if not ours(tp.topic)}

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await self.app.streams.on_revoked()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        await super().on_partitions_assigned(assigned, generation_id)
        if not self.app.should_stop:
            await self.app.streams.on_assigned(assigned, generation_id)

    def verify_event_path(self, now: float, tp: TP) -> None:
        if not self.app.streams.is_source(tp.topic):
            super().verify_event_path(now, tp)


class StreamsTransport(AgentTransport):
    Consumer: ClassVar[Any] = _Consumer
