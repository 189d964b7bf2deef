"""Remembers results that brokers have refused, so that the exception handler can judge them with their source record.

A refusal comes long after the task has processed the source record, when the record and its operator are no longer
known. So the runner rolls back, and repeats the work since the last commit. When an operator sends the refused result
again, this call raises the refusal. The production exception handler then decides about the record.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from math import inf
from typing import NamedTuple

from confluent_kafka import KafkaError

from streamapp._base.counted import counted
from streamapp.broker.refused import FINAL, OF_THE_BATCH, OF_THE_TIME, OF_THE_TOPIC, refusal_text, remedy_for
from streamapp.engine.collector import ResultRefused
from streamapp.engine.judging import is_untimely
from streamapp.records import TopicPartition

__all__ = ["Failure", "Refusals", "refusal"]

_AFTER_MAX_MS = 3_600_000
"""Kafka's default for ``message.timestamp.after.max.ms``."""


class Failure(NamedTuple):
    """A record that could not be written, with its values as they were sent."""

    error: KafkaError
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    """0: the time of sending."""


def refusal(
    error: KafkaError, topic: str, key: bytes | None, value: bytes | None, timestamp: int
) -> ResultRefused:
    """The error for a result that was refused."""
    text = refusal_text(error, key, value, timestamp)
    return ResultRefused(text, remedy_for(error, topic), final=error.code() in FINAL)


class Refusals:
    """The results that brokers have refused, until a commit has the answers of the exception handler about them.

    ``letters`` is the topic of dead letters, if there is one. ``bool(refusals)`` is False if there are no such
    results."""

    def __init__(self, letters: str | None = None) -> None:
        self._letters = letters
        self._new: list[Failure] = []
        self._new_letters: list[Failure] = []
        """The dead letters that were added since the last `lost_letter`."""
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
        if failure.topic == self._letters:
            self._new_letters.append(failure)

    def spare(self, failure: Failure) -> None:
        """Notes a result that brokers refused only because of other results in its batch."""
        self._told_apart.add(TopicPartition(failure.topic, failure.partition))

    def take(self) -> str | None:
        """Judges the results that were added since the last call. `find` then knows each result that is to blame.

        If the result to blame is not known, because brokers refuse whole batches, ``batch_bytes`` becomes smaller. The
        next attempts then send smaller batches, until the result is alone. Returns the text of the error with which
        the caller rolls back; None if no result was added.
        """
        failures, self._new = self._new, []
        self._new_letters = []
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
        return _story(failures)

    def lost_letter(self) -> Failure | None:
        """A dead letter that brokers refuse for another reason than its timestamp. None: no such letter.

        A letter with a refused timestamp can be sent again with the time of the clock. Call this method after each
        `poll` of the client, which reports all records of a refused batch. Each call looks only at the letters that
        were added since the last call.
        """
        refused, self._new_letters = self._new_letters, []
        for each in refused:
            if each.error.code() in OF_THE_TOPIC:
                return each
        return next((each for each in self._judged(refused)[0] if not _may_be_untimely(each)), None)

    def _judged(self, failures: Collection[Failure]) -> tuple[list[Failure], list[list[Failure]]]:
        """The records that surely are to blame, and the batches in which nobody knows the record to blame."""
        limit = self.batch_bytes or inf
        blamed: list[Failure] = []
        unclear: list[list[Failure]] = []
        batches: dict[tuple[TopicPartition, int], list[Failure]] = defaultdict(list)
        for each in failures:
            code, where = each.error.code(), TopicPartition(each.topic, each.partition)
            told_apart = code == KafkaError.INVALID_RECORD and where in self._told_apart
            if code in OF_THE_BATCH or (code in OF_THE_TIME and not told_apart):
                batches[where, code].append(each)
            elif code not in OF_THE_TOPIC:
                blamed.append(each)
        for (_, code), batch in batches.items():
            found = [each for each in batch if len(batch) == 1 or _size(each) >= limit]
            if not found and code in OF_THE_TIME:
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
        return None if error is None else refusal(error, topic, key, value, timestamp)

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

        The results are sent once more, so `find` has to find their refusals again before `committed` removes the
        refusals.
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

    librdkafka reports the same error for all records of the batch. Brokers refuse a timestamp that is too far from
    their clock. The function uses this machine's clock instead. If records are ahead of the clock, the record furthest
    ahead is a cause. Otherwise the oldest record is a cause. The cause is not known if some records are older than the
    clock, and no record is further ahead than brokers allow by default. If brokers call a record invalid, the records
    without a key are the cause (a compacted topic needs keys).
    """
    if batch[0].error.code() == KafkaError.INVALID_RECORD:
        return [each for each in batch if each.key is None]
    times, now = [each.timestamp for each in batch], time.time() * 1000
    if min(times) < now < max(times) <= now + _AFTER_MAX_MS:
        return []
    furthest = max(times) if max(times) > now else min(times)
    return [each for each in batch if each.timestamp == furthest]


def _may_be_untimely(failure: Failure) -> bool:
    """True if brokers may have refused the record because its timestamp is ahead of the clock, or too old."""
    return failure.error.code() in OF_THE_TIME and is_untimely(failure.timestamp, int(time.time() * 1000))


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
