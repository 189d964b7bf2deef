"""Results that brokers refuse: the results themselves, and remedies.

A refusal comes long after the record that gave the result, and a transaction cannot be committed without the result. So
the worker rolls back and begins again at the last commit. The same result then meets its refusal in the call of its
operator, where source record and operator are known: the production exception handler decides there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from math import inf

from confluent_kafka import KafkaError

from streamapp.broker.refused import OF_THE_BATCH, OF_THE_TOPIC, REMEDIES
from streamapp.engine.collector import ResultRefused
from streamapp.records import TopicPartition
from streamapp.runners.worker.sender import Failure
from streamapp.runners.worker.transactions import TransactionAborted

__all__ = ["Refusals", "ResultsRefused", "refusal"]

_FINAL = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)
"""Errors that end Kafka Streams as well, whatever its handler says (``RecordCollectorImpl.isFatalException``)."""


class ResultsRefused(TransactionAborted):
    """Brokers refused results; `Refusals` knows them when they are sent again."""


def refusal(error: KafkaError, key: bytes | None, value: bytes | None, timestamp: int) -> ResultRefused:
    """The error for a result that was refused."""
    size = len(key or b"") + len(value or b"")
    when = f", timestamp {timestamp}" if timestamp > 0 else ""
    code = error.code()
    return ResultRefused(
        f"{error.str()} (key and value: {size:,} bytes{when})", REMEDIES[code], final=code in _FINAL
    )


class Refusals:
    """The results that were refused since the last commit. Empty, and false, nearly always."""

    def __init__(self) -> None:
        self._new: list[Failure] = []
        self._topics: dict[str, KafkaError] = {}
        self._records: dict[tuple[str, bytes | None, bytes | None], list[tuple[int, KafkaError]]] = {}
        self._met_topics: set[str] = set()
        self._met_records: set[tuple[str, bytes | None, bytes | None]] = set()
        """`find` has found them since the last commit."""
        self._told_apart: set[TopicPartition] = set()
        """The partitions for which brokers have said which records of a batch are to blame."""
        self.batch_bytes: int | None = None
        """Batches have to be smaller than this, since larger ones were refused as a whole."""

    def __bool__(self) -> bool:
        return bool(self._topics or self._records)

    @property
    def new(self) -> bool:
        """Something was added since `take`."""
        return bool(self._new)

    def add(self, failure: Failure) -> None:
        """A result was refused."""
        self._new.append(failure)

    def spare(self, failure: Failure) -> None:
        """A result was refused for the sake of others in its batch."""
        self._told_apart.add(TopicPartition(failure.topic, failure.partition))

    def take(self) -> ResultsRefused | None:
        """Lets `find` know the added failures from now on. Returns the reason to roll back, if there are any."""
        failures, self._new = self._new, []
        if not failures:
            return None
        together: dict[TopicPartition, list[Failure]] = defaultdict(list)
        one_of: dict[tuple[TopicPartition, int], list[Failure]] = defaultdict(list)
        for each in failures:
            code, where = each.error.code(), TopicPartition(each.topic, each.partition)
            if code in OF_THE_TOPIC:
                self._topics[each.topic] = each.error
            elif code in OF_THE_BATCH:
                together[where].append(each)
            elif code == KafkaError.INVALID_TIMESTAMP or (
                code == KafkaError.INVALID_RECORD and where not in self._told_apart
            ):
                one_of[where, code].append(each)
            else:
                self._remember(each)
        self._told_apart.clear()
        for (where, _), batch in one_of.items():
            for each in (blamed := _to_blame(batch)):
                self._remember(each)
            if not blamed:
                together[where] += batch
        self._look_for_those_to_blame(together.values())
        return ResultsRefused(_story(failures))

    def find(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int
    ) -> ResultRefused | None:
        """The refusal of a result that is sent again."""
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
        """Forgets the refusals that `find` has found: the commit has their answers.

        Other tasks may commit before a refused result is sent again, and its refusal has to be known then.
        """
        for topic in self._met_topics:
            del self._topics[topic]
        for record in self._met_records:
            del self._records[record]
        self._forget_met()

    def rolled_back(self) -> None:
        """The results are sent once more, and meet their refusals once more."""
        self._forget_met()

    def clear(self) -> None:
        """Forgets all refusals, because the results are no longer this worker's."""
        self._topics.clear()
        self._records.clear()
        self._forget_met()

    def _forget_met(self) -> None:
        self._met_topics.clear()
        self._met_records.clear()

    def _look_for_those_to_blame(self, batches: Collection[list[Failure]]) -> None:
        """Looks in the batches of each partition. A record that fills a batch is to blame. Others go into smaller batches."""
        limit, sizes = self.batch_bytes or inf, []
        for batch in batches:
            alone = [each for each in batch if len(batch) == 1 or _size(each) >= limit]
            for each in alone:
                self._remember(each)
            if not alone:
                sizes.append(sum(map(_size, batch)))
        if sizes:
            self.batch_bytes = int(max(1, min(*sizes, limit) // 4))

    def _remember(self, failure: Failure) -> None:
        where = failure.topic, failure.key, failure.value
        self._records.setdefault(where, []).append((failure.timestamp, failure.error))


def _to_blame(batch: list[Failure]) -> list[Failure]:
    """The records that are surely to blame in a batch with a single culprit. No record: nobody can know.

    librdkafka reports all records of such a batch alike. Brokers refuse a timestamp for its distance from the clock,
    so the record with the furthest timestamp is the culprit. Where other records have a key, a record without key is.
    """
    if len(batch) == 1:
        return batch
    if batch[0].error.code() == KafkaError.INVALID_RECORD:
        return [each for each in batch if each.key is None]
    times = [each.timestamp for each in batch]
    furthest = max(times) if max(times) > time.time() * 1000 else min(times)
    return [each for each in batch if each.timestamp == furthest]


def _size(failure: Failure) -> int:
    return max(1, len(failure.key or b"") + len(failure.value or b""))


def _story(failures: Iterable[Failure]) -> str:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for each in failures:
        counts[each.topic, each.error.str()] += 1
    listed = "; ".join(f"{count:,} results for {topic}: {why}" for (topic, why), count in counts.items())
    return f"brokers refused {listed}"
