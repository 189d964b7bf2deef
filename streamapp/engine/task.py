"""`Task`: one sub-topology on one partition. It decides; it does no I/O, reads no clock and starts no thread.

A runner gives it batches of records (`Task.enqueue`), lets it work (`Task.process`), and commits in the order that
`docs/internals.md` describes: `flush`, acknowledged, `positions` committed, `persist`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from streamapp.engine.asynchronous import AsyncStep, RunAsync
from streamapp.engine.bind import bind_nodes
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.metadata import decode_metadata, encode_metadata
from streamapp.engine.operator import ProcessFn
from streamapp.engine.processor import Processor, ProcessorContext, PunctuationType
from streamapp.engine.punctuation import NEVER, Punctuations, Schedule
from streamapp.engine.queues import ConsumedRecord, HeadHeap, RecordQueue
from streamapp.engine.timestamps import fail_on_invalid_timestamp
from streamapp.errors import InvalidStoreError, StreamsError, UnsupportedOperation
from streamapp.records import NO_HEADERS, Headers, RecordBatch, TopicPartition
from streamapp.state.backend import MemoryBackend, StateBackend, WriteSet
from streamapp.state.cache import RecordCache
from streamapp.state.open import open_store
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Collector", "Task", "TaskMetrics"]


class Collector(Protocol):
    """The way out of a task. ``send`` is called synchronously while the task works; it must not block for long."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        """Takes one record; ``partition`` None means Kafka's default partitioner."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has."""


@dataclass
class TaskMetrics:
    """What a task has counted since it was created."""

    processed: int = 0
    dropped_records: int = 0


class Task:
    """One sub-topology on one partition.

    ``changelogs`` takes the changelog records (default: the collector). ``inputs`` are the partitions it reads (default:
    its number in each of the sub-topology's topics). ``log_each_write`` makes every write to a store a changelog record, as
    Kafka Streams does; otherwise the changelog gets the last value per key and commit. ``cache`` is the record cache that
    the tasks of a process share (default: one of its own; of no bytes: every update is forwarded). ``wall_clock_ms`` is only
    asked by processors that ask for the time.
    """

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
        run_async: RunAsync | None = None,
    ) -> None:
        self.plan = plan
        self.subtopology = subtopology
        self.partition = partition
        self.task_id = f"{subtopology.id}_{partition}"
        self.application_id = plan.application_id
        self.collector = collector
        self._changelog_collector = changelogs or collector
        self.global_stores = global_stores or {}
        self.wall_clock_ms = wall_clock_ms
        self.log_each_write = log_each_write
        self.metrics = TaskMetrics()
        self.positions: dict[TopicPartition, int] = {}
        self.commit_needed = False
        self.commit_requested = False

        # The record that is being processed; stores and processors look here.
        self.topic: str | None = None
        self.offset = -1
        self.timestamp = -1
        self.headers: Headers = NO_HEADERS
        self._batch: RecordBatch | None = None
        self.stream_time = -1

        self._inputs = (
            tuple(inputs)
            if inputs is not None
            else tuple(TopicPartition(t, partition) for t in subtopology.source_topics)
        )
        self._run_async = run_async
        self._async_steps: list[AsyncStep] = []
        self._queues: dict[TopicPartition, RecordQueue] = {}
        self._heads = HeadHeap()
        self._arrived: list[
            RecordQueue
        ] = []  # not in `_heads`: they had no records, or the last that was chosen
        self._failures = Failures(self)
        self._stream_punctuations = Punctuations()
        self._wall_clock_punctuations = Punctuations()
        self._processors: list[tuple[str, Processor, ProcessorContext]] = []
        self._bound: dict[str, ProcessFn] = {}
        self._shared: dict[str, Any] = {}
        self._remembered: dict[str, Callable[[], int]] = {}
        self._recalled: dict[str, int] = {}
        self._partition_times: dict[TopicPartition, int] = {}
        self._changelogs = {name: t.name for name, t in subtopology.changelog_topics.items()}
        self._own_changelogs = {
            name: topic for name, topic in self._changelogs.items() if topic not in subtopology.source_topics
        }
        self._backend = backend
        self._memory = MemoryBackend()
        self._stores: dict[str, Any] = {}
        if cache is None:
            cache = RecordCache(plan.config.statestore_cache_max_bytes)
        for spec in subtopology.stores:
            table = (backend if spec.persistent else self._memory).table(spec.name)
            self._stores[spec.name] = open_store(spec, table, self, cache)

    # ------------------------------------------------------------------ life

    def restore(self, store: str, batch: RecordBatch) -> None:
        """Applies changelog records, in order, before `init`. Bytes go to the backend with the offset they reach."""
        if not batch.offsets:
            return
        writes = WriteSet()
        self._stores[store].restore(batch, writes)
        writes.offsets[store] = batch.offsets[-1] + 1
        self._backend_of(store).write(writes)

    def init(self) -> None:
        """Creates the processors and their chain; from now on records can be processed."""
        self._bound = bind_nodes(self.subtopology.nodes, self, self._failures)
        for partition in self._inputs:
            self._queue(partition)
        for name, processor, context in self._processors:
            try:
                processor.init(context)
            except StreamsError as error:
                raise StreamsError(f"failed to initialize processor {name}: {error}") from error

    def close(self) -> None:
        """Closes processors and the backend. What was not persisted is dropped: it was not committed either."""
        for step in self._async_steps:
            step.cancel()
        for _, processor, _ in self._processors:
            processor.close()
        self._processors.clear()
        for store in self._stores.values():
            store.close()
        self._backend.close()

    # ------------------------------------------------------------------ records

    def enqueue(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Buffers records of one input partition; keeps references, copies nothing."""
        queue = self._queue(partition)
        if not queue.size and queue not in self._arrived:
            self._arrived.append(queue)
        queue.add(batch)

    @property
    def buffered(self) -> dict[TopicPartition, int]:
        """How many records wait, by input partition."""
        return {partition: queue.size for partition, queue in self._queues.items()}

    def process(
        self, max_records: int = sys.maxsize, caught_up: Collection[TopicPartition] | None = None
    ) -> int:
        """Processes buffered records, lowest timestamp first over the inputs; returns how many.

        An input without buffered records holds the others back until it is in ``caught_up`` (and ``max_task_idle_ms`` has
        passed since), so that a join sees its sides in the order of time. None: nothing is waited for.
        Raises `StreamsError` for a record that cannot be handled; what was processed before it counts.

        Records in asynchronous steps whose calls are done go on first; as long as these steps are full, no others are taken.
        """
        if not self._async_steps:
            return self._take(max_records, caught_up)
        self._emit()
        done = 0
        while done < max_records and (room := min(step.room for step in self._async_steps)) > 0:
            taken = self._take(min(room, max_records - done), caught_up)
            if not taken:
                break
            done += taken
        for step in self._async_steps:
            step.start()
        return done

    def _take(self, max_records: int, caught_up: Collection[TopicPartition] | None) -> int:
        done = 0
        if len(self._queues) == 1:
            (queue,) = self._queues.values()
            while queue.size and done < max_records:
                done += self._run(queue, max_records - done, NEVER)
            return done
        emptied = True  # only then another input may have to be waited for
        while done < max_records:
            if emptied and caught_up is not None and not self._may_process(caught_up):
                break
            earliest, bound = self._next_queue()
            if earliest is None:
                break
            done += self._run(earliest, max_records - done, bound)
            emptied = not earliest.size
        return done

    def _may_process(self, caught_up: Collection[TopicPartition]) -> bool:
        now = None
        for partition, queue in self._queues.items():
            if queue.size:
                queue.idle_deadline = None
            elif partition not in caught_up:
                queue.idle_deadline = None
                return False
            elif self.plan.config.max_task_idle_ms > 0:
                now = self.wall_clock_ms() if now is None else now
                if queue.idle_deadline is None:
                    queue.idle_deadline = now + self.plan.config.max_task_idle_ms
                if now < queue.idle_deadline:
                    return False
        return True

    def _next_queue(self) -> tuple[RecordQueue | None, int]:
        """The queue whose head is earliest, and the earliest head of the others."""
        heads = self._heads
        times = [self._head_time(queue) for queue in self._arrived]
        for queue, time in zip(self._arrived, times, strict=True):
            if time is not None:
                heads.push(queue, time)
        self._arrived.clear()
        if heads.earliest is None:
            return None, NEVER
        best = heads.pop()
        self._arrived.append(best)  # it comes back with what it has next
        second = heads.earliest
        return best, NEVER if second is None else second

    def _head_time(self, queue: RecordQueue) -> int | None:
        if queue.batch is None:
            return None
        if queue.extractor is None:
            return queue.batch.timestamps[queue.at]
        head = self._extract_head(queue)
        return None if head is None else head[2]

    def _run(self, queue: RecordQueue, limit: int, bound: int) -> int:
        """Processes records from the head of one queue: at least one, and on while they are earlier than the bound."""
        self.topic = queue.partition.topic
        self.commit_needed = True
        if queue.extractor is not None:
            return self._run_extracted(queue, bound)
        batch, at = queue.batch, queue.at
        assert batch is not None
        self._batch = batch
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
                    self._failures.deserialization(error, source.name)
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
                    self._failures.processing(error, self._failures.node_of(error.__traceback__, source.name))
                done += 1
                if stream_time >= stream.next_time:
                    self._punctuate(stream, stream_time)
                    self.topic = queue.partition.topic
        finally:
            if done:
                self.positions[queue.partition] = offsets[done - 1] + 1
                queue.partition_time = max(queue.partition_time, max(timestamps[:done]))
                queue.advance(done)
                self.metrics.processed += done
            self._batch = None
        return done

    def _run_extracted(self, queue: RecordQueue, bound: int) -> int:
        """One record of a source with a timestamp extractor."""
        head = self._extract_head(queue)
        if head is None:
            return 0
        batch = queue.batch
        assert batch is not None
        key, value, timestamp, headers = head
        self.topic, self.offset, self.timestamp, self.headers = (
            queue.partition.topic,
            batch.offsets[queue.at],
            timestamp,
            headers,
        )
        self.stream_time = max(self.stream_time, timestamp)
        self._batch = batch
        try:
            queue.process(key, value, timestamp, headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.processing(error, self._failures.node_of(error.__traceback__, queue.source.name))
        queue.head = None
        queue.partition_time = max(queue.partition_time, timestamp)
        self._skip(queue)
        self.metrics.processed += 1
        if self.stream_time >= self._stream_punctuations.next_time:
            self._punctuate(self._stream_punctuations, self.stream_time)
        return 1

    def _extract_head(self, queue: RecordQueue) -> tuple[Any, Any, int, Headers] | None:
        """Decodes the head record and asks for its timestamp; passes over records that are to be dropped."""
        while queue.head is None and queue.batch is not None:
            batch, at, source = queue.batch, queue.at, queue.source
            topic, partition = queue.partition
            raw_key, raw_value, headers = batch.keys[at], batch.values[at], queue.raw_headers()
            self.topic, self.offset, self.timestamp, self.headers = (
                topic,
                batch.offsets[at],
                batch.timestamps[at],
                headers,
            )
            self._batch = batch
            try:
                key = None if raw_key is None else queue.key_of(raw_key)
                value = None if raw_value is None else queue.value_of(raw_value)
            except Exception as error:
                self._failures.deserialization(error, source.name)
                self._skip(queue)
                continue
            record = ConsumedRecord(
                topic, partition, batch.offsets[at], batch.timestamps[at], key, value, headers
            )
            assert queue.extractor is not None
            try:
                timestamp = queue.extractor(record, queue.partition_time)
            except StreamsError:
                raise
            except Exception as error:
                raise StreamsError(
                    f"the timestamp extractor of {source.name} failed for {record}: {error}"
                ) from error
            if timestamp < 0:
                self.drop()
                self._skip(queue)
                continue
            queue.head = (key, value, timestamp, headers)
        return queue.head

    def _skip(self, queue: RecordQueue) -> None:
        assert queue.batch is not None
        self.positions[queue.partition] = queue.batch.offsets[queue.at] + 1
        self.commit_needed = True
        queue.advance(1)

    def _queue(self, partition: TopicPartition) -> RecordQueue:
        queue = self._queues.get(partition)
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
            self._queues[partition] = queue
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
        return sum(step.pending for step in self._async_steps)

    def add_async_step(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """Adds a step; returns the function that takes its records."""
        if self._run_async is None:
            raise UnsupportedOperation(
                name,
                "this runner",
                "it is asynchronous, and there is no event loop beside a batch",
                "Run this topology on workers, or call a blocking client with map() or map_values()",
            )
        step = AsyncStep(name, self, self._failures, call, forward, **limits)
        self._async_steps.append(step)
        return step.submit

    def run_async(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        assert self._run_async is not None
        return self._run_async(coroutine)

    @property
    def record_context(self) -> tuple[Any, ...]:
        """What tells where the record that is being processed comes from; set to go on with it later."""
        return self.topic, self.offset, self.timestamp, self.headers, self._batch

    @record_context.setter
    def record_context(self, context: tuple[Any, ...]) -> None:
        self.topic, self.offset, self.timestamp, self.headers, self._batch = context

    def _emit(self) -> None:
        try:
            for step in self._async_steps:
                step.emit()
        finally:
            self._batch = None

    # ------------------------------------------------------------------ time

    def schedule(
        self, node: str, interval_ms: int, type: PunctuationType, callback: Callable[[int], None]
    ) -> Schedule:
        """Adds a punctuator; the first call of a stream-time one comes with the first record."""
        if type is PunctuationType.STREAM_TIME:
            schedule = Schedule(node, 0, interval_ms, callback)
            self._stream_punctuations.add(schedule)
        else:
            schedule = Schedule(node, self.wall_clock_ms() + interval_ms, interval_ms, callback)
            self._wall_clock_punctuations.add(schedule)
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
        self.topic, self.offset, self.timestamp, self.headers = None, -1, now, NO_HEADERS
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
        for store in self._stores.values():
            store.flush()
        for store in self._stores.values():
            store.log_dirty()

    def persist(self, changelog_offsets: Mapping[TopicPartition, int]) -> None:
        """After the commit has succeeded: state and changelog offsets go to the backend in one write.

        ``changelog_offsets`` has the next offset of each changelog partition that was written to.
        """
        writes, memory = WriteSet(), WriteSet()
        for name, store in self._stores.items():
            store.drain(writes if store.spec.persistent else memory)
            topic = self._changelogs.get(name)
            if topic is not None and store.spec.persistent:
                known = changelog_offsets if name in self._own_changelogs else self.positions
                offset = known.get(TopicPartition(topic, self.partition))
                if offset is not None:
                    writes.offsets[name] = offset
        self._memory.write(memory)
        self._backend.write(writes)
        self.commit_needed = self.commit_requested = False

    @property
    def dirty_bytes(self) -> int:
        """Roughly how much uncommitted state is buffered; a runner commits early when it grows large."""
        return sum(store.dirty_bytes for store in self._stores.values())

    @property
    def changelog_offsets(self) -> dict[str, int]:
        """Store name -> next changelog offset that the local state has; stores that start empty are not in it."""
        return {**self._backend.offsets(), **self._memory.offsets()}

    @property
    def commit_metadata(self) -> dict[TopicPartition, str]:
        """What belongs into the metadata of the committed offsets: times that no changelog holds, in Kafka Streams'
        own encoding. Without it a restarted task would take late records that it had dropped before."""
        remembered = {name: value for name, read in self._remembered.items() if (value := read()) >= 0}
        return {
            partition: encode_metadata(queue.partition_time, remembered)
            for partition, queue in self._queues.items()
            if partition in self.positions
        }

    def continue_from(self, metadata: Mapping[TopicPartition, str]) -> None:
        """Takes the committed offsets' metadata of an earlier task; before `init`."""
        for partition, text in metadata.items():
            time, remembered = decode_metadata(text)
            self._partition_times[partition] = time
            self.stream_time = max(self.stream_time, time)
            for name, value in remembered.items():
                self._recalled[name] = max(value, self._recalled.get(name, -1))

    # ------------------------------------------------------------------ what stores and operators use

    @property
    def raw_record(self) -> tuple[bytes | None, bytes | None]:
        """Key and value of the source record that is being processed, as bytes: for handlers and dead letters."""
        if self._batch is None or self.topic is None:
            return None, None
        at = bisect_left(self._batch.offsets, self.offset)
        if at == len(self._batch.offsets) or self._batch.offsets[at] != self.offset:
            return None, None  # a record that came out of a buffer or a cache
        return self._batch.keys[at], self._batch.values[at]

    def store(self, name: str) -> Any:
        """A store of this task, or a global store, for reads between calls of `process`."""
        store = self._stores.get(name)
        if store is None:
            store = self.global_stores.get(name)
        if store is None:
            known = ", ".join([*self._stores, *self.global_stores]) or "none"
            raise InvalidStoreError(f"task {self.task_id} has no store {name}; it has {known}")
        return store

    @property
    def own_stores(self) -> Mapping[str, Any]:
        """The task's stores by name."""
        return self._stores

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        topic = self._own_changelogs.get(store)
        if topic is not None:
            self._changelog_collector.send(topic, key, value, timestamp, headers, self.partition)

    def drop(self, count: int = 1) -> None:
        self.metrics.dropped_records += count

    def remember(self, name: str, read: Callable[[], int]) -> int:
        self._remembered[name] = read
        return self._recalled.get(name, -1)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def add_processor(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        """Registers a user's processor, to be initialized with the task and closed with it."""
        self._processors.append((name, processor, context))

    def _backend_of(self, store: str) -> StateBackend:
        return self._backend if self._stores[store].spec.persistent else self._memory
