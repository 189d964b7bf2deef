"""`StreamsRuntime`: the topology inside a Faust application, with its control plane and its data plane."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException

from streamapp._base.counted import counted
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ProcessorStateError, StreamsError, TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.topic_ids import TopicIds
from streamapp.runners.worker import pattern_topics
from streamapp.runners.worker.assignor import RUNNING
from streamapp.runners.worker.cleanup import StateCleaner
from streamapp.runners.worker.clients import PATIENCE_SECONDS, admin_client, await_brokers
from streamapp.runners.worker.dataplane import DataPlane
from streamapp.runners.worker.demands import check_file_limit, check_letters, check_timeouts
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.group import wait_until_free
from streamapp.runners.worker.introduction import introduction
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import TaskOpener
from streamapp.runners.worker.membership import Member
from streamapp.runners.worker.offsets import changelog_ends, offsets_on_disk
from streamapp.runners.worker.pattern_topics import PatternTopics
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.producer import RecordProducer
from streamapp.runners.worker.topics import Topics, offset_check, prepare_topics
from streamapp.runners.worker.view import StoreNotAvailable, WorkerView
from streamapp.runners.worker.watchdog import EventLoopPlace, HangingError, Place, Watchdog, end_after
from streamapp.state.directory import StateDirectory
from streamapp.state.row_memory import RowMemory
from streamapp.topology import Plan, Topology
from streamapp.topology.compat import Need, compare_topologies
from streamapp.topology.snapshot import snapshot

__all__ = ["StreamsRuntime"]

logger: logging.Logger = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class StreamsRuntime(WorkerView):
    """The object ``app.streams``, which starts and stops the data plane and tells it the group's assignments."""

    _frozen: ClassVar[bool] = False
    """True after a worker of this process has hidden objects from the garbage collector."""

    def __init__(
        self,
        app: Any,
        topology: Topology,
        plan: Plan,
        *,
        listeners: ListenerCalls | None = None,
        shutdown_timeout: float = 30.0,
    ) -> None:
        super().__init__(app, plan)
        check_timeouts(self.plan)
        check_letters(self.plan)
        self.topology = topology
        self.config: StreamsConfig = app.config
        self._listeners = listeners or ListenerCalls()
        self._shutdown_timeout = shutdown_timeout
        self._admin: LastingAdmin | None = None
        self.process_id: str | None = None
        """The id in the state folder of this worker (`StateDirectory.process_id`). None before the start."""
        self._on_disk: dict[TaskId, int] = {}
        self._beside: list[asyncio.Task[None]] = []
        """Asyncio tasks beside the data plane, for as long as the worker runs."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeats = 0
        self._source_names = frozenset(topic for topics in self._sources.values() for topic in topics)

    # Life.

    async def start(self) -> None:
        """Checks the topics, creates missing internal topics, and starts the data plane.

        Raises `BrokerError`, `TopologyError` and other `StreamsError`.
        """
        self._loop = asyncio.get_running_loop()
        state = Path(self.config.state_dir, self.config.application_id)
        logger.info("%s", introduction(self._app, state))
        check_file_limit(1)
        self._directory = StateDirectory(self.config.state_dir, self.plan.application_id)
        self._directory.check_plan(self.plan.fingerprint, snapshot(self.plan), self._changes_since)
        admin = self._admin = admin_client(self.config)
        await await_brokers(self.config, admin)
        topics = await self._loop.run_in_executor(None, prepare_topics, self.plan, admin)
        await self._loop.run_in_executor(None, wait_until_free, self.plan.application_id, admin)
        self._take(topics)
        self._membership.subscribe(self._source_names)
        self._check_files(topics)
        stores = {
            topic.name: name
            for sub in self.plan.subtopologies
            for name, topic in sub.changelog_topics.items()
        }
        watched = {*self._source_names, *stores}
        ids = await self._loop.run_in_executor(None, topics.ids_of, admin, watched)
        # Without stores, no row is in the wrong partition after a topic has got more partitions.
        of_stores = {
            topic for sub in self.plan.subtopologies if sub.stores for topic in topics.sources[sub.id]
        }
        self._directory.check_topics(
            {topic: topics.partitions[topic] for topic in sorted(of_stores)},
            {topic: ids[topic] for topic in stores if topic in ids},
        )
        self._on_disk = await self._loop.run_in_executor(
            None, offsets_on_disk, self.plan, topics, admin, self._directory
        )
        self.process_id = self._directory.process_id()
        transactional_id = f"{self.plan.application_id}-{self.process_id}"
        ledger = RecordProducer(self.config, topics.partitions, transactional_id, stores)
        # Brokers refuse a second producer to a user who may write to no topic (KIP-679).
        one = self.config.exactly_once or not self.plan.writes
        outputs = ledger if one else RecordProducer(self.config, topics.partitions)
        rows = RowMemory(self.config.memory.rows)
        self._global_stores = GlobalStores(self.plan, admin, topics, rows, self._listeners)
        patterns = PatternTopics(self.plan, admin, topics)
        topic_ids = TopicIds(admin, watched, ids)
        topic_ids.watch_only(watched, patterns.found)
        opener = TaskOpener(
            self.plan,
            topics,
            outputs,
            ledger,
            self._global_stores.state.stores,
            self._directory,
            rows,
            self._run_async,
            ids,
        )
        self._plane = DataPlane(
            self.config,
            admin,
            outputs,
            ledger,
            self._membership,
            self._global_stores,
            self._listeners,
            topic_ids,
            opener,
            self._on_failure,
            self.plan.offset_reset,
            topics.first_new,
            lambda found: offset_check(self.plan, admin, PATIENCE_SECONDS).check_outside(
                found, patterns.topics.partitions, patterns.topics.from_outside
            ),
            {topic.name for sub in self.plan.subtopologies for topic in sub.repartition_topics},
        )

        def take(changed: Topics) -> None:
            patterns.topics = opener.topics = changed
            self._take(changed)
            ids.update(changed.ids)
            topic_ids.watch_only(self._source_names | stores.keys(), patterns.found)

        # The objects that exist by now stay. The garbage collector need not visit them while records are processed.
        if StreamsRuntime._frozen:
            gc.unfreeze()  # otherwise the clients of earlier workers of this process would stay, too
        StreamsRuntime._frozen = True
        gc.collect()
        gc.freeze()
        gc.set_threshold(150_000, 20, 50)  # docs/decisions/record-cache.md
        self._plane.start()
        cleaner = StateCleaner(self._directory, self.config.state_cleanup_delay_ms)
        self._beside = [
            asyncio.create_task(self._clean_up(self._plane, cleaner)),
            asyncio.create_task(self._look_beside(self._plane)),
        ]
        if self.plan.pattern_sources:
            self._beside.append(asyncio.create_task(self._follow_patterns(self._plane, patterns, take)))
        limit = self.config.max_poll_interval_ms / 1000
        places = [self._plane.place, EventLoopPlace().place, self._group_place]
        self._watchdog = Watchdog(places, limit, self._on_hang)
        self._watchdog.start()

    async def stop(self) -> None:
        """Has the data plane commit and close all tasks.

        Gives the commit up after the shutdown time-out, or at once if the watchdog has ended the worker.
        """
        self._stopping = True
        if self._plane is None:
            if self._directory is not None:
                self._directory.close()
            return
        if self._failure is None:
            logger.info("stopping: commits what was processed, and gives the tasks up")
        for task in self._beside:
            task.cancel()
        if self._watchdog is not None:
            self._watchdog.close()
        future = self._plane.stop()
        if isinstance(self._failure, HangingError):
            self._plane.abandon()
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), self._shutdown_timeout)
        except Exception as exc:
            if self._failure is None:
                late = isinstance(exc, asyncio.TimeoutError)
                why = f"not done in {self._shutdown_timeout:g} s" if late else repr(exc)
                self._failure = (
                    exc
                    if isinstance(exc, StreamsError)
                    else StreamsError(f"the last commit failed ({why}): its records will be processed again")
                )
                logger.error("%s", self._failure)
            self._plane.abandon()
        await asyncio.get_running_loop().run_in_executor(None, self._plane.join, 5.0)
        if not self._plane.is_alive() and self._directory is not None:
            self._directory.close()
        if self._failure is None:
            logger.info("stopped: everything that was processed is committed")

    def _run_async(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _clean_up(self, plane: DataPlane, cleaner: StateCleaner) -> None:
        def clean() -> None:
            for id in cleaner.clean({*plane.tasks, *plane.standbys.tasks}):
                plane.tasks.left.pop(id, None)
                self._on_disk.pop(id, None)

        while not self._stopping:
            await asyncio.sleep(min(60.0, self.config.state_cleanup_delay_ms / 1000))
            try:
                await asyncio.wrap_future(plane.call(clean))
            except Exception as exc:
                logger.warning("the state of tasks that moved away could not be deleted: %r", exc)

    async def _look_beside(self, plane: DataPlane) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await loop.run_in_executor(None, plane.look_beside)
            except KafkaException as exc:
                logger.debug("the ends of the logs are not known: %s", exc)

    def _take(self, topics: Topics) -> None:
        self._topics = topics
        self._sources = dict(topics.sources)
        self._source_names = frozenset(topic for names in topics.sources.values() for topic in names)

    def _check_files(self, topics: Topics) -> None:
        check_file_limit(
            sum(
                topics.task_count(sub)
                for sub in self.plan.subtopologies
                if any(spec.persistent for spec in sub.stores)
            )
        )

    async def _follow_patterns(
        self, plane: DataPlane, patterns: PatternTopics, take: Callable[[Topics], None]
    ) -> None:
        """Changes the inputs of the tasks when topics come or go that only patterns name."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await asyncio.sleep(pattern_topics.LOOK_SECONDS)
            if not self._app.assignor.subscribed:
                continue  # the first join will subscribe to the topics of the start
            try:
                found = await loop.run_in_executor(None, patterns.look)
                if found is not None:
                    self._check_files(found)
            except (BrokerError, KafkaException) as exc:
                logger.warning("the topics that the patterns match are not known: %s", exc)
                continue
            except StreamsError as exc:
                self._on_failure(exc)
                return
            if found is None:
                continue
            await self._settle(plane.change_inputs(partial(take, found)))
            if patterns.topics is found:
                self._membership.subscribe(self._source_names)

    def _changes_since(self, written: Mapping[str, Any]) -> str:
        """The differences (as of `streamapp compat`) between this topology and the one that wrote the local state."""
        findings = compare_topologies(written, self.plan).findings
        return "\n".join(str(finding) for finding in findings if finding.need is not Need.NOTHING)

    def _on_failure(self, exc: BaseException) -> None:
        self._failure = exc
        expected = isinstance(exc, StreamsError)  # needs no traceback
        logger.critical("this worker ends: %s", exc, exc_info=None if expected else exc)
        assert self._loop is not None
        if not self._stopping:
            asyncio.run_coroutine_threadsafe(self._app.crash(exc), self._loop)

    def _on_hang(self, exc: HangingError) -> None:
        self._on_failure(exc)
        if self._app.in_worker:
            end_after(self._shutdown_timeout)

    def _group_place(self) -> Place | None:
        """The wait for the group, for the watchdog. The value stays the same until the group has answered.

        After a session time-out without an answer, other workers may have the tasks, so the tables of this worker may
        be out of date. The watchdog then makes the worker not ready.
        """
        if self._plane is None or self._plane.suspended:
            return None
        session = self.config.session_timeout_ms / 1000
        return Place("the consumer group's answer", self._heartbeats, None, can_hang=False, patience=session)

    # Events of the consumer group (called by Faust's consumer).

    def on_heartbeat(self, sent_at: float) -> None:
        """Notes that the group has answered this worker. The thread of the group's client calls this method."""
        self._heartbeats += 1
        self._heard_at = sent_at

    def on_fenced(self, exc: StreamsError) -> None:
        """Ends the worker, because the group refuses it, or because another process has its ``group_instance_id``.

        The thread of the group's client calls this method, so the worker's event loop does the rest.
        """
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_failure, exc)

    async def on_revoked(self) -> None:
        if self._plane is not None and not self._stopping:
            await self._settle(self._plane.revoke())

    async def on_assigned(self, assigned: Iterable[TopicPartition], generation: int) -> None:
        if self._plane is None or self._stopping or self._app.assignor.outdated:
            return  # after an outdated assignment, the next one decides
        if (conflict := self._app.assignor.conflict) is not None:
            self._on_failure(
                TopologyError(
                    f"tasks that read {conflict} have other stores or repartition topics in this version of the "
                    "application than in the version of the worker that leads the group, or other serdes of these. "
                    "Tables of each version would lack the records that workers of the other version process. Stop "
                    "all workers of the other version before this worker starts; `streamapp compat` compares two "
                    "versions"
                )
            )
            return
        if (copied := self._copied) is not None:
            logger.warning("%s", copied)
        owned = set(assigned)
        topics, names = self._topics, self._source_names  # the data plane's thread may replace both meanwhile
        assert topics is not None
        counts = {name: topics.partitions[name] for name in names & topics.partitions.keys()}
        grown = sorted(tp for tp in owned if tp.partition >= counts.get(tp.topic, math.inf))
        if grown:
            topic = grown[-1].topic
            self._on_failure(
                TopologyError(
                    f"the topic {topic} had {counted(counts[topic], 'partition')} when this worker started, and now "
                    f"has at least {grown[-1].partition + 1}. Restart the workers, which then check if the tables "
                    "still fit"
                )
            )
            return
        tasks = self._tasks_of(owned)
        self._heard_at = time.monotonic()
        member = Member(generation, self._membership.current().member_id)
        logger.info("generation %d: tasks %s", generation, ", ".join(map(str, sorted(set(tasks)))) or "none")
        self._plane.assign(member, set(tasks), dict(self._app.assignor.standbys))

    def _tasks_of(self, owned: Set[TopicPartition]) -> list[TaskId]:
        """The tasks whose partitions the leader of the group has placed here.

        The leader may not know all topics of a task, because another version runs there, or because a topic that a
        pattern matches is new. The partitions of such a topic decide nothing: another worker may have the same task.
        """
        topics = self._topics  # the data plane's thread may replace the object meanwhile
        assert topics is not None
        tasks = []
        for subtopology, names in topics.sources.items():
            decisive = self._decisive(names)
            for number in sorted({tp.partition for tp in owned if tp.topic in decisive}):
                of_task = {TopicPartition(t, number) for t in decisive if number < topics.partitions[t]}
                if owned >= of_task:
                    tasks.append(TaskId(subtopology, number))
        return tasks

    def rejoin(self) -> None:
        """Asks the group for a new assignment."""
        self._membership.rejoin()

    # Facts for the assignment (called by Faust's assignor, in the thread of the group's member).

    def task_offsets(self) -> dict[TaskId, int]:
        """Task -> the changelog offset of the task's state on this worker, summed over the task's stores.

        Standbys and state on disk count, too. A running task has the constant `RUNNING` instead of an offset. If the
        data plane closes a task meanwhile, the task has the offset from before, if there is one.
        """
        found = dict(self._on_disk)
        plane = self._plane
        if plane is not None:
            found.update(plane.tasks.left)
            for live in [*plane.standbys.tasks.values(), *plane.tasks.values()]:
                with suppress(ProcessorStateError):
                    found[live.id] = RUNNING if live.running else live.state_offset
        return found

    def warm_tasks(self) -> set[TaskId]:
        """The standbys of this worker that had caught up at the last look."""
        return set() if self._plane is None else self._plane.standbys.warm()

    def changelog_ends(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        """The ends of the changelogs of tasks with state."""
        if self._topics is None or self._admin is None:
            return {}
        return changelog_ends(self.plan, self._topics, self._admin, tasks)

    async def _settle(self, future: Future[None]) -> None:
        try:
            await asyncio.wrap_future(future)
        except Exception as exc:
            logger.debug("the data plane reports on its own: %r", exc)

    # Pausing (KIP-834).

    def pause(self) -> None:
        """Has the data plane commit, and then process no record of a task until `resume`.

        The method returns at once, before the commit. A paused worker stays in the group with its tasks, restores
        state, and keeps standbys and global tables up to date. Its tables can still be read. Punctuators pause, too,
        but agents go on. Each worker is paused on its own, and a restart ends a pause, as in Kafka Streams. Raises
        `StoreNotAvailable` before the worker has started.
        """
        self._started().pause()

    def resume(self) -> None:
        """Ends a `pause`. Raises `StoreNotAvailable` before the worker has started."""
        self._started().resume()

    def _started(self) -> DataPlane:
        if self._plane is None:
            raise StoreNotAvailable("the worker is starting")
        return self._plane

    # Questions of the control plane.

    def source_partitions(self) -> Mapping[str, int]:
        """The numbers of partitions of the topics that tasks read, as this worker knows them."""
        known = {} if self._topics is None else self._topics.partitions
        return {topic: known[topic] for topic in self._source_names & known.keys()}

    def is_source(self, topic: str) -> bool:
        return topic in self._source_names

    def may_read(self, topic: str) -> bool:
        """True if the topology reads the topic, or would read a topic of this name (`StreamsBuilder.stream` with a
        pattern)."""
        return self.is_source(topic) or self.plan.pattern_of(topic) is not None

    def is_leader(self) -> bool:
        """True in the worker that has the first task (partition 0 of the first sub-topology), except in a rebalance.

        At most one member of the group gives True. But a worker that the group has just expelled may not know yet, and
        still give True.
        """
        first = TaskId(min(self._sources, default=0), 0)
        return self._plane is not None and first in self._plane.tasks and not self._plane.suspended
