"""`WorkerView`: the questions that can be asked of a worker: its state, its tasks, its tables and their rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from streamapp._base.partitioning import partition_for
from streamapp.broker.removed_records import RemovedRange
from streamapp.errors import InvalidStoreError
from streamapp.records import TopicPartition
from streamapp.runners.worker.commands import QueueClosed
from streamapp.runners.worker.dataplane import DataPlane
from streamapp.runners.worker.drop_counts import DropCounts
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.membership import FaustMembership
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import RestoreProgress
from streamapp.runners.worker.status import (
    InputInfo,
    RestoreInfo,
    StandbyInfo,
    TableInfo,
    TaskInfo,
    WorkerState,
)
from streamapp.runners.worker.topics import Topics
from streamapp.runners.worker.watchdog import Watchdog
from streamapp.serdes.placing import placing_bytes
from streamapp.state.directory import StateDirectory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["StoreNotAvailable", "WorkerView"]

R = TypeVar("R")


class StoreNotAvailable(InvalidStoreError):
    """This worker cannot read a store now, for example because another worker has it, or because of a restore."""


class WorkerView:
    """The part of ``app.streams`` that answers questions about its worker: state, tasks, tables and their rows.

    Any thread may ask at any time, and gets the answer at once. Only `read` waits for the data plane, because a store
    may be read only between two turns.
    """

    def __init__(self, app: Any, plan: Plan) -> None:
        self.plan = plan
        self._app = app
        self._membership = FaustMembership(app)
        self._drop_counts = DropCounts(plan)
        self._sources: Mapping[int, tuple[str, ...]] = {
            sub.id: sub.source_topics for sub in plan.subtopologies
        }
        self._failure: BaseException | None = None
        self._stopping = False
        # These parts exist once the worker has started.
        self._topics: Topics | None = None
        self._plane: DataPlane | None = None
        self._global_stores: GlobalStores | None = None
        self._directory: StateDirectory | None = None
        self._watchdog: Watchdog | None = None
        self._heard_at = time.monotonic()
        """The sending of the last request with which the group has confirmed this worker's membership."""

    # Status.

    @property
    def state(self) -> WorkerState:
        plane = self._plane
        if self.failure is not None:
            return "failed"
        if self._stopping:
            return "stopping"
        if plane is None or self._global_stores is None or not self._global_stores.ready:
            return "starting"
        if self._stuck:
            return "stuck"
        if plane.suspended:
            return "rebalancing"
        tasks = list(plane.tasks.values())
        begun = not (plane.reopening or self._app.tables.restoring) and all(live.running for live in tasks)
        return "running" if begun else "restoring"

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the worker, or that prevented its last commit."""
        return self._failure or (None if self._plane is None else self._plane.failure)

    @property
    def reason(self) -> str | None:
        """The reason why the worker has failed or is stuck, or the partitions for whose leaders the worker waits. None:
        the worker works, and all partitions have leaders."""
        failure = self.failure
        if failure is not None:
            return f"{type(failure).__name__}: {failure}"
        return self._stuck or self._leaderless

    @property
    def _leaderless(self) -> str | None:
        plane = self._plane
        waiting = () if plane is None else (plane.restorer.leaderless, plane.tasks.leaderless)
        tables = None if self._global_stores is None else self._global_stores.leaderless
        agents = None if self._app._consumer is None else self._app._consumer.leaderless
        return "; ".join(filter(None, (tables, *waiting, agents))) or None

    @property
    def work(self) -> str | None:
        """The present work of the data plane, on which reads wait. None: the data plane does not run."""
        place = None if self._plane is None else self._plane.place()
        return None if place is None else place.what

    @property
    def _stuck(self) -> str | None:
        held_up = None if self._watchdog is None else self._watchdog.stuck
        rolled_back = None if self._plane is None else self._plane.progress.stuck
        out_of_date = None if self._global_stores is None else self._global_stores.stalled
        agents = None if self._app._consumer is None else self._app._consumer.stuck
        return held_up or rolled_back or self._copied or out_of_date or agents

    @property
    def _copied(self) -> str | None:
        """The reason why a worker with a copy of another worker's state folder gets no tasks. None: no other has it."""
        twin = self._app.assignor.twin
        if twin is None or self._directory is None:
            return None
        return (
            f"this worker gets no tasks, because the worker at {twin} has the same process id: the state folder of one "
            "is a copy of the other. Both would end each other's transactions. Stop this worker, delete the file "
            f"{self._directory.process_id_file}, and start the worker again. (If the other worker is this one before a "
            "restart, under another group_instance_id, the tasks come after session_timeout_ms.)"
        )

    @property
    def url(self) -> str:
        """The address under which other workers reach the views of this worker."""
        return str(self._app.conf.canonical_url)

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of all workers of the application, as of the last assignment."""
        return tuple(sorted(self._app.assignor.external_topics_metadata()))

    @property
    def source_topics(self) -> Mapping[int, tuple[str, ...]]:
        """Sub-topology -> the topics that it reads. Topics of patterns are known once the worker has started."""
        return self._sources

    @property
    def paused(self) -> bool:
        return self._plane is not None and self._plane.paused

    @property
    def processed(self) -> int:
        """Records that were processed since the worker started."""
        return 0 if self._plane is None else self._plane.processed

    @property
    def dropped_records(self) -> dict[str, int]:
        """The number of records that each task has dropped here since the worker started.

        Reasons are, for example, a late record, a null key or an exception handler. A record that two operators drop
        counts twice. Null keys before a repartition topic do not count, as in Kafka Streams.

        Tasks that have moved to other workers keep their numbers. Records of global stores count under the task
        "-1_-1".
        """
        dropped = {} if self._plane is None else self._plane.tasks.dropped_records
        if self.plan.global_stores and self._global_stores is not None:
            dropped["-1_-1"] = self._global_stores.state.dropped_records
        return dropped

    @property
    def lost_records(self) -> dict[str, int]:
        """The number of records that each task has lost here since the worker started.

        Each record of `dropped_records` counts once, although several operators may drop the record. Answers of a
        foreign-key join that are superseded do not count.
        """
        lost = {} if self._plane is None else self._plane.tasks.lost_records
        if self.plan.global_stores and self._global_stores is not None:
            lost["-1_-1"] = self._global_stores.state.lost_records
        return lost

    @property
    def drops(self) -> dict[tuple[str, str, str], int]:
        """Dropped records since the worker started, by task, operator (or store) and reason.

        Each task has entries with 0 before its first drop, except for records that failed. The counts go on if a task
        leaves the worker and comes back. If only the store of an operator has a name, the entry has the name of the
        store.
        """
        drops = (
            {}
            if self._plane is None
            else self._drop_counts.of(list(self._plane.tasks), self._plane.tasks.drops)
        )
        if self.plan.global_stores and self._global_stores is not None:
            drops |= {("-1_-1", *where): count for where, count in self._global_stores.state.drops.items()}
        return drops

    @property
    def dropped_results(self) -> int:
        """Results since the worker started that brokers refused and ``production_exception_handler`` dropped."""
        return 0 if self._plane is None else self._plane.tasks.dropped_results

    @property
    def commits(self) -> int:
        return 0 if self._plane is None else self._plane.commits

    @property
    def tasks(self) -> dict[str, TaskInfo]:
        """The tasks of this worker, by id."""
        if self._plane is None:
            return {}
        return {str(live.id): self._task_info(self._plane, live) for live in list(self._plane.tasks.values())}

    def _task_info(self, plane: DataPlane, live: LiveTask) -> TaskInfo:
        positions, buffered = live.positions, dict(live.task.buffered)
        inputs = []
        for tp in live.inputs:
            waiting, position = buffered.get(tp, 0), positions.get(tp)
            if not waiting and position is not None:
                position = max(position, plane.fetcher.read_up_to(tp))
            end, behind_others = plane.fetcher.ends.get(tp), plane.fetcher.behind_others(tp)
            inputs.append(InputInfo(tp, position, end, waiting, behind_others))
        restoring = tuple(_restore_info(each) for each in plane.restorer.progress if each.task is live)
        return TaskInfo(
            str(live.id),
            live.id.subtopology,
            live.id.partition,
            live.running,
            live.task.metrics.processed,
            tuple(inputs),
            restoring,
            tuple(parking.parked for parking in list(live.task.parkings.values())),
        )

    @property
    def global_inputs(self) -> tuple[InputInfo, ...]:
        """The partitions of the global topics, which every worker reads."""
        return () if self._global_stores is None else self._global_stores.inputs

    @property
    def agent_inputs(self) -> tuple[InputInfo, ...]:
        """The partitions that agents read, which belong to no task."""
        agents = self._app._consumer
        return () if agents is None else agents.inputs

    @property
    def missing_topics(self) -> Sequence[str]:
        """The topics that this worker reads, and that brokers have not told."""
        agents = self._app._consumer
        return () if agents is None else agents.missing_topics

    @property
    def unread(self) -> frozenset[str]:
        """The topics that tasks of the group's leader read, and this worker does not (`StreamsAssignor.unread`)."""
        return self._app.assignor.unread  # type: ignore[no-any-return]

    @property
    def agents_wait_for(self) -> str | None:
        """The address of the leader, while the leader's agents need other topics and the agents here wait."""
        waits_for: str | None = self._app.assignor.waits_for
        return waits_for

    @property
    def agent_failed_records(self) -> dict[str, tuple[int, int]]:
        """`AgentConsumer.failed_records`."""
        agents = self._app._consumer
        return {} if agents is None else agents.failed_records

    @property
    def removed_records(self) -> dict[TopicPartition, RemovedRange]:
        """Records of tasks, global tables and agents that brokers had removed before this worker could read them."""
        tasks = None if self._plane is None else self._plane.fetcher
        found: dict[TopicPartition, RemovedRange] = {}
        for reader in (tasks, self._global_stores, self._app._consumer):
            if reader is not None:
                found |= reader.removed.found
        return found

    @property
    def standbys(self) -> dict[str, StandbyInfo]:
        """The copies of other workers' tasks that this worker keeps warm, by task id."""
        if self._plane is None:
            return {}
        standbys = self._plane.standbys
        progress = standbys.progress
        return {
            str(id): StandbyInfo(
                str(id),
                id.subtopology,
                id.partition,
                id in standbys.warmups,
                tuple(_restore_info(each) for each in progress if each.task is live),
            )
            for id, live in list(standbys.tasks.items())
        }

    def tables(self) -> dict[str, TableInfo]:
        """All state stores of the topology, by name."""
        result = {}
        local = {} if self._plane is None else dict(self._plane.tasks)
        for name, sub in self.plan.store_subtopology.items():
            spec = sub.store(name)
            changelog = sub.changelog_topics.get(name)
            count = self._task_count(sub)
            result[name] = TableInfo(
                spec,
                changelog.name if changelog else None,
                self._sources[sub.id],
                count,
                frozenset(id.partition for id in local if id.subtopology == sub.id),
                {partition: self._owner(sub, partition) for partition in range(count)},
                {
                    partition: self._app.assignor.copies_of(TaskId(sub.id, partition))
                    for partition in range(count)
                },
            )
        for store in self.plan.global_stores:
            result[store.name] = TableInfo(
                store.spec, store.topic, (store.topic,), 1, frozenset({0}), {0: self.url}, is_global=True
            )
        return result

    # Reads.

    def partition_for(self, store: str, key: bytes) -> int:
        """The partition of a store to which a key belongs; 0 for a global store.

        ``key`` has the bytes that the store's key serde writes. The keys of a window or session store are without their
        windows.
        """
        if self._is_global(store):
            return 0
        sub = self._subtopology(store)
        count = self._task_count(sub)
        if not count:
            raise StoreNotAvailable(f"the store {store} has no partitions yet: the worker is starting")
        return partition_for(placing_bytes(sub.store(store).key_serde, key), count)

    def owner(self, store: str, key: bytes) -> tuple[int, str | None, bool]:
        """A key's partition, the URL of the worker that has it (None: no worker), and True if this worker has it."""
        partition = self.partition_for(store, key)
        if self._is_global(store):
            return partition, self.url, True
        sub = self._subtopology(store)
        local = self._plane is not None and TaskId(sub.id, partition) in self._plane.tasks
        return partition, self._owner(sub, partition), local

    async def read(
        self,
        store: str,
        partition: int | None,
        fn: Callable[[Any], R],
        *,
        stale: bool = False,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> R:
        """The result of ``fn(store)``. The data plane calls ``fn`` between two turns, so no batch is half done.

        ``partition`` may be None for a global store, and if this worker has just one partition of the store. ``fn``
        must be quick, and must not keep the store.

        Raises `StoreNotAvailable` when the partition is not here, and when the worker starts or has stopped. The same
        error comes during a restore or a rebalance, and when the group has not answered for ``session_timeout_ms``.
        With ``stale``, a standby or a task in a restore also answers, even during a rebalance (KIP-535). `standbys` and
        `tasks` have the lag of these copies. Raises `InvalidStoreError` for an unknown store.

        ``at_least`` has positions of inputs: partition of a topic -> the next offset, as in `tasks`. If the worker has
        not processed all records before these offsets, the read raises `StoreNotAvailable`. To see the effect of a
        record of its own, a caller gives the record's offset + 1. The read looks only at inputs of the same partition
        number as the store. Raises `InvalidStoreError` for a topic that the tasks of the store do not read.
        (``PositionBound`` of Kafka Streams, KIP-796)
        """
        plane, global_stores = self._plane, self._global_stores
        if plane is None or global_stores is None:
            raise StoreNotAvailable("the worker is starting")
        if self._is_global(store):
            if at_least:
                _check_topics(
                    store, at_least, [each.topic for each in self.plan.global_stores if each.name == store]
                )

            def read() -> R:
                if at_least:
                    _refuse_behind(store, global_stores.inputs, at_least)
                return fn(global_stores.state.stores[store])

            answer = plane.call(read)
        else:
            sub = self._subtopology(store)
            if at_least:
                _check_topics(store, at_least, self._sources[sub.id])
            answer = plane.call(lambda: self._local(plane, sub, store, partition, stale, at_least).ask(fn))
        try:
            return await asyncio.wrap_future(answer)
        except QueueClosed as exc:
            raise StoreNotAvailable(str(exc)) from exc

    def _local(
        self,
        plane: DataPlane,
        sub: Subtopology,
        store: str,
        partition: int | None,
        stale: bool,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> Any:
        if not stale:
            if plane.suspended:
                raise StoreNotAvailable("the worker is rebalancing")
            silent = time.monotonic() - self._heard_at
            if silent > self.plan.config.session_timeout_ms / 1000:
                raise StoreNotAvailable(
                    f"the consumer group has not answered for {silent:.0f} s: other workers may have the tasks by now"
                )
        held = {**plane.standbys.tasks, **plane.tasks} if stale else plane.tasks
        here = [live for live in held.values() if live.id.subtopology == sub.id]
        wanted = [live for live in here if partition is None or live.id.partition == partition]
        if len(wanted) != 1:
            has = ", ".join(str(live.id.partition) for live in here) or "none"
            which = "name one partition" if partition is None else f"partition {partition} is not here"
            raise StoreNotAvailable(f"store {store}: {which}; this worker has {has}")
        (live,) = wanted
        if not live.running and not stale:
            raise StoreNotAvailable(f"partition {live.id.partition} of {store} is being restored")
        if at_least:
            if not live.running:
                raise StoreNotAvailable(
                    f"partition {live.id.partition} of {store} is a copy here, whose input positions are not "
                    "known: ask the owner"
                )
            _refuse_behind(store, self._task_info(plane, live).inputs, at_least)
        return live.task.store(store)

    def _is_global(self, store: str) -> bool:
        return any(each.name == store for each in self.plan.global_stores)

    def _subtopology(self, store: str) -> Subtopology:
        try:
            return self.plan.store_subtopology[store]
        except KeyError:
            names = [*self.plan.store_subtopology, *(each.name for each in self.plan.global_stores)]
            raise InvalidStoreError(
                f"there is no store {store!r}; there are {', '.join(sorted(names)) or 'none'}"
            ) from None

    def _task_count(self, sub: Subtopology) -> int:
        return 0 if self._topics is None else self._topics.task_count(sub)

    def _decisive(self, topics: Sequence[str]) -> Sequence[str]:
        """The topics, among those of a sub-topology, whose partitions belong to the worker that has the task."""
        placed = self._app.assignor.placed
        return [topic for topic in topics if topic in placed] or topics

    def _owner(self, sub: Subtopology, partition: int) -> str | None:
        for topic in self._decisive(self._sources[sub.id]):
            url = self._membership.owner(TopicPartition(topic, partition))
            if url is not None:
                return url
        return None


def _restore_info(each: RestoreProgress) -> RestoreInfo:
    queued = each.started is None
    return RestoreInfo(each.store, each.partition, each.start, each.position, each.end, each.rate, queued)


def _check_topics(store: str, at_least: Iterable[TopicPartition], topics: Collection[str]) -> None:
    """Raises `InvalidStoreError` if a position is that of a topic that no task with the store reads."""
    for tp in at_least:
        if tp.topic not in topics:
            raise InvalidStoreError(
                f"no task with the store {store} reads {tp.topic}, so its position says nothing; "
                f"the tasks read {', '.join(sorted(topics)) or 'no topic'}"
            )


def _refuse_behind(store: str, inputs: Iterable[InputInfo], at_least: Mapping[TopicPartition, int]) -> None:
    """Raises `StoreNotAvailable` if an input has not reached the position that the caller of a read wants."""
    for each in inputs:
        wanted = at_least.get(each.partition, 0)
        if (each.position or 0) < wanted:
            raise StoreNotAvailable(
                f"store {store} has the records of {each.partition} before offset {each.position or 0}, and the read "
                f"wants those before offset {wanted}: ask again"
            )
