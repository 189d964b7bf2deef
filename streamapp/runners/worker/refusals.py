"""Remembers results that brokers have refused, so that the exception handler can judge them with their source record.

A refusal comes long after the worker has processed the source record, when the record and its operator are no longer
known. So the worker rolls back, and repeats the work since the last commit. When an operator sends the refused result
again, this call raises the refusal. The production exception handler then decides about the record.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from math import inf

from confluent_kafka import KafkaError

from streamapp._base.counted import counted
from streamapp.broker.refused import FINAL, OF_THE_BATCH, OF_THE_TOPIC, REMEDIES, refusal_text
from streamapp.engine.collector import ResultRefused
from streamapp.records import TopicPartition
from streamapp.runners.worker.sender import Failure
from streamapp.runners.worker.transactions import TransactionAborted

__all__ = ["Refusals", "ResultsRefused", "refusal"]

_TOGETHER = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD)
"""Errors that librdkafka may report for all records of a batch, although brokers refuse only some of them.

If brokers refuse several records of a batch, librdkafka reports ``INVALID_RECORD`` for these, also for their
timestamps. The others have another error then (`Refusals.spare`).
"""

_AFTER_MAX_MS = 3_600_000
"""Kafka's default for ``message.timestamp.after.max.ms``."""


class ResultsRefused(TransactionAborted):
    """Brokers refused results, so the worker rolls back. When the results are sent again, `Refusals.find` knows
    them."""


def refusal(error: KafkaError, key: bytes | None, value: bytes | None, timestamp: int) -> ResultRefused:
    """The error for a result that was refused."""
    code = error.code()
    return ResultRefused(refusal_text(error, key, value, timestamp), REMEDIES[code], final=code in FINAL)


class Refusals:
    """The results that brokers have refused, until a commit has the answers of the exception handler about them.

    ``bool(refusals)`` is False if there are no such results."""

    def __init__(self) -> None:
        self._new: list[Failure] = []
        self._topics: dict[str, KafkaError] = {}
        self._records: dict[tuple[str, bytes | None, bytes | None], list[tuple[int, KafkaError]]] = {}
        self._met_topics: set[str] = set()
        self._met_records: set[tuple[str, bytes | None, bytes | None]] = set()
        """The records that `find` has found since the last commit, as ``_met_topics`` are the topics."""
        self._told_apart: set[TopicPartition] = set()
        """The partitions for which brokers have named the faulty records of a batch."""
        self.batch_bytes: int | None = None
        """The next client's ``batch.size``, since brokers have refused larger batches. None: librdkafka's default."""

    def __bool__(self) -> bool:
        return bool(self._topics or self._records)

    @property
    def new(self) -> bool:
        """True if a result was added since the last `take`."""
        return bool(self._new)

    def add(self, failure: Failure) -> None:
        """Notes a refused result."""
        self._new.append(failure)

    def spare(self, failure: Failure) -> None:
        """Notes a result that brokers refused only because of other results in its batch."""
        self._told_apart.add(TopicPartition(failure.topic, failure.partition))

    def take(self) -> ResultsRefused | None:
        """Moves the results that were added since the last call to those that `find` knows.

        Returns the error that the caller raises, so that the worker rolls back; None if no result was added.
        """
        failures, self._new = self._new, []
        if not failures:
            return None
        self._topics.update(
            (each.topic, each.error) for each in failures if each.error.code() in OF_THE_TOPIC
        )
        blamed, unclear = self._judged(failures)
        for each in blamed:
            self._remember(each)
        sizes = [sum(map(_size, batch)) for batch in unclear]
        if sizes:
            # The batches of the next attempt are smaller, until the refused record is alone.
            self.batch_bytes = int(max(1, min(*sizes, self.batch_bytes or inf) // 4))
        self._told_apart.clear()
        return ResultsRefused(_story(failures))

    def lost(self, topic: str) -> Failure | None:
        """A record of this topic that brokers would refuse with the time of the clock, too. None: no such record.

        Call this after each `poll` of the client, which reports all records of a refused batch.
        """
        refused = [each for each in self._new if each.topic == topic]
        for each in refused:
            if each.error.code() in OF_THE_TOPIC:
                return each
        return next((each for each in self._judged(refused)[0] if not _is_ahead(each)), None)

    def _judged(self, failures: Collection[Failure]) -> tuple[list[Failure], list[list[Failure]]]:
        """The records that surely are to blame, and the batches in which nobody knows the record to blame."""
        limit = self.batch_bytes or inf
        blamed: list[Failure] = []
        unclear: list[list[Failure]] = []
        batches: dict[tuple[TopicPartition, int], list[Failure]] = defaultdict(list)
        for each in failures:
            code, where = each.error.code(), TopicPartition(each.topic, each.partition)
            told_apart = code == KafkaError.INVALID_RECORD and where in self._told_apart
            if code in OF_THE_BATCH or (code in _TOGETHER and not told_apart):
                batches[where, code].append(each)
            elif code not in OF_THE_TOPIC:
                blamed.append(each)
        for (_, code), batch in batches.items():
            found = [each for each in batch if len(batch) == 1 or _size(each) >= limit]
            if not found and code in _TOGETHER:
                found = _to_blame(batch)
            blamed += found
            if not found:
                unclear.append(batch)
        return blamed, unclear

    def find(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int
    ) -> ResultRefused | None:
        """The refusal of this result, or of its topic. None: neither was refused."""
        error = self._topics.get(topic)
        if error is not None:
            self._met_topics.add(topic)
        else:
            known = self._records.get((topic, key, value), ())
            error = next((error for at, error in known if at == timestamp), None)
            if error is not None:
                self._met_records.add((topic, key, value))
        return None if error is None else refusal(error, key, value, timestamp)

    def committed(self) -> None:
        """Removes the refusals that `find` has found, because the commit has the answers to them.

        All others stay: other tasks may commit before a refused result is sent again.
        """
        for topic in self._met_topics:
            del self._topics[topic]
        for record in self._met_records:
            del self._records[record]
        self._forget_met()

    def rolled_back(self) -> None:
        """Notes a rollback.

        The results are sent once more, so refusals that `find` has found count as not found again.
        """
        self._forget_met()

    def clear(self) -> None:
        """Removes all refusals, because the tasks that made the results belong to other workers now."""
        self._topics.clear()
        self._records.clear()
        self._forget_met()

    def _forget_met(self) -> None:
        self._met_topics.clear()
        self._met_records.clear()

    def _remember(self, failure: Failure) -> None:
        where = failure.topic, failure.key, failure.value
        self._records.setdefault(where, []).append((failure.timestamp, failure.error))


def _to_blame(batch: list[Failure]) -> list[Failure]:
    """The records that surely caused the refusal of a batch. Empty: the cause is not known.

    librdkafka reports the same error for all records of the batch. A timestamp is refused if it is too far from the
    brokers' clock, so the record with the furthest timestamp is a cause. Nothing is known if some records are older
    than the clock, and the others are ahead by less than brokers allow by default. If a record is invalid, those
    without a key are the cause (a compacted topic needs keys).
    """
    if batch[0].error.code() == KafkaError.INVALID_RECORD:
        return [each for each in batch if each.key is None]
    times, now = [each.timestamp for each in batch], time.time() * 1000
    if min(times) < now < max(times) <= now + _AFTER_MAX_MS:
        return []
    furthest = max(times) if max(times) > now else min(times)
    return [each for each in batch if each.timestamp == furthest]


def _is_ahead(failure: Failure) -> bool:
    """True if brokers may have refused the record because its timestamp is ahead of the clock."""
    return failure.error.code() in _TOGETHER and failure.timestamp > time.time() * 1000


def _size(failure: Failure) -> int:
    return max(1, len(failure.key or b"") + len(failure.value or b""))


def _story(failures: Iterable[Failure]) -> str:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for each in failures:
        counts[each.topic, each.error.str()] += 1
    listed = "; ".join(
        f"{counted(count, 'result')} for {topic}: {why}" for (topic, why), count in counts.items()
    )
    return f"brokers refused {listed}"
