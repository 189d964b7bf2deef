"""`LastingConsumer`: a consumer that goes on after faults from which librdkafka does not recover by itself.

After an outage of all brokers, librdkafka may know no broker any more. After the restart of a broker, librdkafka
sometimes fetches nothing more of one partition, while other partitions go on. There is no error (librdkafka#5153,
#4492, #5591).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.consumer import Client, ColumnConsumer, ConsumerEvent, MessageConsumer, Records
from streamapp.broker.leader_epochs import LeaderEpochs
from streamapp.broker.librdkafka import COMPILED, opening, plain_settings
from streamapp.records import TopicPartition

__all__ = ["Ends", "LastingConsumer", "open_consumer"]

_logger = logging.getLogger(__name__)

REOPEN_SECONDS = 5.0
"""The time that librdkafka has to reach a broker again by itself, before a new client is opened."""
STALL_SECONDS = 60.0
"""The time after which a partition is fetched anew, if none of its records arrives although its log has more."""
MOST_DEFERRED = 2_000
"""The number of records of deferred partitions in a poll.

The records that these make in other partitions can come before further deferred ones, so nothing piles up there.
"""
_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 5.0
"""The time after an assignment in which each `poll` defers partitions again. Afterwards each `look` does."""
_MANY_RECORDS = 100_000
"""The number of records for each partition after which a partition without records counts as stalled.

librdkafka keeps fewer records ready (`queued.min.messages`). So when the consumer has taken this number for each of its
partitions, the next record of a working partition must have come.
"""

Ends = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""A function that returns newly learned ends of committed records, by partition. The function never waits, so its
result is empty most of the time."""


def open_consumer(
    settings: Mapping[str, Any], ends: Ends | None = None, deferred: Callable[[str], bool] | None = None
) -> LastingConsumer:
    """A consumer with librdkafka's settings; the setting ``logger`` is a logger for librdkafka's lines.

    The function ``ends`` tells the ends of the logs. With this function, the consumer fetches a partition anew from its
    position, if no record arrives for a minute although the log has more. In each poll, records of the topics for which
    ``deferred`` returns True come last (`Client.defer`). Raises `ConfigError` for settings that librdkafka refuses.
    """
    logger = settings.get("logger") or _logger

    def open_client() -> Client:
        with opening(settings) as current:
            plain = plain_settings(current) if COMPILED else None
            if plain is None:
                return MessageConsumer(current, logger)  # the only one that takes callbacks in Python
            return ColumnConsumer(plain, logger)

    return LastingConsumer(open_client, CertificateFiles(settings), ends, deferred)


@dataclass(slots=True)
class _Standstill:
    """A partition from which nothing arrives, although its log has more."""

    end: int
    since: float
    judged_at: float
    """The start of the wait for a record: ``since``, or the time when the partition was last fetched anew."""
    taken: int
    """The records that had arrived at that time, of all deferred partitions or of all others."""
    restarts: int = 0
    judged: bool = False
    """True if a record must have come by now. False: records of other partitions may still be in front."""


class LastingConsumer:
    """A `RecordConsumer` that opens its client anew after an outage of all brokers, and keeps its positions.

    A new client is needed because librdkafka (2.10 to 2.16 at least) may never connect again. If the process of a
    broker was paused, its first answer says that there are no brokers, and librdkafka then forgets all of them
    (librdkafka#5301). The consumer also opens a new client when its certificate files have changed, and fetches a
    stalled partition anew.
    """

    def __init__(
        self,
        open_client: Callable[[], Client],
        files: CertificateFiles | None = None,
        ends: Ends | None = None,
        deferred: Callable[[str], bool] | None = None,
    ) -> None:
        self._is_deferred = deferred or (lambda topic: False)
        self._deferred: list[TopicPartition] = []
        self._settled_at = 0.0
        self._open = open_client
        self._files = CertificateFiles({}) if files is None else files
        self._ends = ends
        self._client = open_client()
        self._next: dict[TopicPartition, int] = {}
        self.epochs: LeaderEpochs = LeaderEpochs()
        """The leader epochs of the records that were read. With the epoch of the last record, the client notices a log
        that has lost the record."""
        self._paused: set[TopicPartition] = set()
        self._reopen_at: float | None = None
        self._known_ends: dict[TopicPartition, int] = {}
        """The ends of committed records, as brokers have told them."""
        self.ends: dict[TopicPartition, int] = {}
        """The ends of the logs at the last `look`, as far as they were known. Any thread may read the ends."""
        self._standing: dict[TopicPartition, _Standstill] = {}
        self._drained = False
        """True if a poll has found no records since the last answer of ``ends``."""
        self._taken = {False: 0, True: 0}
        """The records that have arrived: of deferred partitions (True), and of all others."""
        self._looked_at = time.monotonic()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._end_pauses(self._next)
        self._next = dict(positions)
        self._standing.clear()
        self._defer()  # before the first record can arrive
        self._client.assign(*self._starts(positions))
        self._defer_again()

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        self._next.update(positions)
        self._defer()
        self._client.add(*self._starts(positions))
        self._defer_again()

    def _starts(
        self, positions: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The offsets at which the client begins, and the leader epochs of the records before them, if known.

        A leader may compare an epoch only with the end of its record. So the client begins there, and reads the markers
        between this end and the position again.
        """
        ends = {tp: end for tp, offset in positions.items() if (end := self.epochs.before(tp, offset))}
        return {**positions, **{tp: end.offset for tp, end in ends.items()}}, {
            tp: end.epoch for tp, end in ends.items()
        }

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        self._end_pauses(partitions)
        for partition in partitions:
            self._next.pop(partition, None)
            self._standing.pop(partition, None)
            self.epochs.forget(partition)
        self._client.remove(partitions)
        self._defer()

    def _defer(self) -> None:
        """Defers the partitions of the present assignment, now and in the next seconds."""
        self._deferred = [partition for partition in self._next if self._is_deferred(partition.topic)]
        self._settled_at = time.monotonic() + _SETTLE_SECONDS
        self._defer_again()

    def _defer_again(self) -> None:
        if self._deferred:
            self._client.defer(self._deferred, MOST_DEFERRED)

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)
        self._client.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        self._client.resume(partition)

    def _end_pauses(self, partitions: Collection[TopicPartition]) -> None:
        """Resumes paused partitions before they are given up. Their next assignment would still have the pause."""
        for partition in self._paused.intersection(partitions):
            self.resume(partition)

    def poll(self, most: int, timeout: float) -> tuple[Records, list[ConsumerEvent]]:
        if self._deferred and time.monotonic() < self._settled_at:
            self._defer_again()
        found, events = self._client.poll(most, timeout)
        for partition, batch in found:
            self._taken[self._is_deferred(partition.topic)] += len(batch.offsets)
            if partition in self._next:
                self._next[partition] = batch.offsets[-1] + 1
                self.epochs.read(partition, batch)
                self._standing.pop(partition, None)
        for event in events:
            ended = event.error.code() == KafkaError._PARTITION_EOF
            # The event may be older than the records that came with the event.
            if ended and event.offset > self._next.get(event.partition, event.offset):
                self._next[event.partition] = event.offset
                self._standing.pop(event.partition, None)
        self._drained |= not found and not events
        if self._client.take_lost() and self._reopen_at is None:
            self._reopen_at = time.monotonic() + REOPEN_SECONDS
        if self._reopen_at is not None and time.monotonic() >= self._reopen_at:
            _logger.info("all brokers were out of reach: a consumer is opened anew")
            self._reopen()
        elif self._files.changed():
            self._reopen()
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self.look()
        return found, events

    def wake(self) -> None:
        self._client.wake()

    def _reopen(self) -> None:
        # confluent-kafka's consumer takes a whole session (45 s) to close if it knows no broker.
        threading.Thread(target=self._client.close, daemon=True).start()
        self._client = self._open()
        self._client.assign(*self._starts(self._next))
        for partition in self._paused:
            self._client.pause(partition)
        self._defer()
        self._reopen_at = None

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, str]]:
        return self._client.committed(partitions, timeout)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to fetch. Negative: the partition is not read. Any thread may ask."""
        return self._next.get(partition, -1)

    def end(self, partition: TopicPartition) -> int:
        """The offset of the end of the log, from the last fetch or from brokers. Negative: not known yet."""
        return max(self._client.end(partition), self._known_ends.get(partition, -1))

    def close(self) -> None:
        self._client.close()

    # Partitions that librdkafka does not fetch any more.

    @property
    def stalled(self) -> str | None:
        """The partitions that stand still although they were fetched anew, with their positions; None: there are none.

        Any thread may ask.
        """
        now = time.monotonic()
        listed = [
            f"{tp} has stood at offset {self.position(tp)} of {each.end} for {now - each.since:.0f} s"
            for tp, each in sorted(self._standing.copy().items())
            if each.restarts
        ]
        return "; ".join(listed) or None

    def behind_others(self, partition: TopicPartition) -> bool:
        """True if the log has more records of the partition, but records of other partitions may be in front.

        librdkafka gives records in the order of their arrival. Any thread may ask.
        """
        each = self._standing.get(partition)
        return each is not None and not each.judged

    def look_beside(self) -> Mapping[TopicPartition, int]:
        """The ends of logs that brokers have told since the last call. Other threads may call this method, which does
        not touch the client."""
        found: Mapping[TopicPartition, int] = {} if self._ends is None else self._ends(list(self._next))
        self._known_ends.update(found)
        return found

    def look(self) -> None:
        """Learns the ends of the logs, and fetches stalled partitions anew.

        `poll` calls this method at most once a second.
        """
        self._looked_at = now = time.monotonic()
        self._defer_again()
        found = self.look_beside()
        self.ends.update((tp, end) for tp in self._next if (end := self.end(tp)) >= 0)
        if not found:
            return
        for tp, end in found.items():
            if self._stands(tp, end, now):
                _logger.warning(
                    "%s: no record has arrived for %d s, although the log has more; it is fetched anew",
                    tp,
                    now - self._standing[tp].since,
                )
                # Also ends a pause that librdkafka has kept by mistake (librdkafka#5591).
                self._client.resume(tp)
                self._client.remove([tp])
                self._client.add(*self._starts({tp: self._next[tp]}))
                self._defer()
        self._drained = False

    def _stands(self, tp: TopicPartition, end: int, now: float) -> bool:
        """Notes the partitions that are behind the end of their log. True: the partition must be fetched anew now."""
        position = self._next.get(tp, end)
        if position >= end or tp in self._paused:
            self._standing.pop(tp, None)
            return False
        deferred = self._is_deferred(tp.topic)
        taken = self._taken[deferred]
        each = self._standing.setdefault(tp, _Standstill(end, now, now, taken))
        each.end = end
        others = len(self._deferred) if deferred else len(self._next) - len(self._deferred)
        each.judged = self._drained or taken - each.taken >= _MANY_RECORDS * others
        if not each.judged or now - each.judged_at < STALL_SECONDS:
            return False
        each.judged_at, each.taken = now, taken
        each.restarts += 1
        return True
