"""`RuntimeSource`: gives the views the state of a running worker (a `ViewSource`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from streamapp.consumer.account import ConsumerStatus
from streamapp.records import TopicPartition
from streamapp.runners.worker.runtime import StreamsRuntime
from streamapp.runners.worker.status import InputInfo, RestoreInfo, TaskInfo
from streamapp.runners.worker.status import TableInfo as StoreInfo
from streamapp.runners.worker.view import StoreNotAvailable
from streamapp.web.plan_graph import subtopology_graphs
from streamapp.web.view_source import (
    InputStatus,
    NotAvailable,
    RestoreStatus,
    StandbyStatus,
    TableInfo,
    TaskStatus,
    TopologyGraph,
    WorkerStatus,
)

__all__ = ["RuntimeSource", "input_status"]

R = TypeVar("R")


class RuntimeSource:
    """The views of ``app.streams`` and of the application's consumers."""

    def __init__(
        self, streams: StreamsRuntime, consumers: Callable[[], Sequence[ConsumerStatus]] = tuple
    ) -> None:
        self._streams, self._consumers = streams, consumers
        self.application_id: str = streams.plan.application_id

    def status(self) -> WorkerStatus:
        streams = self._streams
        tasks = tuple(
            _task(task)
            for task in sorted(streams.tasks.values(), key=lambda task: (task.subtopology, task.partition))
        )
        standbys = tuple(
            StandbyStatus(each.id, each.partition, each.warmup, tuple(map(_restore, each.stores)))
            for each in sorted(streams.standbys.values(), key=lambda each: (each.subtopology, each.partition))
        )
        return WorkerStatus(
            streams.state,
            streams.reason,
            streams.url,
            tasks,
            standbys,
            streams.paused,
            streams.workers,
            streams.dropped_records,
            streams.dropped_results,
            streams.drops,
            self._consumers(),
            tuple(map(input_status, streams.global_inputs)),
            tuple(map(input_status, streams.agent_inputs)),
            agent_failed_records=streams.agent_failed_records,
            agents_wait_for=streams.agents_wait_for,
            missing_topics=streams.missing_topics,
            unread=streams.unread,
            has_tasks=bool(streams.plan.subtopologies),
            lost_records=streams.lost_records,
            processed=streams.processed,
            work=streams.work,
            removed_records=streams.removed_records,
        )

    def topology(self) -> TopologyGraph:
        return self._topology

    @cached_property
    def _topology(self) -> TopologyGraph:
        topology = self._streams.topology
        return TopologyGraph(
            topology.describe(), topology.to_mermaid(), subtopology_graphs(self._streams.plan)
        )

    def tables(self) -> Mapping[str, TableInfo]:
        plan = self._streams.plan
        owner = {name: sub.id for name, sub in plan.store_subtopology.items()}
        return {name: _table(info, owner.get(name)) for name, info in self._streams.tables().items()}

    def partition_for(self, table: str, key: bytes) -> int:
        try:
            return self._streams.partition_for(table, key)
        except StoreNotAvailable as error:
            raise NotAvailable(str(error)) from error

    async def read(
        self,
        table: str,
        partition: int,
        fn: Callable[[Any], R],
        *,
        stale: bool = False,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> R:
        try:
            return await self._streams.read(table, partition, fn, stale=stale, at_least=at_least)
        except StoreNotAvailable as error:
            raise NotAvailable(str(error)) from error

    def pause(self) -> None:
        try:
            self._streams.pause()
        except StoreNotAvailable as error:
            raise NotAvailable(str(error)) from error

    def resume(self) -> None:
        try:
            self._streams.resume()
        except StoreNotAvailable as error:
            raise NotAvailable(str(error)) from error


def _task(task: TaskInfo) -> TaskStatus:
    return TaskStatus(
        task.id,
        task.partition,
        "running" if task.running else "restoring",
        task.processed,
        tuple(map(input_status, task.inputs)),
        tuple(map(_restore, task.restoring)),
        task.parked,
    )


def input_status(each: InputInfo) -> InputStatus:
    """An input of the worker as the views see it."""
    return InputStatus(*each.partition, each.position, each.end, each.buffered, each.behind_others)


def _restore(each: RestoreInfo) -> RestoreStatus:
    return RestoreStatus(each.store, *each.partition, each.start, each.position, each.end, each.queued)


def _table(info: StoreInfo, subtopology: int | None) -> TableInfo:
    spec = info.spec
    return TableInfo(
        spec.name,
        spec.kind,
        info.topic,
        spec.key_serde,
        spec.value_serde,
        owners=info.owners,
        local=info.local,
        subtopology=subtopology,
        is_global=info.is_global,
        is_internal=spec.internal,
        standbys=info.standbys,
        inputs=info.source_topics,
    )
