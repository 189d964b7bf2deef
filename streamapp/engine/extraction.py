"""Decodes the first record of an input queue before the task chooses its next record, for two reasons.

A timestamp extractor needs the decoded record, and the timestamps decide which input is next. Also, the other inputs
must not wait for a record that cannot be decoded and that the exception handler drops. For the second reason, records
are decoded early only if ``max_task_idle_ms`` is over 0.
"""

from __future__ import annotations

from typing import Any

from streamapp.engine.failures import Failures
from streamapp.engine.queues import ConsumedRecord, DecodedRecord, RecordQueue
from streamapp.engine.running_task import RunningTask
from streamapp.errors import StreamsError
from streamapp.records import MAX_LONG, RecordBatch
from streamapp.serdes.types import excerpt

__all__ = ["extract_head", "try_head"]


def extract_head(task: RunningTask, failures: Failures, queue: RecordQueue) -> DecodedRecord | None:
    """Decodes the first record of the queue (the head), and gives this record the timestamp of the extractor.

    If the extractor gives a negative timestamp, the record is dropped and the next record becomes the head. The same
    happens with a record that cannot be decoded, if the exception handler drops the record. Returns None if no record
    is left.

    Raises `StreamsError` if the extractor raises or gives no int (`Failures.extraction`), or if the task must stop (see
    `Failures.deserialization`).
    """
    assert queue.extractor is not None
    while queue.head is None and (batch := queue.batch) is not None:
        offset, timestamp, headers = batch.offsets[queue.at], batch.timestamps[queue.at], queue.raw_headers()
        topic, partition = queue.partition
        decoded = _decode_head(task, failures, queue, batch)
        if decoded is None:
            continue
        key, value = decoded
        record = ConsumedRecord(topic, partition, offset, timestamp, key, value, headers)
        try:
            timestamp = queue.extractor(record, queue.partition_time)
        except StreamsError:
            raise
        except Exception as error:
            raise failures.extraction(error, queue.source.name) from None
        if not isinstance(timestamp, int) or timestamp > MAX_LONG:
            wrong = TypeError(
                f"it has to give an int, ms since 1970 in at most 64 bits, and gave {excerpt(timestamp)}"
            )
            raise failures.extraction(wrong, queue.source.name)
        if timestamp < 0:
            task.drop(1, queue.source.name, "negative_timestamp")
            task.pass_over(queue)
            continue
        queue.head = (key, value, timestamp, headers)
    return queue.head


def try_head(task: RunningTask, failures: Failures, queue: RecordQueue) -> None:
    """Drops records at the head of the queue that cannot be decoded, so that no other input waits for these records.

    While the first record of the queue cannot be decoded, asks the exception handler, and drops the record if the
    handler says so. Stops at a record that can be decoded, or at the end of the queue.

    Raises `StreamsError` if the handler does not drop the record. Errors of the disk or the brokers are raised without
    a question to the handler (`no_fault_of_the_record`). The decoded key and value are not kept, so the task decodes
    the record again when it processes the record.
    """
    while (batch := queue.batch) is not None and batch.offsets[queue.at] != queue.decodable:
        if _decode_head(task, failures, queue, batch) is not None:
            queue.decodable = batch.offsets[queue.at]


def _decode_head(
    task: RunningTask, failures: Failures, queue: RecordQueue, batch: RecordBatch
) -> tuple[Any, Any] | None:
    """Key and value of the record at the head; None if they cannot be decoded, and the record was dropped."""
    at = queue.at
    raw_key, raw_value = batch.keys[at], batch.values[at]
    task.topic, task.offset, task.timestamp, task.headers, task.batch = (
        queue.partition.topic,
        batch.offsets[at],
        batch.timestamps[at],
        queue.raw_headers(),
        batch,
    )
    try:
        return (
            None if raw_key is None else queue.key_of(raw_key),
            None if raw_value is None else queue.value_of(raw_value),
        )
    except Exception as error:
        failures.deserialization(queue.explain(raw_key, raw_value, error), queue.source.name)
        task.pass_over(queue)
        return None
