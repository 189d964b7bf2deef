"""Sources with a timestamp extractor: their records are decoded before it is known which one is next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamapp.engine.failures import Failures
from streamapp.engine.queues import ConsumedRecord, DecodedRecord, RecordQueue
from streamapp.errors import StreamsError

if TYPE_CHECKING:
    from streamapp.engine.task import Task

__all__ = ["extract_head"]


def extract_head(task: Task, failures: Failures, queue: RecordQueue) -> DecodedRecord | None:
    """Decodes the record at the head and asks for its timestamp; passes over records that are to be dropped."""
    assert queue.extractor is not None
    while queue.head is None and (batch := queue.batch) is not None:
        at, headers = queue.at, queue.raw_headers()
        raw_key, raw_value, offset, timestamp = (
            batch.keys[at],
            batch.values[at],
            batch.offsets[at],
            batch.timestamps[at],
        )
        topic, partition = queue.partition
        task.topic, task.offset, task.timestamp, task.headers, task.batch = (
            topic,
            offset,
            timestamp,
            headers,
            batch,
        )
        try:
            key = None if raw_key is None else queue.key_of(raw_key)
            value = None if raw_value is None else queue.value_of(raw_value)
        except Exception as error:
            failures.deserialization(queue.explain(raw_key, raw_value, error), queue.source.name)
            task.pass_over(queue)
            continue
        record = ConsumedRecord(topic, partition, offset, timestamp, key, value, headers)
        try:
            timestamp = queue.extractor(record, queue.partition_time)
        except StreamsError:
            raise
        except Exception as error:
            raise StreamsError(
                f"the timestamp extractor of {queue.source.name} failed for {record}: {error}"
            ) from error
        if not isinstance(timestamp, int):
            raise StreamsError(
                f"the timestamp extractor of {queue.source.name} gave {timestamp!r} for {record}: it has to give an int, ms since the epoch"
            )
        if timestamp < 0:
            task.drop()
            task.pass_over(queue)
            continue
        queue.head = (key, value, timestamp, headers)
    return queue.head
