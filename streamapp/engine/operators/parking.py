"""`Parking`: an operator whose failed records wait in a store for another attempt (`Retry.by_key`, `Retry.in_place`).

Records wait in lanes. With `Retry.by_key` a lane is a key, and each record without a key has a lane of its own. With
`Retry.in_place` the whole partition is one lane. A record waits behind earlier records of its lane, so the order within
a lane stays. An attempt gives all results of a record or none. Waiting records, with the number of their attempts, are
committed together with the positions of the inputs. So after a crash, the task goes on as at the last commit.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from streamapp._base.counted import counted
from streamapp.engine.judging import ProcessingFailed, no_fault_of_the_record, short
from streamapp.engine.operator import NodeContext, Operator, ParkedStatus, ProcessFn
from streamapp.engine.operators.alarm import Alarm
from streamapp.engine.operators.attempts import bind_at_once, verdict
from streamapp.engine.operators.guarded import HeldContext
from streamapp.engine.parked import Lane, ParkedRecord, ParkedRecords
from streamapp.errors import SerializationError
from streamapp.on_error import Retry
from streamapp.records import Headers
from streamapp.serdes.base import Serde

__all__ = ["Parking"]

logger: logging.Logger = logging.getLogger(__name__)

_MOST_MS = 1_000
"""The time after which a call of the punctuator begins no further attempt, so that many waiting records do not hold up
the inputs."""

_SHORT_MS = 1_000
"""A service that is asked again within this time, and answers, gets no line in the log: some services fail for every
tenth request."""

_AT_ONCE = 32
"""The largest number of records that a task takes before it reads ``room`` again, because each may be parked."""


@dataclass(frozen=True)
class Parking(Operator):
    """Runs an operator that calls one function of the user. If the function raises, the record waits in ``store`` for
    another attempt, unless ``choose`` or ``when_full`` of the `Retry` gives another answer."""

    persistent_name = "Parking"

    operator: Operator
    retry: Retry
    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return self.operator.side_outputs

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        topic = f"{application_id}-{self.store}-changelog"
        return self.key_serde.bind(topic, True), self.value_serde.bind(topic, False)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        if ctx.task.retries_at_once:
            return bind_at_once(ctx, self.operator, self.retry, self.store)
        waiting = _Waiting(self, ctx)
        ctx.task.add_parking(ctx.name, waiting)
        return waiting.process


@dataclass(slots=True)
class _Circuit:
    """The state of an open circuit breaker: a service does not answer. Times are ms since the epoch."""

    since: int
    error: str
    attempts: int
    due: int
    lane: bytes
    """The lane whose first record is used to ask the service again."""
    logged: bool = False


class _Waiting:
    """The waiting records of one operator in one task: parks records, tries them again, opens the circuit breaker."""

    def __init__(self, described: Parking, ctx: NodeContext) -> None:
        self._ctx, self._task, self._name = ctx, ctx.task, ctx.name
        self._retry = described.retry
        self._keys, self._values = described.bound_serdes(ctx.task.application_id)
        self._held = HeldContext(ctx)
        self._run = described.operator.bind(self._held)
        self._release = ctx.handled(self._held.release)
        self._records = ParkedRecords(ctx.store(described.store))
        self._lanes = self._records.lanes
        self._circuit: _Circuit | None = None
        self._alarm = Alarm(self._task, self._name, self._on_time)
        self._hurry()
        self._task.follow_clock(self._hurry)

    # ------------------------------------------------------------------ for the task

    @property
    def room(self) -> int:
        retry = self._retry
        if self._circuit is not None:
            return 0
        if retry.by == "partition":
            return 0 if self._lanes else 1
        if retry.when_full != "wait":
            return _AT_ONCE
        return 0 if self._full else min(_AT_ONCE, retry.max_records - self._records.records)

    @property
    def parked(self) -> ParkedStatus:
        # Other threads ask, too. The lanes may change meanwhile, so only sizes and numbers are read.
        records, circuit = self._records, self._circuit
        return ParkedStatus(
            self._name,
            len(records.lanes),
            records.records,
            records.bytes,
            self._alarm.time,
            self.room == 0,
            None if circuit is None else circuit.error,
            None if circuit is None else circuit.since,
        )

    @property
    def _full(self) -> bool:
        records, retry = self._records, self._retry
        return records.records >= retry.max_records or records.bytes >= retry.max_bytes

    # ------------------------------------------------------------------ new records

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Tries a record. If earlier records of its lane wait or the circuit breaker is open, parks the record."""
        if self._circuit is not None or (self._lanes and self._lane_of(key) in self._lanes):
            self._park(self._lane_of(key, alone=True), key, value, timestamp, headers, None)
            return
        try:
            self._run(key, value, timestamp, headers)
        except Exception as error:
            self._held.discard()
            self._failed_first(key, value, timestamp, headers, error)
            return
        self._held.release()

    def _failed_first(self, key: Any, value: Any, timestamp: int, headers: Headers, error: Exception) -> None:
        if isinstance(error, ProcessingFailed) or no_fault_of_the_record(error):
            raise error
        answer = verdict(self._retry, self._ctx, error, 1)
        if answer == "retry" or answer == "pause":
            self._park(self._lane_of(key, alone=True), key, value, timestamp, headers, error, answer)
        else:
            self._ctx.failures.settle(error, self._name, answer, reason="skipped")

    def _lane_of(self, key: Any, alone: bool = False) -> bytes:
        """The name of a key's lane. With ``alone``, each record without a key gets a lane of its own."""
        # An earlier version of the topology may have had Retry.in_place. Its lane has records of all keys.
        if self._retry.by == "partition" or b"" in self._lanes:
            return b""
        if key is None:
            return b"\0%d" % self._records.next_number if alone else b"\0"
        try:
            return b"\1" + self._keys.serialize(key)
        except Exception as error:
            if no_fault_of_the_record(error):
                raise
            raise self._unwritable("key", error) from error

    def _park(
        self,
        name: bytes,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        error: Exception | None,
        answer: str = "",
    ) -> None:
        now, retry = self._task.wall_clock_ms(), self._retry
        if self._full and retry.when_full != "wait" and answer != "pause" and self._circuit is None:
            full = OverflowError(
                f"{self._name} has no room for another waiting record: it has "
                f"{counted(self._records.records, 'record')} with {counted(self._records.bytes, 'byte')}"
            )
            full.__cause__ = error
            self._ctx.failures.settle(full, self._name, retry.when_full, reason="parking_full")
            return
        try:
            raw_value = None if value is None else self._values.serialize(value)
        except Exception as wrong:
            if no_fault_of_the_record(wrong):
                raise
            raise self._unwritable("value", wrong) from wrong
        record = ParkedRecord(
            None if key is None else self._keys.serialize(key),
            raw_value,
            timestamp,
            headers,
            self._task.record_context,
            now,
        )
        if error is not None:
            self._note_failure(record, error, name, now, answer)
        elif self._circuit is not None:
            record.due = self._circuit.due
        self._records.park(name, record)
        self._wake()

    def _unwritable(self, part: str, error: Exception) -> SerializationError:
        serde = getattr(self, f"_{part}s")
        return SerializationError(
            f"{self._name}: a record cannot wait for its retry, because {type(serde).__name__} does not take its "
            f"{part}: {error}. Give Retry the {part}_serde of the records that come to {self._name}"
        )

    def _note_failure(
        self, record: ParkedRecord, error: Exception, name: bytes, now: int, answer: str
    ) -> None:
        record.error = short(error)
        if answer == "pause":
            self._open_circuit(name, error, now)
            assert self._circuit is not None
            record.due = self._circuit.due
        else:
            record.attempts += 1
            record.due = now + self._retry.backoff.delay_ms(record.attempts, name)

    # ------------------------------------------------------------------ attempts

    def _on_time(self, now: int) -> None:
        try:
            if self._circuit is not None and not self._probe(self._circuit, now):
                return
            until = now + _MOST_MS
            while self._goes_on(until) and (lane := self._records.take_due(now)) is not None:
                self._drain(lane, now, until)
        finally:
            self._wake()

    def _probe(self, circuit: _Circuit, now: int) -> bool:
        """Asks the service again: tries a record that saw the failure. Returns True if the service answers."""
        if now < circuit.due:
            return False
        lane = self._lanes.get(circuit.lane)
        if lane is None:
            self._close_circuit(now)
        elif self._try(lane, now) and lane.name in self._lanes:
            self._records.make_due(lane, now)
        return self._circuit is None

    def _goes_on(self, until: int) -> bool:
        """True if another attempt may begin: time is left, and the circuit breaker is closed."""
        return self._circuit is None and self._task.wall_clock_ms() < until

    def _drain(self, lane: Lane, now: int, until: int) -> None:
        """Tries the records of a lane in their order, until a record fails or the time is over."""
        while self._try(lane, now):
            if lane.name not in self._lanes:
                return
            if not self._goes_on(until):
                self._records.make_due(lane, now)
                return

    def _try(self, lane: Lane, now: int) -> bool:
        """Tries the head of a lane. Returns True if the head needs no further attempt."""
        record = lane.head
        done: bool = self._task.work_as(record.source, self._attempt, lane, now)
        if done:
            self._records.remove_head(lane)
        return done

    def _attempt(self, lane: Lane, now: int) -> bool:
        record = lane.head
        try:
            key = None if record.key is None else self._keys.deserialize(record.key)
            value = None if record.value is None else self._values.deserialize(record.value)
            self._run(key, value, record.timestamp, record.headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            if no_fault_of_the_record(error):
                raise
            self._held.discard()
            return self._failed_again(lane, error, now)
        self._close_circuit(now)
        self._release()
        return True

    def _failed_again(self, lane: Lane, error: Exception, now: int) -> bool:
        record, retry = lane.head, self._retry
        answer = verdict(retry, self._ctx, error, record.attempts + 1)
        if answer != "pause":
            self._close_circuit(now)
        if answer == "retry":
            waited = retry.max_age_ms is not None and now - record.since >= retry.max_age_ms
            if waited or (retry.times is not None and record.attempts >= retry.times):
                answer = retry.then
        if answer == "retry" or answer == "pause":
            self._note_failure(record, error, lane.name, now, answer)
            self._records.postpone(lane)
            return False
        reason = "retries_exhausted" if answer == retry.then else "skipped"
        self._ctx.failures.settle(error, self._name, answer, attempt=record.attempts + 1, reason=reason)
        return True

    # ------------------------------------------------------------------ the circuit, and the clock

    def _open_circuit(self, name: bytes, error: Exception, now: int) -> None:
        circuit = self._circuit
        if circuit is None:
            circuit = self._circuit = _Circuit(now, "", 0, 0, name)
        circuit.error, circuit.lane = short(error), name
        circuit.attempts += 1
        circuit.due = now + self._retry.backoff.delay_ms(circuit.attempts, name)
        if not circuit.logged and circuit.due - circuit.since > _SHORT_MS:
            circuit.logged = True
            logger.warning(
                "%s (task %s): a service fails (%s); no further record is taken until it answers",
                self._name,
                self._task.task_id,
                circuit.error,
            )

    def _close_circuit(self, now: int) -> None:
        """Closes the circuit breaker when the service answers. Records that have waited for the service are due now."""
        if self._circuit is None:
            return
        if self._circuit.logged:
            seconds = (now - self._circuit.since) / 1000
            logger.info(
                "%s (task %s): the service answers after %.1f s", self._name, self._task.task_id, seconds
            )
        until, self._circuit = self._circuit.due, None
        for lane in self._records:
            if lane.due <= until:
                self._records.make_due(lane, now)

    def _hurry(self, _: int = 0) -> None:
        """Lets no attempt wait for longer than the longest pause, because the clock may have been set back."""
        latest = self._task.wall_clock_ms() + self._retry.backoff.limit_ms
        self._records.hurry(latest)
        if self._circuit is not None:
            self._circuit.due = min(self._circuit.due, latest)
        self._wake()

    def _wake(self) -> None:
        """Sets the alarm to the next attempt that is due."""
        self._alarm.set(self._circuit.due if self._circuit is not None else self._records.next_due)
