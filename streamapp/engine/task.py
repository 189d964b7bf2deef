"""`Task`: one sub-topology on one partition. It decides; it does no I/O, reads no clock and starts no thread.

A `TaskSession` makes the task and calls the steps of its life in their order. Between `init` and `close` a runner hands over
batches of records (`Task.enqueue`) and lets the task work (`Task.process`).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from streamapp.engine.asynchronous import AsyncSteps
from streamapp.engine.bind import bind_nodes
from streamapp.engine.collector import Collector
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.failures import Failures
from streamapp.engine.metadata import RememberedTimes
from streamapp.engine.operator import Parking, ProcessFn
from streamapp.engine.processor import Processor, ProcessorContext
from streamapp.engine.punctuation import Schedule
from streamapp.engine.punctuators import Punctuators
from streamapp.engine.queues import RecordQueue
from streamapp.engine.record_loop import RecordLoop
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.engine.running_task import TaskMetrics
from streamapp.engine.task_stores import TaskStores
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import Headers, RecordBatch, TopicPartition, batch_bytes
from streamapp.state.backend import StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Subtopology

__all__ = ["Task"]


class Task(CurrentRecord):
    """One sub-topology on one partition, in an environment, over a backend with its state.

    ``inputs`` are the partitions that the task reads (default: its number in each of the sub-topology's topics). A runner opens
    a `TaskSession`, which makes the task.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        subtopology: Subtopology,
        partition: int,
        backend: StateBackend,
        inputs: Iterable[TopicPartition] | None = None,
    ) -> None:
        super().__init__()
        plan, rules = environment.plan, environment.rules
        self.plan = plan
        self.subtopology = subtopology
        self.partition = partition
        self.task_id: str = f"{subtopology.id}_{partition}"
        self.application_id: str = plan.application_id
        self.collector: Collector = environment.collector
        self.global_stores: Mapping[str, Any] = environment.global_stores
        self.wall_clock_ms: Callable[[], int] = environment.wall_clock_ms
        self.log_each_write: bool = rules.log_each_write
        self.retries_at_once: bool = rules.retries_at_once
        self.any_partition: bool = rules.any_partition
        self.foreign_key_join_recheck: bool = rules.always_recheck or plan.config.foreign_key_join_recheck
        self.metrics: TaskMetrics = TaskMetrics()
        self.commit_needed: bool = False
        self.commit_requested: bool = False

        self.stream_time: int = -1
        self.parkings: dict[str, Parking] = {}
        """The operators in which records may wait for a retry."""

        self.inputs: tuple[TopicPartition, ...] = (
            tuple(inputs)
            if inputs is not None
            else tuple(TopicPartition(t, partition) for t in subtopology.source_topics)
        )
        self._failures = Failures(self)
        self._async_steps = AsyncSteps(self, self._failures, environment.run_async)
        self._punctuators = Punctuators(self, self._failures, rules.refuse_wall_clock)
        self.schedule: Callable[..., Schedule] = self._punctuators.schedule
        self._loop = RecordLoop(self, subtopology, self._failures, self._punctuators, rules.partition_group)
        self.positions: dict[TopicPartition, int] = self._loop.positions
        self.pass_over: Callable[[RecordQueue], None] = self._loop.pass_over
        self._processors: list[tuple[str, Processor, ProcessorContext]] = []
        self._shared: dict[str, Any] = {}
        self._times = RememberedTimes()
        cache = environment.cache
        if cache is None:
            cache = RecordCache(plan.config.statestore_cache_max_bytes)
        rows = environment.rows
        if rows is None:
            rows = RowMemory(plan.config.memory.rows)
        changelogs = environment.changelogs or environment.collector
        self._stores = TaskStores(subtopology, self, backend, changelogs, cache, rows)
        self.log: Callable[[str, bytes, bytes | None, int | None, Headers], None] = self._stores.log

    # ------------------------------------------------------------------ life

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records, in order, before `init`. Bytes go to the backend with the offset they reach."""
        self._stores.restore(store, batch)

    def init(self) -> None:
        """Creates the processors and their chain; from now on records can be processed."""
        self._loop.open(bind_nodes(self.subtopology.nodes, self, self._failures), self.inputs)
        # They were bound children first; their punctuators are called in the order of the topology.
        order = {node.name: number for number, node in enumerate(self.subtopology.nodes)}
        self._processors.sort(key=lambda processor: order[processor[0]])
        for name, processor, context in self._processors:
            try:
                processor.init(context)
            except StreamsError as error:
                raise StreamsError(f"failed to initialize processor {name}: {error}") from error

    def close(self) -> None:
        """Closes processors and the backend. What was not persisted is dropped: it was not committed either."""
        self._async_steps.cancel()
        for _, processor, _ in self._processors:
            processor.close()
        self._processors.clear()
        self._stores.close()

    # ------------------------------------------------------------------ records

    def enqueue(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Buffers records of one input partition; keeps references, copies nothing."""
        # Nothing waits in a task that takes all there is.
        size = batch_bytes(batch) if self.holds_back else 0
        self._loop.enqueue(partition, batch, size)

    @property
    def buffered(self) -> dict[TopicPartition, int]:
        """How many records wait, by input partition."""
        return {partition: queue.size for partition, queue in self._loop.queues.items()}

    @property
    def buffered_bytes(self) -> dict[TopicPartition, int]:
        """Roughly the bytes that wait, by input partition; 0 in tasks that need not wait."""
        return {partition: queue.bytes for partition, queue in self._loop.queues.items()}

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Notes that an input has nothing to process before ``offset``, the next one to read.

        Behind the last record are markers of transactions, records of aborted ones, and gaps that compaction has left. All
        records before ``offset`` have to be processed.
        """
        self.positions[partition] = offset
        self.commit_needed = True

    def process(
        self, max_records: int = sys.maxsize, caught_up: Collection[TopicPartition] | None = None
    ) -> int:
        """Processes buffered records, lowest timestamp first over the inputs; returns how many.

        An input without buffered records holds the others back until it is in ``caught_up`` (and ``max_task_idle_ms`` has
        passed since), so that a join sees its sides in the order of time. None: nothing is waited for.
        Raises `StreamsError` for a record that cannot be handled; what was processed before it counts.

        Records in asynchronous steps whose calls are done go on first; as long as these steps are full, no others are taken.
        """
        steps = self._async_steps
        if not steps:
            return self._take(max_records, caught_up)
        done = 0
        steps.emit()
        while done < max_records and (room := steps.room) > 0:
            taken = self._take(min(room, max_records - done), caught_up)
            if not taken:
                break
            done += taken
        steps.start()
        return done

    def _take(self, max_records: int, caught_up: Collection[TopicPartition] | None) -> int:
        if not self.parkings:
            return self._loop.take(max_records, caught_up)
        done = 0
        while done < max_records and (room := min(parking.room for parking in self.parkings.values())) > 0:
            taken = self._loop.take(min(room, max_records - done), caught_up)
            if not taken:
                break
            done += taken
        return done

    # ------------------------------------------------------------------ asynchronous steps

    @property
    def asynchronous(self) -> bool:
        """Whether it has steps in which records wait for coroutines."""
        return bool(self._async_steps)

    @property
    def holds_back(self) -> bool:
        """Whether records may wait in front of it: for another input, a coroutine, or a retry."""
        return len(self.inputs) > 1 or self.asynchronous or bool(self.parkings)

    @property
    def pending(self) -> int:
        """Records that are in asynchronous steps. A commit has to wait until there are none: ``process(0)`` lets those go on
        that are done, and takes no others."""
        return self._async_steps.pending

    def add_async_step(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """Adds a step; returns the function that takes its records."""
        return self._async_steps.add(name, call, forward, **limits)

    # ------------------------------------------------------------------ time

    def punctuate_wall_clock(self, now_ms: int) -> bool:
        """Calls the wall-clock punctuators that are due; returns whether there were any."""
        due = self._punctuators.by_wall_clock
        return now_ms >= due.next_time and self._punctuators.call_due(due, now_ms)

    # ------------------------------------------------------------------ commit

    def flush(self) -> None:
        """Caches emit what they hold back, and the changelog records of this commit go to the collector.

        Raises `StreamsError` while records are `pending`: what is committed has come out of the task.
        """
        if self.pending:
            raise StreamsError(
                f"task {self.task_id} cannot be committed: {self.pending} records are under way"
            )
        self._stores.flush()

    def persist(self, changelog_offsets: Mapping[TopicPartition, int]) -> None:
        """After the commit has succeeded: state and changelog offsets go to the backend in one write.

        ``changelog_offsets`` has the next offset of each changelog partition that was written to.
        """
        self._stores.persist(changelog_offsets, self.positions)
        self.commit_needed = self.commit_requested = False

    @property
    def dirty_bytes(self) -> int:
        """Roughly how much uncommitted state is buffered; a runner commits early when it grows large."""
        return self._stores.dirty_bytes

    @property
    def changelog_offsets(self) -> dict[str, int]:
        """Store name -> next changelog offset that the local state has; stores that start empty are not in it."""
        return self._stores.changelog_offsets

    @property
    def commit_metadata(self) -> dict[TopicPartition, str]:
        """What belongs into the metadata of the committed offsets: times that no changelog holds, in Kafka Streams'
        own encoding. Without it a restarted task would take late records that it had dropped before."""
        return {
            partition: self._times.encode(queue.partition_time)
            for partition, queue in self._loop.queues.items()
            if partition in self.positions
        }

    def continue_from(self, metadata: Mapping[TopicPartition, str]) -> None:
        """Takes the committed offsets' metadata of an earlier task; before `init`."""
        for partition, text in metadata.items():
            time = self._times.recall(text)
            self._loop.partition_times[partition] = time
            self.stream_time = max(self.stream_time, time)

    # ------------------------------------------------------------------ what stores and operators use

    def store(self, name: str) -> Any:
        """A store of this task, or a global store, for reads between calls of `process`."""
        store = self._stores.by_name.get(name)
        if store is None:
            store = self.global_stores.get(name)
        if store is None:
            known = ", ".join([*self._stores.by_name, *self.global_stores]) or "none"
            raise InvalidStoreError(f"task {self.task_id} has no store {name}; it has {known}")
        return store

    @property
    def own_stores(self) -> Mapping[str, Any]:
        """The task's stores by name."""
        return self._stores.by_name

    def drop(self, count: int, where: str, reason: str, *, in_total: bool = True) -> None:
        if in_total:
            self.metrics.dropped_records += count
        self.metrics.drops[where, reason] += count
        if reason in self.plan.config.dead_letter_drops:
            self._failures.dropped(where, reason)

    def add_parking(self, name: str, parking: Parking) -> None:
        self.parkings[name] = parking

    def remember(self, name: str, read: Callable[[], int]) -> int:
        return self._times.remember(name, read)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, to be initialized with the task and closed with it."""
        self._processors.append((name, processor, context))
