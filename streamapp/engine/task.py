"""`Task`: one sub-topology on one partition. It decides; it does no I/O, reads no clock and starts no thread.

A runner gives it batches of records (`Task.enqueue`), lets it work (`Task.process`), and commits in the order that
`docs/internals.md` describes: `flush`, acknowledged, `positions` committed, `persist`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

from streamapp.engine.asynchronous import AsyncSteps, RunAsync
from streamapp.engine.bind import bind_nodes
from streamapp.engine.collector import Collector
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.extraction import extract_head, try_head
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.metadata import RememberedTimes
from streamapp.engine.operator import Parking, ProcessFn
from streamapp.engine.partition_group import PartitionGroup
from streamapp.engine.processor import Processor, ProcessorContext, PunctuationType
from streamapp.engine.punctuation import NEVER, Punctuations, Schedule
from streamapp.engine.queues import RecordQueue
from streamapp.engine.running_task import TaskMetrics
from streamapp.engine.task_stores import TaskStores
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import NO_HEADERS, Headers, RecordBatch, RecordContext, TopicPartition, batch_bytes
from streamapp.state.backend import StateBackend
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Task"]


class Task(CurrentRecord):
    """One sub-topology on one partition.

    ``changelogs`` takes the changelog records (default: the collector). ``inputs`` are the partitions it reads (default:
    its number in each of the sub-topology's topics). ``log_each_write`` makes every write to a store a changelog record, as
    Kafka Streams does; otherwise the changelog gets the last value per key and commit. ``cache`` is the record cache that
    the tasks of a process share (default: one of its own; of no bytes: every update is forwarded). ``wall_clock_ms`` is only
    asked by processors that ask for the time.
    """

    partition_group: ClassVar = PartitionGroup
    """What chooses the next record of several inputs."""
    any_partition: ClassVar[bool] = False
    """True if a partitioner may choose a partition that the topic does not have."""

    def __init__(
        self,
        plan: Plan,
        subtopology: Subtopology,
        partition: int,
        collector: Collector,
        backend: StateBackend,
        *,
        changelogs: Collector | None = None,
        global_stores: Mapping[str, Any] | None = None,
        wall_clock_ms: Callable[[], int],
        inputs: Iterable[TopicPartition] | None = None,
        log_each_write: bool = False,
        cache: RecordCache | None = None,
        rows: RowMemory | None = None,
        run_async: RunAsync | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.subtopology = subtopology
        self.partition = partition
        self.task_id = f"{subtopology.id}_{partition}"
        self.application_id = plan.application_id
        self.collector = collector
        self.global_stores = global_stores or {}
        self.wall_clock_ms = wall_clock_ms
        self.log_each_write = log_each_write
        self.metrics = TaskMetrics()
        self.positions: dict[TopicPartition, int] = {}
        self.commit_needed = False
        self.commit_requested = False

        self.stream_time = -1
        self.parkings: dict[str, Parking] = {}
        """The operators in which records may wait for a retry."""

        self._inputs = (
            tuple(inputs)
            if inputs is not None
            else tuple(TopicPartition(t, partition) for t in subtopology.source_topics)
        )
        self._failures = Failures(self)
        self._extract_head = partial(extract_head, self, self._failures)
        self._partitions = self.partition_group(
            self._extract_head,
            partial(try_head, self, self._failures),
            plan.config.max_task_idle_ms,
            wall_clock_ms,
        )
        self._async_steps = AsyncSteps(self, self._failures, run_async)
        self._stream_punctuations = Punctuations()
        self._wall_clock_punctuations = Punctuations()
        self._processors: list[tuple[str, Processor, ProcessorContext]] = []
        self._bound: dict[str, ProcessFn] = {}
        self._shared: dict[str, Any] = {}
        self._times = RememberedTimes()
        self._partition_times: dict[TopicPartition, int] = {}
        if cache is None:
            cache = RecordCache(plan.config.statestore_cache_max_bytes)
        if rows is None:
            rows = RowMemory(plan.config.memory.rows)
        self._stores = TaskStores(subtopology, self, backend, changelogs or collector, cache, rows)
        self.log = self._stores.log

    @property
    def foreign_key_join_recheck(self) -> bool:
        return self.plan.config.foreign_key_join_recheck

    # ------------------------------------------------------------------ life

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records, in order, before `init`. Bytes go to the backend with the offset they reach."""
        self._stores.restore(store, batch)

    def init(self) -> None:
        """Creates the processors and their chain; from now on records can be processed."""
        self._bound = bind_nodes(self.subtopology.nodes, self, self._failures)
        for partition in self._inputs:
            self._queue(partition)
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
        self._partitions.enqueue(self._queue(partition), batch, size)

    @property
    def buffered(self) -> dict[TopicPartition, int]:
        """How many records wait, by input partition."""
        return {partition: queue.size for partition, queue in self._partitions.queues.items()}

    @property
    def buffered_bytes(self) -> dict[TopicPartition, int]:
        """Roughly the bytes that wait, by input partition; 0 in tasks that need not wait."""
        return {partition: queue.bytes for partition, queue in self._partitions.queues.items()}

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
        if self.parkings:
            return self._take_while_open(max_records, caught_up)
        return self._take_next(max_records, caught_up)

    def _take_while_open(self, max_records: int, caught_up: Collection[TopicPartition] | None) -> int:
        """A few records at a time: each may be the last for now, because it has to be tried again."""
        done = 0
        while done < max_records and (room := min(parking.room for parking in self.parkings.values())) > 0:
            taken = self._take_next(min(room, max_records - done), caught_up)
            if not taken:
                break
            done += taken
        return done

    def _take_next(self, max_records: int, caught_up: Collection[TopicPartition] | None) -> int:
        done = 0
        partitions = self._partitions
        if len(partitions.queues) == 1:
            (queue,) = partitions.queues.values()
            while queue.size and done < max_records:
                done += self._run(queue, max_records - done, NEVER)
            return done
        emptied = True  # only then another input may have to be waited for
        while done < max_records:
            if emptied and caught_up is not None and not partitions.ready(caught_up):
                break
            earliest, bound = partitions.next()
            if earliest is None:
                break
            done += self._run(earliest, max_records - done, bound)
            emptied = not earliest.size
        return done

    def _run(self, queue: RecordQueue, limit: int, bound: int) -> int:
        """Processes records from the head of one queue: at least one, and on while they are earlier than the bound."""
        if queue.passed_over:
            queue.passed_over = False
            return 1
        self.topic = queue.partition.topic
        self.commit_needed = True
        if queue.extractor is not None:
            return self._run_extracted(queue, bound)
        batch, at = queue.batch, queue.at
        assert batch is not None
        self.batch = batch
        keys, values, timestamps, offsets = batch.keys, batch.values, batch.timestamps, batch.offsets
        end = min(len(offsets), at + limit)
        if bound != NEVER:
            end = next((i for i in range(at + 1, end) if timestamps[i] >= bound), end)
        if at or end < len(offsets):
            keys, values, timestamps, offsets = (
                keys[at:end],
                values[at:end],
                timestamps[at:end],
                offsets[at:end],
            )
        headers = repeat(NO_HEADERS) if batch.headers is None else batch.headers[at:end]
        source, key_of, value_of = queue.source, queue.key_of, queue.value_of
        process, stream, stream_time = queue.process, self._stream_punctuations, self.stream_time
        done = 0
        try:
            for key, value, timestamp, offset, header in zip(
                keys, values, timestamps, offsets, headers, strict=False
            ):
                self.offset, self.timestamp, self.headers = offset, timestamp, header
                try:
                    if key is not None:
                        key = key_of(key)
                    if value is not None:
                        value = value_of(value)
                except Exception as error:
                    why = queue.explain(keys[done], values[done], error)
                    self._failures.deserialization(why, source.name)
                    done += 1
                    continue
                if timestamp > stream_time:
                    self.stream_time = stream_time = timestamp
                elif timestamp < 0:
                    raise StreamsError(
                        f"record of {queue.partition} at offset {offset} has timestamp {timestamp}: it was written without one. "
                        "Give the source a timestamp_extractor"
                    )
                try:
                    process(key, value, timestamp, header)
                except ProcessingFailed:
                    raise
                except Exception as error:
                    self._failures.behind_source(error, source.name)
                done += 1
                if stream_time >= stream.next_time:
                    self._punctuate(stream, stream_time)
        finally:
            if done:
                self.positions[queue.partition] = offsets[done - 1] + 1
                queue.partition_time = max(queue.partition_time, max(timestamps[:done]))
                queue.advance(done)
                self.metrics.processed += done
            self.batch = None
        return done

    def _run_extracted(self, queue: RecordQueue, bound: int) -> int:
        """One record of a source with a timestamp extractor."""
        head = self._extract_head(queue)
        if head is None:
            return 0
        batch = queue.batch
        assert batch is not None
        key, value, timestamp, headers = head
        self.offset, self.timestamp, self.headers, self.batch = (
            batch.offsets[queue.at],
            timestamp,
            headers,
            batch,
        )
        self.stream_time = max(self.stream_time, timestamp)
        try:
            queue.process(key, value, timestamp, headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.behind_source(error, queue.source.name)
        queue.head = None
        queue.partition_time = max(queue.partition_time, timestamp)
        self.pass_over(queue)
        self.metrics.processed += 1
        if self.stream_time >= self._stream_punctuations.next_time:
            self._punctuate(self._stream_punctuations, self.stream_time)
        return 1

    def pass_over(self, queue: RecordQueue) -> None:
        """The record at the head of a queue is done with."""
        assert queue.batch is not None
        self.positions[queue.partition] = queue.batch.offsets[queue.at] + 1
        self.commit_needed = True
        queue.advance(1)

    def _queue(self, partition: TopicPartition) -> RecordQueue:
        queue = self._partitions.queues.get(partition)
        if queue is None:
            source = self.subtopology.source_of(partition.topic)
            if source is None:
                raise StreamsError(
                    f"task {self.task_id} got records of topic {partition.topic}, which sub-topology {self.subtopology.id} "
                    f"does not read; it reads {', '.join(self.subtopology.source_topics)}"
                )
            extractor = source.timestamp_extractor or self.plan.config.default_timestamp_extractor
            if extractor is fail_on_invalid_timestamp:
                extractor = None  # as `_run` does by itself
            queue = RecordQueue(partition, source, self._bound[source.name], extractor)
            queue.partition_time = self._partition_times.get(partition, -1)
            self._partitions.queues[partition] = queue
        return queue

    # ------------------------------------------------------------------ asynchronous steps

    @property
    def asynchronous(self) -> bool:
        """Whether it has steps in which records wait for coroutines."""
        return bool(self._async_steps)

    @property
    def holds_back(self) -> bool:
        """Whether records may wait in front of it: for another input, a coroutine, or a retry."""
        return len(self._inputs) > 1 or self.asynchronous or bool(self.parkings)

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

    def schedule(
        self,
        node: str,
        interval_ms: int,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Schedule:
        """Adds a punctuator. Without ``start_ms`` the first call of a stream-time one comes with the first record, of a wall-clock one after
        an interval; a start in the past is one of the times that are over (KIP-1146)."""
        by_stream = type is PunctuationType.STREAM_TIME
        punctuations = self._stream_punctuations if by_stream else self._wall_clock_punctuations
        now = self.stream_time if by_stream else self.wall_clock_ms()
        first = start_ms if start_ms is not None else 0 if by_stream else now + interval_ms
        schedule = Schedule(node, first, interval_ms, callback)
        if start_ms is not None and start_ms < now:
            schedule.go_on(now)
        punctuations.add(schedule)
        return schedule

    def punctuate_wall_clock(self, now_ms: int) -> bool:
        """Calls the wall-clock punctuators that are due; returns whether there were any."""
        return now_ms >= self._wall_clock_punctuations.next_time and self._punctuate(
            self._wall_clock_punctuations, now_ms
        )

    def _punctuate(self, punctuations: Punctuations, now: int) -> bool:
        called = punctuations.run(now, self._call_punctuator)
        self.commit_needed = self.commit_needed or called
        return called

    def _call_punctuator(self, schedule: Schedule, now: int) -> None:
        self.work_as(RecordContext(None, -1, -1, now), self._punctuator, schedule, now)

    def _punctuator(self, schedule: Schedule, now: int) -> None:
        try:
            schedule.callback(now)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.processing(error, schedule.node)

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
            for partition, queue in self._partitions.queues.items()
            if partition in self.positions
        }

    def continue_from(self, metadata: Mapping[TopicPartition, str]) -> None:
        """Takes the committed offsets' metadata of an earlier task; before `init`."""
        for partition, text in metadata.items():
            time = self._times.recall(text)
            self._partition_times[partition] = time
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
