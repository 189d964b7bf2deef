"""Retry topics (`Retry.topics`): a record that fails waits in an internal topic, and then comes back for an attempt.

    Staged -> (retry topic 1, 2, ...) -> Delayed -> (topic of records that come back) -> Staged, with ``again``

Each delay has a topic. Later records do not wait, so the order of the records changes. A record travels as a
`ParkedRecord`, which has its source. So a later attempt sees the timestamp and headers of the first attempt. A dead
letter names the topic, partition and offset where the record was read first.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from streamapp.engine.judging import ProcessingFailed, no_fault_of_the_record, short
from streamapp.engine.operator import NodeContext, Operator, ParkedStatus, ProcessFn
from streamapp.engine.operators.alarm import Alarm
from streamapp.engine.operators.attempts import verdict
from streamapp.engine.operators.guarded import HeldContext
from streamapp.engine.parked import ParkedRecord, ParkedRecords
from streamapp.errors import UnsupportedOperation
from streamapp.on_error import Retry
from streamapp.records import NO_HEADERS, Headers
from streamapp.serdes.base import Serde

__all__ = ["Delayed", "ParkedRecordSerde", "Staged", "partition_it_came_from"]

_AT_ONCE = 1_000
"""The largest number of records that a task takes out of a retry topic and keeps until they are due.

There is no limit if the task runs other sub-topologies, too, because a full retry topic would hold them back.
"""


class ParkedRecordSerde(Serde[ParkedRecord]):
    """The serde of retry topics. Values are JSON, so that `streamapp topic read` shows them as text."""

    persistent_name = "ParkedRecordSerde"

    def serialize(self, value: ParkedRecord) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> ParkedRecord:
        return ParkedRecord.decode(data)


def partition_it_came_from(topic: str, key: Any, value: ParkedRecord, count: int) -> int:
    """The partitioner of retry topics: a record keeps the partition number of its source, modulo the topic's number of
    partitions."""
    return value.source.partition % count


@dataclass(frozen=True)
class Staged(Operator):
    """Runs an operator that calls one function of the user. If this function raises, the record goes to a retry topic.

    The topic is that of the record's next delay; if a service has failed, that of the same delay again. After the last
    delay, the record follows ``then`` of the `Retry`. If ``choose`` of the `Retry` returns an answer other than
    "retry", the record follows this answer at once. Errors of disk, brokers or schema registry are raised.

    ``sinks`` are the children that write the retry topics, one for each delay. ``again`` is True for the second
    operator, which gets the records that come back, each a `ParkedRecord`. ``named`` is the operator's name in dead
    letters and counters.
    """

    persistent_name = "Staged"

    operator: Operator
    retry: Retry
    named: str
    sinks: tuple[str, ...]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    again: bool = False
    raises: bool = False
    """True: exceptions of the first attempt come out, and no record goes to a retry topic."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return (*self.operator.side_outputs, *self.sinks)

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        topic = f"{application_id}-{self.named}-retry"
        return self.key_serde.bind(topic, True), self.value_serde.bind(topic, False)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        if ctx.task.retries_at_once:
            raise UnsupportedOperation(
                self.named,
                "Spark",
                "its records wait in retry topics by the wall clock",
                "Use Retry.by_key() or Retry.in_place(), whose attempts follow each other at once there",
            )
        if self.raises and not self.again:
            return self.operator.bind(ctx)
        attempts = _Attempts(self, ctx)
        return attempts.come_back if self.again else attempts.process


class _Attempts:
    def __init__(self, described: Staged, ctx: NodeContext) -> None:
        self._task, self._retry, self._delays = ctx.task, described.retry, described.retry.delays_ms
        self._held = HeldContext(ctx)
        self._held.name = described.named
        self._run = described.operator.bind(self._held)
        self._release = ctx.handled(self._held.release)
        self._keys, self._values = described.bound_serdes(ctx.task.application_id)
        self._sinks = [ctx.forward_to(sink) for sink in described.sinks]

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """The first attempt."""
        try:
            self._run(key, value, timestamp, headers)
        except Exception as error:
            self._held.discard()
            # Only a record that fails is serialized, because this costs time.
            record = ParkedRecord(
                None if key is None else self._keys.serialize(key),
                None if value is None else self._values.serialize(value),
                timestamp,
                headers,
                self._task.record_context,
                self._task.wall_clock_ms(),
            )
            self._failed(record, error)
            return
        self._held.release()

    def come_back(self, key: Any, record: ParkedRecord, timestamp: int, headers: Headers) -> None:
        """The next attempt of a record that comes back from a retry topic."""
        self._task.work_as(record.source, self._try, record)

    def _try(self, record: ParkedRecord) -> None:
        try:
            key = None if record.key is None else self._keys.deserialize(record.key)
            value = None if record.value is None else self._values.deserialize(record.value)
            self._run(key, value, record.timestamp, record.headers)
        except Exception as error:
            self._held.discard()
            self._failed(record, error)
            return
        self._release()

    def _failed(self, record: ParkedRecord, error: Exception) -> None:
        if isinstance(error, ProcessingFailed) or no_fault_of_the_record(error):
            raise error
        held, retry, attempt = self._held, self._retry, record.attempts + 1
        answer = verdict(retry, held, error, attempt)
        if answer == "retry" and attempt > len(self._delays):
            answer = retry.then
        if answer != "retry" and answer != "pause":
            reason = "retries_exhausted" if answer == retry.then else "skipped"
            held.failures.settle(error, held.name, answer, attempt=attempt, reason=reason)
            return
        if answer == "retry":
            record.attempts = attempt
        stage = max(0, record.attempts - 1)
        record.error = short(error)
        record.due = self._task.wall_clock_ms() + self._delays[stage]
        self._sinks[stage](record.key, record, record.timestamp, NO_HEADERS)


@dataclass(frozen=True)
class Delayed(Operator):
    """Keeps the records of a retry topic until their delay is over, then hands them on."""

    persistent_name = "Delayed"

    store: str
    delay_ms: int
    """The time that a record waits, in ms."""

    def bind(self, ctx: NodeContext) -> ProcessFn:
        waiting = _Delay(self, ctx)
        ctx.task.add_parking(ctx.name, waiting)
        return waiting.process


class _Delay:
    """The records that a task has taken out of one retry topic.

    All records of the topic have the same delay, so they are due in the order in which they came, and one lane is
    enough.
    """

    def __init__(self, described: Delayed, ctx: NodeContext) -> None:
        self._task, self._name, self._forward = ctx.task, ctx.name, ctx.handled(ctx.forward)
        self._records = ParkedRecords(ctx.store(described.store))
        self._most = sys.maxsize if ctx.task.one_task else _AT_ONCE
        self._alarm = Alarm(self._task, self._name, self._on_time)
        self._delay = described.delay_ms
        self._hurry()
        self._task.follow_clock(self._hurry)

    @property
    def room(self) -> int:
        return max(0, self._most - self._records.records)

    @property
    def parked(self) -> ParkedStatus:
        records = self._records
        return ParkedStatus(
            self._name, len(records.lanes), records.records, records.bytes, self._alarm.time, self.room == 0
        )

    def process(self, key: Any, record: ParkedRecord, timestamp: int, headers: Headers) -> None:
        record.due = min(record.due, self._latest)
        self._records.park(b"", record)
        self._wake()

    def _on_time(self, now: int) -> None:
        while (lane := self._records.take_due(now)) is not None:
            record = lane.head
            self._task.work_as(record.source, self._forward, record.key, record, record.timestamp, NO_HEADERS)
            if self._records.remove_head(lane):
                self._records.make_due(lane, min(max(lane.head.due, 0), self._latest))
        self._wake()

    @property
    def _latest(self) -> int:
        return self._task.wall_clock_ms() + self._delay

    def _hurry(self, _: int = 0) -> None:
        """Lets no record wait for longer than the delay, because the clock may have been set back."""
        self._records.hurry(self._latest)
        self._wake()

    def _wake(self) -> None:
        self._alarm.set(self._records.next_due)
