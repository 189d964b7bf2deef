"""`Task`: runs one sub-topology on one partition. A task starts no thread, and its only I/O is that of its state
backend. The runner does all other I/O, and gives the time.

A `TaskSession` creates the task and calls its methods in the right order. Between `init` and `close` a runner hands
over batches of records (`Task.enqueue`) and has them processed (`Task.process`).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from streamapp._base.counted import counted
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
from streamapp.engine.store_notes import EDITION, changelog_numbers, notes_differ, notes_for
from streamapp.engine.task_stores import TaskStores
from streamapp.engine.topic_notes import note_of_topics, noted_as_own
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import Headers, RecordBatch, TopicPartition, batch_bytes
from streamapp.state.backend import StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.topology.dead_letters import asks_function
from streamapp.topology.plan import Subtopology

__all__ = ["Task"]


class Task(CurrentRecord):
    """One sub-topology on one partition.

    ``environment`` has everything that the runner provides, except the state, which is in ``backend``. ``inputs`` are
    the partitions that the task reads (default: partition ``partition`` of each source topic). Runners do not create
    tasks themselves, but open a `TaskSession`.
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
        self._topic_ids = environment.topic_ids
        self.wall_clock_ms: Callable[[], int] = environment.wall_clock_ms
        self.log_each_write: bool = rules.log_each_write
        handlers = plan.config.processing_exception_handler, plan.config.production_exception_handler
        letters = plan.config.dead_letter_queue_topic is not None
        self.keeps_source_bytes: bool = (
            letters or any(map(callable, handlers)) or asks_function(subtopology.nodes)
        )
        self.retries_at_once: bool = rules.retries_at_once
        self.one_task: bool = rules.one_task
        self.any_partition: bool = rules.any_partition
        self.numbered_topics: Collection[str] = rules.numbered_topics
        self.foreign_key_join_recheck: bool = rules.always_recheck or plan.config.foreign_key_join_recheck
        self.metrics: TaskMetrics = TaskMetrics()
        self.commit_needed: bool = False
        self.commit_requested: bool = False

        self.stream_time: int = -1
        self.parkings: dict[str, Parking] = {}
        """The operators in which records may wait for a retry."""

        self._clock_followers: list[Callable[[int], None]] = []

        self.inputs: tuple[TopicPartition, ...] = (
            tuple(inputs)
            if inputs is not None
            else tuple(TopicPartition(t, partition) for t in subtopology.source_topics)
        )
        self._notes: dict[str, Sequence[str]] = {}
        self._changelogs: dict[str, Mapping[str, int]] = {}
        self.with_offsets: set[str] = set()
        """The topics of inputs in which this task has an offset, or will have one with the next commit."""
        self._elsewhere, self._committed = environment.with_offsets, environment.with_commits
        self._noted: frozenset[str] = frozenset()
        """The value of `with_offsets` that the metadata of each offset of this task notes since the last commit."""
        self._before: Mapping[TopicPartition, str] = {}
        """The metadata of the offsets at the start of this task."""
        self._latest_edition, self._recalled_edition = environment.edition, -1
        self._has_tables = any(sub.changelog_topics for sub in plan.subtopologies)
        self._failures = Failures(self)
        self._async_steps = AsyncSteps(self, self._failures, environment.run_async)
        self._punctuators = Punctuators(self, self._failures, rules)
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
        self._stores = TaskStores(subtopology, plan.config, self, backend, changelogs, cache, rows)
        self.log: Callable[[str, bytes, bytes | None, int | None, Headers], None] = self._stores.log
        self.log_rows: Callable[[str, Sequence[bytes], Sequence[bytes | None], Sequence[int]], None] = (
            self._stores.log_rows
        )

    # ------------------------------------------------------------------ life

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records of a store, in order. All calls come before `Task.init`.

        The rows and the next changelog offset are written to the backend together, so that they always fit.
        """
        self._stores.restore(store, batch)

    def init(self) -> None:
        """Creates the functions of all operators and initializes the processors. The task can then process records.

        Raises `StreamsError`, with the name of the processor, if a processor's ``init`` raises.
        """
        self._loop.open(bind_nodes(self.subtopology.nodes, self, self._failures), self.inputs)
        # Children are bound first, but punctuators have to be called in the order of the topology.
        order = {node.name: number for number, node in enumerate(self.subtopology.nodes)}
        self._processors.sort(key=lambda processor: order[processor[0]])
        for name, processor, context in self._processors:
            try:
                processor.init(context)
            except Exception as error:
                raise _failed_to("initialize", name, error) from error
        self._punctuators.initialized()

    def close(self) -> None:
        """Closes the task's processors and its state backend. Changes since the last commit are dropped, because the
        next task of this partition processes their records again.

        If the ``close`` of a processor raises, everything else is closed, too. Then the method raises `StreamsError`
        with the name of the processor.
        """
        self._async_steps.cancel()
        with ExitStack() as rest:
            rest.callback(self._stores.close)
            rest.callback(self._processors.clear)
            for name, processor, _ in reversed(self._processors):
                rest.callback(_close, name, processor)

    # ------------------------------------------------------------------ records

    def enqueue(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Buffers records of one input partition."""
        # The bytes are needed only if records may wait in the task.
        size = batch_bytes(batch) if self.holds_back else 0
        self._loop.enqueue(partition, batch, size)

    @property
    def buffered(self) -> dict[TopicPartition, int]:
        """The number of records that wait, by input partition."""
        return {partition: queue.size for partition, queue in self._loop.queues.items()}

    @property
    def idle(self) -> bool:
        """True if `process` has nothing to do: no record waits, and the task has no asynchronous steps."""
        queues = self._loop.queues.values()
        return not self._async_steps and not any(queue.size or queue.passed_over for queue in queues)

    @property
    def buffered_bytes(self) -> dict[TopicPartition, int]:
        """The approximate bytes that wait, by input partition; 0 unless the task `holds_back` records."""
        return {partition: queue.bytes for partition, queue in self._loop.queues.items()}

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of an input to ``offset``, the next offset to read.

        Some offsets have no record for the task: markers of transactions, records of aborted transactions, and records
        that compaction has removed. All other records before ``offset`` must be processed already.
        """
        self.positions[partition] = offset
        self.commit_needed = True

    def process(
        self,
        max_records: int = sys.maxsize,
        caught_up: Collection[TopicPartition] | None = None,
        known_ms: int | None = None,
    ) -> int:
        """Processes buffered records, lowest timestamp first over all inputs, and returns their number.

        While an input has no buffered records, the other inputs wait, so that a join sees its sides in the order of
        time. ``caught_up`` are the inputs that are read to their ends. The wait for such an input ends after
        ``max_task_idle_ms``, by the time ``known_ms`` at which the caller has looked for records (default: now). With
        ``caught_up=None`` no input waits for another.

        Raises `StreamsError` for a record that cannot be handled. The positions then count the records before it.

        Records whose asynchronous calls are done go on before all other records. No new record is taken while an
        asynchronous step is full, or while an operator with a `Retry` lets no record in.
        """
        steps = self._async_steps
        if not steps:
            return self._take(max_records, caught_up, known_ms)
        done = 0
        steps.emit()
        while done < max_records and (room := steps.room) > 0:
            taken = self._take(min(room, max_records - done), caught_up, known_ms)
            if not taken:
                break
            done += taken
        steps.start()
        return done

    def _take(
        self, max_records: int, caught_up: Collection[TopicPartition] | None, known_ms: int | None
    ) -> int:
        if not self.parkings:
            return self._loop.take(max_records, caught_up, known_ms)
        done = 0
        while done < max_records and (room := min(parking.room for parking in self.parkings.values())) > 0:
            taken = self._loop.take(min(room, max_records - done), caught_up, known_ms)
            if not taken:
                break
            done += taken
        return done

    # ------------------------------------------------------------------ asynchronous steps

    @property
    def asynchronous(self) -> bool:
        """True if the task has steps in which records wait for coroutines."""
        return bool(self._async_steps)

    @property
    def holds_back(self) -> bool:
        """True if input records may have to wait in the task: for another input, a coroutine, or a retry."""
        return len(self.inputs) > 1 or self.asynchronous or bool(self.parkings)

    @property
    def pending(self) -> int:
        """The number of records in asynchronous steps. A commit has to wait until the number is 0.

        So before a commit, call ``process(0)`` again and again. Each call hands on the records whose coroutines have
        ended, and takes no further record.
        """
        return self._async_steps.pending

    def add_async_step(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """Adds an asynchronous step, and returns the function that takes its records."""
        return self._async_steps.add(name, call, forward, **limits)

    # ------------------------------------------------------------------ time

    def punctuate_wall_clock(self, now_ms: int) -> bool:
        """Calls the wall-clock punctuators that are due. Returns True if a punctuator was called."""
        due = self._punctuators.by_wall_clock
        return now_ms >= due.next_time and self._punctuators.call_due(due, now_ms)

    def clock_jumped(self, by_ms: int) -> None:
        """Tells the task that the wall clock has moved by ``by_ms`` while the task did not work; negative: back.

        If the clock was set back, a punctuator waits for one interval at most, and a retry for its longest pause. Time
        in which the task did not work, and so read no input, does not count for an ``idle_timeout``.
        """
        if by_ms < 0:
            self._punctuators.by_wall_clock.set_back(self.wall_clock_ms())
        for follow in self._clock_followers:
            follow(by_ms)

    # ------------------------------------------------------------------ commit

    def drained(self) -> bool:
        """True if no record is in an asynchronous step or on the way to one. A commit waits until this is so.

        The rows of record caches come to asynchronous steps behind a table when the caches are flushed. So the method
        flushes the caches of a task with such steps, and `pending` counts the rows.
        """
        if self.asynchronous and not self.pending:
            self._stores.flush_caches()
            self._async_steps.start()
        return not self.pending

    def flush(self) -> None:
        """Flushes the record caches, and sends the changelog records of this commit to the collector.

        Raises `StreamsError` while records are `pending`: their results would be missing in the commit.
        """
        self._stores.flush_caches()
        if self.pending:
            pending = counted(self.pending, "record is", "records are")
            raise StreamsError(f"task {self.task_id} cannot be committed: {pending} under way")
        self._stores.log_changes()

    def persist(self, changelog_offsets: Mapping[TopicPartition, int]) -> None:
        """Writes the changed rows of the stores to their backends. Called after the commit has succeeded.

        For persistent stores, one write has the rows and the changelog offsets.
        ``changelog_offsets`` has the end offset of each changelog partition that the task writes. After a restart, the
        restore begins at this offset.
        """
        self._stores.persist(changelog_offsets, self.positions)
        if len(self._noted) < len(self.with_offsets):
            self._noted = frozenset(self.with_offsets)
            self._committed |= self._noted
        self.commit_needed = self.commit_requested = False

    @property
    def dirty_bytes(self) -> int:
        """The approximate bytes of state that wait in memory for the commit. A runner commits early at a limit."""
        return self._stores.dirty_bytes

    @property
    def needless_changes(self) -> dict[TopicPartition, int]:
        """Changelogs whose first records no restore needs, with the offset below which these records are.

        The rows of these records have expired, and their deletion is committed.
        """
        return self._stores.needless_changes

    @property
    def changelog_offsets(self) -> dict[str, int]:
        """The changelog offset up to which the local state is complete, by store. A store without state is left out."""
        return self._stores.changelog_offsets

    @property
    def commit_metadata(self) -> dict[TopicPartition, str]:
        """The metadata texts of all inputs, to commit with their positions. In Kafka Streams' encoding, the texts have
        the times that no changelog has, the ids of the topics, and notes about stores and topics.

        Without these times, a restarted task would not know its stream time, and would accept late records for windows
        that are already closed.
        """
        topics = ""
        if self._has_tables:
            own = self.with_offsets.union(tp.topic for tp in self.positions)
            topics = note_of_topics(own.union(self._elsewhere, self._committed), own)
        return {
            partition: self._times.encode(
                queue.partition_time,
                self._topic_ids.get(partition.topic),
                self._notes_of(partition.topic),
                len(self._loop.queues),
                topics,
                self._changelogs_of(partition.topic),
            )
            for partition, queue in self._loop.queues.items()
        }

    @property
    def to_note(self) -> list[TopicPartition]:
        """The inputs with an offset from before the start, whose metadata the next commit has to renew.

        The metadata may not note all `with_offsets`. If the offset of another input is lost, only the metadata of these
        offsets can tell. The metadata may also have a number that is too large by now (`RememberedTimes.may_fall`), or
        notes of another version of the application.
        """
        if self._times.may_fall:
            return list(self._before)
        if len(self._noted) == len(self.with_offsets):
            return []
        return [
            tp
            for tp, text in self._before.items()
            if (self._has_tables and self.with_offsets - noted_as_own([text], self.with_offsets))
            or notes_differ(text, self._notes_of(tp.topic))
        ]

    def _notes_of(self, topic: str) -> Sequence[str]:
        """The notes about stores in the metadata of an input."""
        if topic not in self._notes:
            self._notes[topic] = notes_for(self.plan, topic, self.collector.partition_count)
        return self._notes[topic]

    def _changelogs_of(self, topic: str) -> Mapping[str, int]:
        """The numbers of the notes about stores, which stand for the ids of their changelogs."""
        if topic not in self._changelogs:
            self._changelogs[topic] = changelog_numbers(self.plan, topic, self._topic_ids)
        return self._changelogs[topic]

    @cached_property
    def _edition(self) -> int:
        """The number under `EDITION` in commits. -1: the group has no number yet."""
        before, latest = self._before.items(), self._latest_edition
        if any(notes_differ(text, self._notes_of(tp.topic)) for tp, text in before):
            return max(latest, self._recalled_edition, 0) + 1
        if not before and latest:  # a new task of a version that may be new
            return latest + 1
        return self._recalled_edition

    def continue_from(self, metadata: Mapping[TopicPartition, str]) -> None:
        """Takes the metadata that an earlier task has committed with its offsets. Called before `init`."""
        self._before = {partition: text for partition, text in metadata.items() if text}
        self.with_offsets.update(partition.topic for partition in self._before)
        for partition, text in metadata.items():
            time = self._times.recall(text)
            self._loop.partition_times[partition] = time
            self.stream_time = max(self.stream_time, time)
        self._recalled_edition = self._times.remember(EDITION, lambda: self._edition)

    # ------------------------------------------------------------------ for stores and operators

    def store(self, name: str) -> Any:
        """A store of this task, or a global store, for reads between calls of `process`. Raises `InvalidStoreError`."""
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
            self._count_lost(reason)
        self.metrics.drops[where, reason] += count
        if reason in self.plan.config.dead_letter_drops:
            self._failures.dropped(where, reason)

    def _count_lost(self, reason: str) -> None:
        """Counts the current record as lost, once. The drops of a record come one after the other.

        An answer of a foreign-key join that is superseded loses nothing, because a later answer replaces it. In a
        punctuator, each drop is one of another record.
        """
        record = self.topic, self.partition, self.offset
        if reason != "superseded" and (self.topic is None or record != self.metrics.last_lost):
            self.metrics.lost_records += 1
            self.metrics.last_lost = record

    def add_parking(self, name: str, parking: Parking) -> None:
        self.parkings[name] = parking

    def follow_clock(self, follow: Callable[[int], None]) -> None:
        self._clock_followers.append(follow)

    def remember(self, name: str, read: Callable[[], int], *, may_fall: bool = False) -> int:
        return self._times.remember(name, read, may_fall=may_fall)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, which is initialized and closed with the task."""
        self._processors.append((name, processor, context))


def _close(name: str, processor: Processor) -> None:
    try:
        processor.close()
    except Exception as error:
        raise _failed_to("close", name, error) from error


def _failed_to(do: str, name: str, error: Exception) -> StreamsError:
    kind = "" if isinstance(error, StreamsError) else f"{type(error).__name__}: "
    return StreamsError(f"failed to {do} processor {name}: {kind}{error}")
