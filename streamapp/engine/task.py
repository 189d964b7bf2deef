"""`Task`: one sub-topology on one partition. It decides; it does no I/O, reads no clock and starts no thread.

A `TaskSession` makes the task and calls the steps of its life in their order. Between `init` and `close` a runner hands over
batches of records (`Task.enqueue`) and lets the task work (`Task.process`).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from streamapp.engine.asynchronous import AsyncSteps
from streamapp.engine.bind import bind_nodes
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.extraction import extract_head, try_head
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.metadata import RememberedTimes
from streamapp.engine.operator import ProcessFn
from streamapp.engine.processor import Processor, ProcessorContext, PunctuationType
from streamapp.engine.punctuation import NEVER, Punctuations, Schedule
from streamapp.engine.queues import RecordQueue
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.engine.running_task import TaskMetrics
from streamapp.engine.task_stores import TaskStores
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.errors import InvalidStoreError, StreamsError
from streamapp.records import NO_HEADERS, Headers, RecordBatch, RecordContext, TopicPartition, batch_bytes
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
        self.task_id = f"{subtopology.id}_{partition}"
        self.application_id = plan.application_id
        self.collector = environment.collector
        self.global_stores = environment.global_stores
        self.wall_clock_ms = environment.wall_clock_ms
        self.log_each_write = rules.log_each_write
        self.any_partition = rules.any_partition
        self.foreign_key_join_recheck = rules.always_recheck or plan.config.foreign_key_join_recheck
        self._refuse_wall_clock = rules.refuse_wall_clock
        self.metrics = TaskMetrics()
        self.positions: dict[TopicPartition, int] = {}
        self.commit_needed = False
        self.commit_requested = False

        self.stream_time = -1

        self.inputs = (
            tuple(inputs)
            if inputs is not None
            else tuple(TopicPartition(t, partition) for t in subtopology.source_topics)
        )
        self._failures = Failures(self)
        self._extract_head = partial(extract_head, self, self._failures)
        self._partitions = rules.partition_group(
            self._extract_head,
            partial(try_head, self, self._failures),
            plan.config.max_task_idle_ms,
            environment.wall_clock_ms,
        )
        self._async_steps = AsyncSteps(self, self._failures, environment.run_async)
        self._stream_punctuations = Punctuations()
        self._wall_clock_punctuations = Punctuations()
        self._processors: list[tuple[str, Processor, ProcessorContext]] = []
        self._bound: dict[str, ProcessFn] = {}
        self._shared: dict[str, Any] = {}
        self._times = RememberedTimes()
        self._partition_times: dict[TopicPartition, int] = {}
        cache = environment.cache
        if cache is None:
            cache = RecordCache(plan.config.statestore_cache_max_bytes)
        rows = environment.rows
        if rows is None:
            rows = RowMemory(plan.config.memory.rows)
        changelogs = environment.changelogs or environment.collector
        self._stores = TaskStores(subtopology, self, backend, changelogs, cache, rows)
        self.log = self._stores.log

    # ------------------------------------------------------------------ life

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records, in order, before `init`. Bytes go to the backend with the offset they reach."""
        self._stores.restore(store, batch)

    def init(self) -> None:
        """Creates the processors and their chain; from now on records can be processed."""
        self._bound = bind_nodes(self.subtopology.nodes, self, self._failures)
        for partition in self.inputs:
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
        size = batch_bytes(batch) if len(self.inputs) > 1 or self.asynchronous else 0
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
        if not by_stream and self._refuse_wall_clock is not None:
            raise self._refuse_wall_clock(node)
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

    def drop(self, count: int = 1) -> None:
        self.metrics.dropped_records += count

    def remember(self, name: str, read: Callable[[], int]) -> int:
        return self._times.remember(name, read)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, to be initialized with the task and closed with it."""
        self._processors.append((name, processor, context))
