"""The loop of a task: takes records out of the input queues, lowest timestamp first, and calls the operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import repeat

from streamapp._base.java_hash import hash_order, partition_hash
from streamapp.engine.extraction import extract_head, try_head
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.operator import ProcessFn
from streamapp.engine.partition_group import PartitionGroup
from streamapp.engine.punctuation import NEVER
from streamapp.engine.punctuators import Punctuators
from streamapp.engine.queues import RecordQueue
from streamapp.engine.running_task import RunningTask
from streamapp.engine.timestamps import extractor_of
from streamapp.errors import StreamsError
from streamapp.records import NO_HEADERS, RecordBatch, TopicPartition
from streamapp.topology.plan import Subtopology

__all__ = ["RecordLoop"]


class RecordLoop:
    """The queues and input positions of one task. The loop writes the fields of the task's current record."""

    def __init__(
        self,
        task: RunningTask,
        subtopology: Subtopology,
        failures: Failures,
        punctuators: Punctuators,
        partition_group: Callable[..., PartitionGroup],
    ) -> None:
        self._task = task
        self._subtopology = subtopology
        self._failures = failures
        self._punctuators = punctuators
        self._extract_head = partial(extract_head, task, failures)
        self._group = partition_group(
            self._extract_head,
            partial(try_head, task, failures),
            task.plan.config.max_task_idle_ms,
            task.wall_clock_ms,
        )
        self._bound: Mapping[str, ProcessFn] = {}
        self.positions: dict[TopicPartition, int] = {}
        """The next offset to read of each input: the offset of the last processed record + 1, or behind markers and
        gaps that follow the record."""
        self.partition_times: dict[TopicPartition, int] = {}
        """The partition time of each input in ms, as an earlier task has committed it. A new queue begins with this
        time."""
        self.queues: dict[TopicPartition, RecordQueue] = self._group.queues

    def open(self, bound: Mapping[str, ProcessFn], inputs: Collection[TopicPartition]) -> None:
        """Takes the function of each source, and opens the queues of the inputs.

        The queues have the order of Kafka Streams' hash table. The first input without a record makes the task wait, so
        this order decides when the waits of further inputs begin (``max_task_idle_ms``).
        """
        self._bound = bound
        for partition in hash_order(inputs, partition_hash):
            self._queue(partition)

    def enqueue(self, partition: TopicPartition, batch: RecordBatch, size: int) -> None:
        """Buffers records of one input. ``size`` is their bytes."""
        self._group.enqueue(self._queue(partition), batch, size)

    def pass_over(self, queue: RecordQueue) -> None:
        """Removes the record at the head of a queue, and moves the position of the input behind this record."""
        assert queue.batch is not None
        self.positions[queue.partition] = queue.batch.offsets[queue.at] + 1
        self._task.commit_needed = True
        queue.advance(1)

    def take(
        self, max_records: int, caught_up: Collection[TopicPartition] | None, known_ms: int | None
    ) -> int:
        """Processes buffered records, and returns their number (see `Task.process`)."""
        done = 0
        partitions = self._group
        if len(partitions.queues) == 1:
            (queue,) = partitions.queues.values()
            while queue.size and done < max_records:
                done += self._run(queue, max_records - done, NEVER)
            return done
        emptied = True  # only an empty queue can hold the other inputs back
        while done < max_records:
            if emptied and caught_up is not None and not partitions.ready(caught_up, known_ms):
                break
            earliest, bound = partitions.next()
            if earliest is None:
                break
            done += self._run(earliest, max_records - done, bound)
            emptied = not earliest.size
        return done

    def _run(self, queue: RecordQueue, limit: int, bound: int) -> int:
        """Processes the first record of a queue, and further records of the queue that are earlier than ``bound`` (ms).

        ``bound`` is the time of the next record of the other queues, so these records come before it.
        """
        if queue.passed_over:
            queue.passed_over = False
            return 1
        task = self._task
        task.topic = queue.partition.topic
        task.commit_needed = True
        if queue.extractor is not None:
            return self._run_extracted(queue, bound)
        batch, at = queue.batch, queue.at
        assert batch is not None
        task.batch = batch
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
        process, stream, stream_time = queue.process, self._punctuators.by_stream_time, task.stream_time
        done = 0
        unreadable: set[int] = set()
        try:
            for key, value, timestamp, offset, header in zip(
                keys, values, timestamps, offsets, headers, strict=False
            ):
                task.offset, task.timestamp, task.headers = offset, timestamp, header
                try:
                    if key is not None:
                        key = key_of(key)
                    if value is not None:
                        value = value_of(value)
                except Exception as error:
                    why = queue.explain(keys[done], values[done], error)
                    self._failures.deserialization(why, source.name)
                    unreadable.add(done)
                    done += 1
                    continue
                if timestamp > stream_time:
                    task.stream_time = stream_time = timestamp
                elif timestamp < 0:
                    raise StreamsError(
                        f"record of {queue.partition} at offset {offset} has timestamp {timestamp}: "
                        "it was written without one. Give the source a timestamp_extractor"
                    )
                try:
                    process(key, value, timestamp, header)
                except ProcessingFailed:
                    raise
                except Exception as error:
                    self._failures.behind_source(error, source.name)
                done += 1
                if stream_time >= stream.next_time:
                    self._punctuators.call_due(stream, stream_time)
        finally:
            if done:
                self.positions[queue.partition] = offsets[done - 1] + 1
                times = timestamps[:done]
                if unreadable:  # as in Kafka Streams, these records move no time
                    times = [time for number, time in enumerate(times) if number not in unreadable]
                queue.partition_time = max(queue.partition_time, max(times, default=-1))
                queue.advance(done)
                task.metrics.processed += done
            task.batch = None
        return done

    def _run_extracted(self, queue: RecordQueue, bound: int) -> int:
        """Processes one record of a source with a timestamp extractor."""
        head = self._extract_head(queue)
        if head is None:
            return 0
        batch = queue.batch
        assert batch is not None
        key, value, timestamp, headers = head
        task = self._task
        task.offset, task.timestamp, task.headers, task.batch = (
            batch.offsets[queue.at],
            timestamp,
            headers,
            batch,
        )
        task.stream_time = max(task.stream_time, timestamp)
        try:
            queue.process(key, value, timestamp, headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.behind_source(error, queue.source.name)
        queue.head = None
        queue.partition_time = max(queue.partition_time, timestamp)
        self.pass_over(queue)
        task.metrics.processed += 1
        stream = self._punctuators.by_stream_time
        if task.stream_time >= stream.next_time:
            self._punctuators.call_due(stream, task.stream_time)
        return 1

    def _queue(self, partition: TopicPartition) -> RecordQueue:
        queue = self.queues.get(partition)
        if queue is None:
            task = self._task
            source = self._subtopology.source_of(partition.topic)
            if source is None:
                raise StreamsError(
                    f"task {task.task_id} got records of topic {partition.topic}, which sub-topology "
                    f"{self._subtopology.id} does not read; it reads {', '.join(self._subtopology.source_topics)}"
                )
            extractor = extractor_of(source, task.plan.config)
            queue = RecordQueue(partition, source, self._bound[source.name], extractor)
            queue.partition_time = self.partition_times.get(partition, -1)
            self.queues[partition] = queue
        return queue
