"""`Dispatcher`: decides which records go to the handler, and when.

One lock guards all state of the dispatcher. The dispatcher calls neither Kafka nor the handler, so the lock is never
held for long.

The thread that polls Kafka puts records in (`take_in`), and the pump takes units out (`next_unit`). A unit is the
records of one call of the handler. `Handling`, which makes the call, reports the outcome of each record (`finished`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf

from streamapp.broker.removed_records import RemovedRecords
from streamapp.consumer.account import Account, ConsumerMetrics
from streamapp.consumer.batching import Batch
from streamapp.consumer.circuit import Circuit, CircuitBreaker
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.done_offsets import DoneOffsets, decode_done
from streamapp.consumer.lanes import Item, PartitionLanes, Unit
from streamapp.consumer.outputs import Output, Step, WaitingOutputs
from streamapp.consumer.room import Room
from streamapp.consumer.turns import Turns
from streamapp.consumer.verdicts import Settled
from streamapp.engine.judging import ONLY_GROUP
from streamapp.records import NO_HEADERS, Headers, OutputRecord, RecordBatch, TopicPartition

__all__ = ["Dispatcher"]

logger: logging.Logger = logging.getLogger(__name__)

_STEP_SECONDS = 0.05


class Dispatcher:
    """The records of all partitions of one consumer. Several threads may share a `Dispatcher`."""

    def __init__(self, options: ConsumeOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._clock = options, clock
        self.changed: threading.Condition = threading.Condition()
        self._partitions: dict[TopicPartition, PartitionLanes] = {}
        self._turns = Turns(options.batch or Batch(records=1), self._partitions)
        self._room = Room(options, self._partitions)
        self._turned_away: deque[Unit] = deque()
        self._running: dict[Unit, float] = {}
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._outputs = WaitingOutputs()
        self._account = Account()
        self.circuit: Circuit = Circuit(options.name, options.circuit_breaker or CircuitBreaker())
        self.removed: RemovedRecords = RemovedRecords()
        """Records that were gone before the consumer could read them."""
        self.log_ends: dict[TopicPartition, int] = {}
        """The ends of the logs, as brokers have told last. The thread that polls writes them."""
        self.leaderless: frozenset[TopicPartition] = frozenset()
        """The partitions for whose leaders the consumer waits, as its subscription tells. Any thread may ask."""
        self.failure: Exception | None = None
        self.stopping: bool = False
        """True after `stop`: no further record goes to the handler."""
        self._member_until = inf

    # ------------------------------------------------------------------ partitions come and go

    def open(
        self,
        source: TopicPartition,
        position: int | None,
        done: Collection[int] = (),
        fence: int = 0,
        topic_id: str | None = None,
        *,
        new_begin: bool = False,
    ) -> None:
        """Adds a partition that the group has assigned to this member.

        ``done`` are offsets after ``position`` whose records are done already. If a database saves the offsets,
        ``fence`` is the number that its row for the partition has for this owner (`SavedOffset`). ``topic_id`` is the
        id of the topic, if known. With ``new_begin``, the partition gives the handler no record before `committed`.
        """
        partition = PartitionLanes(
            source, DoneOffsets(position, done, topic_id), by_key=self._options.ordered_by == "key"
        )
        partition.fence, partition.new_begin = fence, new_begin
        partition.start = None if position is None else (position, done)
        with self.changed:
            self._partitions[source] = partition
            self._committed.pop(source, None)
            self._turns.add(source)

    def close(
        self, sources: Collection[TopicPartition], seconds: float, meanwhile: Callable[[], None]
    ) -> bool:
        """Gives the handler no more records of these partitions, and waits for the calls that have begun.

        Returns False if a call has not returned after ``seconds``. The waiting thread calls ``meanwhile`` every 50 ms
        or sooner, for its other work.
        """
        deadline = time.monotonic() + seconds
        with self.changed:
            partitions = [self._partitions[source] for source in sources if source in self._partitions]
            for partition in partitions:
                partition.closed = True
                self._account.returned += partition.drop_waiting()
        while any(partition.in_work for partition in partitions) and time.monotonic() < deadline:
            meanwhile()
            with self.changed:
                if any(partition.in_work for partition in partitions):
                    self.changed.wait(max(0.0, min(_STEP_SECONDS, deadline - time.monotonic())))
        with self.changed:
            late = [unit for unit in self._running if unit.partition in partitions]
        for unit in late:
            logger.warning(
                "%s does not wait any longer for the call with the record of %s at offset %d",
                self._options.name,
                unit.partition.source,
                unit.items[0].offset,
            )
        return not late

    def forget(self, sources: Collection[TopicPartition]) -> None:
        """Removes partitions, for example because they belong to another member now.

        Calls of the handler that have begun go on, but the dispatcher ignores their outcome.
        """
        with self.changed:
            for source in sources:
                partition = self._partitions.pop(source, None)
                if partition is None:
                    continue
                partition.closed = partition.lost = True
                self._account.returned += partition.drop_waiting() + partition.in_work
                self._turns.remove(source)
                self._committed.pop(source, None)
                self._outputs.drop(source)
                self._room.paused.discard(source)
            self._turned_away = deque(unit for unit in self._turned_away if not unit.partition.lost)
            self.changed.notify_all()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused because too many of their records wait."""
        return frozenset(self._room.paused)

    def wake(self) -> None:
        """Wakes all threads that wait for a change, so that they look again."""
        with self.changed:
            self.changed.notify_all()

    def confirm(self, seconds: float) -> None:
        """Notes that this consumer is a member of its group, at least for ``seconds``.

        If the next `confirm` comes later, no call of the handler begins before it.
        """
        with self.changed:
            overdue, self._member_until = self.overdue, self._clock() + seconds
            if overdue:
                self.changed.notify_all()

    @property
    def overdue(self) -> bool:
        """True if the time of the last `confirm` is over: the group may have given the partitions to others."""
        return self._clock() >= self._member_until

    @property
    def has_new_begins(self) -> bool:
        """True while a partition waits for the commit of its begin."""
        with self.changed:
            return any(partition.new_begin for partition in self._partitions.values())

    @property
    def sources(self) -> list[TopicPartition]:
        with self.changed:
            return sorted(self._partitions)

    def owns(self, partition: PartitionLanes) -> bool:
        """True if the partition still belongs to this member, and was not lost and assigned anew meanwhile."""
        return self._partitions.get(partition.source) is partition

    # ------------------------------------------------------------------ records come

    def take_in(self, source: TopicPartition, batch: RecordBatch) -> None:
        """Takes records of a partition, in order of their offsets. Records that are done already are skipped.

        If the partition was never opened, or is closed by now, all records are left out. Offsets below those of earlier
        records mean that the log was cut off, or that the topic was created anew. The partition then begins anew, and
        keeps only its fence. Its commits then name no topic, because their positions belong to the log of today.
        """
        with self.changed:
            partition = self._partitions.get(source)
            if partition is None or partition.closed:
                return
            if not partition.waiting:
                self._turns.came(source, self._clock())
            if partition.done.end is not None and batch.offsets[0] < partition.done.end:
                logger.warning(
                    "%s: the offsets of %s begin anew at %d: its log was cut off, or the topic was created anew",
                    self._options.name,
                    source,
                    batch.offsets[0],
                )
                fence = partition.fence
                self.forget([source])
                self.open(source, None, (), fence)
                partition = self._partitions[source]
            done = partition.done
            partition.start = partition.start or (batch.offsets[0], ())
            for at, offset in enumerate(batch.offsets):
                if not done.take(offset):
                    self._account.already_done += 1
                    continue
                headers = batch.headers[at] if batch.headers is not None else NO_HEADERS
                if headers and self._is_for_others(source, headers):
                    done.finish([offset])
                    self._account.for_others += 1
                    continue
                self._account.taken += 1
                item = Item(offset, batch.timestamps[at], batch.keys[at], batch.values[at], headers)
                item.alone = offset in partition.suspects
                if self._room.turns_away(partition) and partition.is_parked(item):
                    self._turned_away.append(partition.turn_away(item))
                else:
                    partition.add(item)
            self.changed.notify_all()

    def _is_for_others(self, source: TopicPartition, headers: Headers) -> bool:
        """True for a record that the desk has replayed for another consumer group only."""
        wanted = dict(headers).get(ONLY_GROUP)
        if wanted is None:
            return False
        topic, _, group = wanted.decode(errors="replace").partition(" ")
        return topic == source.topic and group != self._options.name

    def reach_end(self, source: TopicPartition, end: int) -> None:
        """Notes the end of a log, up to which all records were given to `take_in`.

        Without this note, the commit would stay in front of the transaction markers behind the last record. Kafka's own
        tools would then show a lag of the group although all records are done. In a closed partition, `take_in` may
        have left records out, so its position stays.
        """
        with self.changed:
            partition = self._partitions.get(source)
            if partition is not None and not partition.closed:
                partition.done.reach(end)

    def flow(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions to pause because too many of their records wait, and the partitions to resume."""
        with self.changed:
            return self._room.change()

    # ------------------------------------------------------------------ records go

    def next_unit(self) -> Unit | None:
        """The next unit to run, which counts as running from now on; None if no unit may run now.

        The caller holds the lock.
        """
        now = self._clock()
        if self.stopping or self.failure is not None or self._outputs.full or self.overdue:
            return None
        if len(self._running) >= self._options.parallelism:
            return None
        unit = self._turned_away.popleft() if self._turned_away else self._take(now)
        if unit is not None:
            self._running[unit] = now
        return unit

    def _take(self, now: float) -> Unit | None:
        trial = self.circuit.error is not None
        if trial and not self.circuit.allows_trial(now, sum(unit.probe for unit in self._running)):
            return None
        return self._turns.next(now, probe=trial)

    def next_time(self) -> float | None:
        """Seconds until the next retry, the next attempt of a failed service, or the end of the wait for a full batch.
        None if none of these will come.

        The caller holds the lock.
        """
        times = [due for each in self._partitions.values() if (due := each.next_due()) is not None]
        if self.circuit.error is not None:
            times.append(self.circuit.due)
        else:
            times += self._turns.times()
        now = self._clock()
        # A lane whose time has come waits for something else, such as a free thread. The end of this wait wakes the
        # pump.
        return min((at - now for at in times if at > now), default=None)

    def started(self, units: Iterable[Unit]) -> None:
        """Counts the records of the units as done before the handler is called (at most once)."""
        with self.changed:
            for unit in units:
                unit.partition.done.finish(item.offset for item in unit.items)

    def finished(self, unit: Unit, settled: Settled, seconds: float, called: int) -> None:
        """Notes the outcome of a unit. The call of the handler has taken ``seconds``, and had ``called`` records."""
        partition, account = unit.partition, self._account
        with self.changed:
            began = self._running.pop(unit, None)
            if began is None:
                return
            account.calls += called > 0
            account.call_seconds += seconds
            if called and settled.pause is None and not settled.back and not partition.lost:
                self._turns.took(partition.source, called, seconds)
            if self._options.retry is not None and (called or settled.pause is not None):
                self.circuit.called(
                    settled.pause, self._options.retry.backoff, self._clock(), trial=unit.probe
                )
            if partition.lost:
                partition.in_work -= len(unit.items)
            else:
                over = [*settled.done, *settled.skipped, *settled.dead]
                account.done += len(settled.done)
                account.skipped += len(settled.skipped)
                account.dead += len(settled.dead)
                partition.done.finish(item.offset for item in over)
                if self._options.output is not None:
                    self._outputs.add(unit, settled.outputs, settled.letters)
                self._give_back(unit, settled)
            self.changed.notify_all()
        if settled.fail is not None:
            self.fail(settled.fail)

    def _give_back(self, unit: Unit, settled: Settled) -> None:
        partition, back = unit.partition, settled.back
        if partition.closed:
            partition.finished(unit)
            self._account.returned += len(back)
            return
        delay, parked = settled.delay_ms, settled.delay_ms is not None
        if settled.pause is not None and not parked and self.circuit.error is None:
            delay = settled.pause_ms  # an open circuit breaker has a wait of its own
        due = None if delay is None else self._clock() + delay / 1000
        self._account.retries += len(back)
        partition.put_back(unit, back, due, parked=parked)
        retry = self._options.retry
        if due is not None and retry is not None and retry.by == "partition":
            partition.holding = unit.parts[0][0]

    # ------------------------------------------------------------------ positions

    def position_with(self, partition: PartitionLanes, offsets: Iterable[int]) -> tuple[int, str]:
        """Position and metadata to save for a partition in a transaction that makes these records done."""
        with self.changed:
            found = partition.done.committed(offsets)
        assert found is not None
        return found

    def mark_done(self, partition: PartitionLanes, items: Iterable[Item]) -> None:
        """Notes that a database has committed the transaction of these records, so they are done."""
        with self.changed:
            partition.done.finish(item.offset for item in items)

    def positions(
        self, sources: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Position and metadata for each partition in which they have changed since the last commit. ``sources``, if
        given, are the only partitions in the result."""
        with self.changed:
            return self._positions(sources)

    def _positions(self, sources: Collection[TopicPartition] | None) -> dict[TopicPartition, tuple[int, str]]:
        found = {}
        for source, partition in self._partitions.items():
            if sources is not None and source not in sources:
                continue
            position = partition.done.committed()
            if position is not None and position != self._committed.get(source):
                found[source] = position
        return found

    def committed(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Notes that Kafka has committed these positions, so `positions` gives only newer ones."""
        with self.changed:
            self._account.commits += 1
            for source, position in positions.items():
                partition = self._partitions.get(source)
                if partition is None:
                    continue
                self._committed[source] = position
                if partition.new_begin:
                    partition.new_begin = False
                    self.changed.notify_all()

    def step(self, sources: Collection[TopicPartition] | None = None) -> Step:
        """The next transaction: the result of `positions`, and the outputs of the calls that these positions include.

        A partition with a refused output is left out until the time of its next attempt.
        """
        with self.changed:
            now = self._clock()
            positions = {
                source: each
                for source, each in self._positions(sources).items()
                if self._partitions[source].held_until <= now
            }
            partitions = {source: self._partitions[source] for source in positions}
            return Step(positions, partitions, self._outputs.of(positions))

    def step_committed(self, step: Step) -> None:
        """Notes that Kafka has committed the transaction of a step. The positions of partitions that were lost
        meanwhile are ignored."""
        with self.changed:
            owned = [source for source, partition in step.partitions.items() if self.owns(partition)]
            self._outputs.committed(step.outputs, owned)
            self._account.outputs += len(step.outputs)
            self.committed({source: step.positions[source] for source in owned})
            self.changed.notify_all()

    # ------------------------------------------------------------------ outputs that brokers refuse

    def refused(self, unit: Unit, settled: Settled) -> None:
        """Notes that brokers refuse an output of a finished call. ``settled`` is the new outcome of its only record."""
        partition, account = unit.partition, self._account
        with self.changed:
            if partition.lost:
                return
            if settled.fail is not None:
                partition.held_until = inf
            elif settled.back:
                account.retries += 1
                partition.held_until = self._clock() + (settled.delay_ms or 0) / 1000
            else:
                account.done -= 1
                account.skipped += len(settled.skipped)
                account.dead += len(settled.dead)
                self._outputs.replace(unit, settled.letters)
        if settled.fail is not None:
            self.fail(settled.fail)

    def letter_again(self, output: Output, letter: OutputRecord) -> None:
        """Puts another letter in the place of a dead letter that brokers refuse, for the next transaction."""
        with self.changed:
            self._outputs.exchange(output, letter)

    def repeat(self, unit: Unit) -> None:
        """Drops the waiting records of a batch's partition. `begin_anew` then reads all uncommitted records again.

        Each record of the batch then gets a call of its own.
        """
        partition = unit.partition
        with self.changed:
            if partition.lost:
                return
            partition.closed, partition.held_until = True, inf
            self._account.returned += partition.drop_waiting()
            partition.repeats.update(item.offset for item in unit.items)

    def begin_anew(self) -> dict[TopicPartition, int]:
        """Resets the partitions of `repeat` to their last commit, and returns the offset from which to read each.

        A partition with records in a call of the handler stays until a later call of this method.
        """
        begun = {}
        with self.changed:
            for source, partition in list(self._partitions.items()):
                if not partition.repeats or partition.in_work or self.stopping:
                    continue
                assert partition.start is not None
                position, done = partition.start
                if source in self._committed:
                    position, metadata = self._committed[source]
                    done = decode_done(position, metadata)
                self.forget([source])
                self.open(source, position, done, topic_id=partition.done.topic_id)
                # Another batch may have begun the partition anew before, and its records are not all committed yet.
                suspects = frozenset(each for each in partition.suspects if each >= position)
                self._partitions[source].suspects = suspects | partition.repeats
                begun[source] = position
        return begun

    def partition(self, source: TopicPartition) -> PartitionLanes | None:
        with self.changed:
            return self._partitions.get(source)

    # ------------------------------------------------------------------ the end, and what is seen

    def fail(self, error: Exception) -> None:
        """Ends the consumer with this error. Only the first error counts."""
        with self.changed:
            if self.failure is None:
                self.failure = error
            self.changed.notify_all()

    def stop(self) -> None:
        """Gives the handler no more records. Calls of the handler that have begun go on."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def running(self) -> list[tuple[Unit, float]]:
        """The units whose call has not returned, each with the seconds since its start. The longest call comes
        first."""
        with self.changed:
            now = self._clock()
            return sorted(
                ((unit, now - began) for unit, began in self._running.items()), key=lambda each: -each[1]
            )

    def lag(self) -> dict[str, int]:
        """The offsets from the first record that is not done to the end of the log, for partitions whose position and
        end are known."""
        with self.changed:
            found = [
                (source, partition.done.position, self.log_ends.get(source))
                for source, partition in sorted(self._partitions.items())
            ]
        return {
            str(source): max(0, end - (position or 0))
            for source, position, end in found
            if end is not None and (position is not None or end == 0)
        }

    def look(self) -> tuple[ConsumerMetrics, tuple[str, ...], tuple[str, ...]]:
        """The counts, the names of the partitions, and the names of the paused partitions, all of the same moment."""
        with self.changed:
            partitions = self._partitions.values()
            metrics = self._account.metrics(
                sum(partition.in_work for partition in partitions),
                sum(partition.waiting for partition in partitions),
                sum(partition.parked for partition in partitions),
            )
            return (
                metrics,
                tuple(sorted(str(source) for source in self._partitions)),
                tuple(sorted(str(source) for source in self._room.paused)),
            )
