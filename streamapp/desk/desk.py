"""`FailureDesk`: the dead letters of one application on its cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base import failpoints
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.consumer import passes
from streamapp.broker.refused import REMEDIES, refusal_text
from streamapp.broker.requests import CHECK_KAFKA, NO_ANSWER
from streamapp.config import StreamsConfig
from streamapp.desk.letters import Letter
from streamapp.desk.marks import Marks, marks_topic
from streamapp.errors import BrokerError, ConfigError, StreamsError
from streamapp.records import Headers, TopicPartition, create_time
from streamapp.runners.connection import client_of, settings_of

__all__ = ["FailureDesk", "read_record"]

_BATCH = 500
"""The largest number of dead letters in one transaction."""
_PATIENCE_SECONDS = 30.0
_ID = re.compile(r"\d{1,9}-\d{1,18}", re.ASCII)
"""The id of a letter, with numbers that Kafka can have."""


class FailureDesk:
    """Reads the dead letters of an application, and replays, edits and discards them. ``matches`` of a method is a
    function that selects letters, for example `LetterFilter.matches`.

    Only one desk of a dead-letter topic writes at a time. When a second desk begins to write, brokers refuse the
    transactions of the first desk. Raises `ConfigError` for an application without a dead-letter topic, and
    `BrokerError` if a request to a broker fails.
    """

    def __init__(self, config: StreamsConfig, *, clock: Callable[[], float] = time.time) -> None:
        if config.dead_letter_queue_topic is None:
            raise ConfigError(
                f"{config.application_id} keeps no dead letters: set dead_letter_queue_topic in its configuration"
            )
        self.topic: str = config.dead_letter_queue_topic
        self._marks_topic = marks_topic(self.topic)
        self._config, self._clock = config, clock

    # ------------------------------------------------------------------ reading

    def letters(self) -> tuple[list[Letter], Marks]:
        """All letters, ordered by partition and offset, and the marks, which tell the state of each letter. An edited
        letter has its new key and value."""
        marks = self._read_marks()
        return list(self._edited(marks, _read(self._config, self.topic))), marks

    def letter(self, id: str) -> tuple[Letter, Marks]:
        """The letter with this id, and the marks of all letters. Raises `StreamsError` if no letter has the id."""
        partition, _, offset = id.partition("-")
        if _ID.fullmatch(id) is None:
            raise StreamsError(f"{id!r} is not the id of a letter: give partition-offset, such as 0-17")
        marks = self._read_marks()
        record = read_record(self._config, self.topic, int(partition), int(offset))
        return next(self._edited(marks, iter([record]))), marks

    def whole(self, letter: Letter) -> Letter:
        """The letter with the key and value of its record.

        A letter lacks key and value if its record waited in a buffer or record cache before it failed. The desk then
        reads both from the source topic. Raises `StreamsError` if the topic does not have the record any more.
        """
        if not letter.lacks_record:
            return letter
        where = letter.said("topic"), int(letter.said("partition")), int(letter.said("offset"))
        try:
            record = read_record(self._config, *where)
        except StreamsError as error:
            raise StreamsError(
                f"letter {letter.id} has no record, because the record had waited in a buffer, and its source "
                f"cannot be read: {error}. Give the letter a record with edit, or discard the letter"
            ) from error
        return replace(letter, key=record.key, value=record.value)

    def _edited(self, marks: Marks, letters: Iterator[Letter]) -> Iterator[Letter]:
        for letter in letters:
            edit = marks.edit_of(letter.id)
            yield letter if edit is None else letter.with_record(*edit)

    def _read_marks(self) -> Marks:
        marks = Marks()
        if self._marks_topic in KafkaAdmin(settings_of(self._config)).partition_counts([self._marks_topic]):
            for record in _read(self._config, self._marks_topic):
                marks.apply(record.key, record.value)
        return marks

    # ------------------------------------------------------------------ writing

    def replay(
        self,
        matches: Callable[[Letter], bool],
        *,
        force: bool = False,
        rate: float | None = None,
        progress: Callable[[int], None] = lambda written: None,
    ) -> int:
        """Writes the records of matching open letters to the topics from which they came; returns their number.

        The records of a key keep their order. ``rate`` is the largest number of records per second. With ``force``,
        letters that were replayed or discarded are replayed, too. ``progress`` is called after each transaction, with
        the number of records so far. A record and the mark "replayed" of its letter are in one transaction, so a crash
        neither loses nor repeats a replay.

        Raises `StreamsError`, and writes nothing, if one of the letters has no source topic or this topic is gone.
        """
        with _Transactions(self._config, self.topic, self._marks_topic) as transactions:
            letters, marks = self.letters()  # after `_Transactions` has fenced earlier desks
            chosen = [each for each in letters if matches(each) and (force or marks.state(each.id) == "open")]
            back = [(each, self.whole(each).replayed(self.topic)) for each in chosen]
            self._check_targets({record.topic for _, record in back})
            batches = iter(back)
            size = _BATCH if rate is None else max(1, min(_BATCH, round(rate)))
            written = 0
            while batch := list(islice(batches, size)):
                began = self._clock()
                rows = [
                    (
                        record.topic,
                        record.partition,
                        record.key,
                        record.value,
                        record.timestamp,
                        record.headers,
                    )
                    for _, record in batch
                ]
                rows += [
                    self._mark(each, marks.marked(each.id, "replayed", self._now())) for each, _ in batch
                ]
                transactions.write(rows)
                written += len(batch)
                progress(written)
                if rate is not None and written < len(back):
                    time.sleep(max(0.0, len(batch) / rate - (self._clock() - began)))
            return written

    def discard(self, matches: Callable[[Letter], bool], why: str = "") -> int:
        """Marks matching open letters as discarded; returns their number. The letters stay in their topic."""
        with _Transactions(self._config, self.topic, self._marks_topic) as transactions:
            letters, marks = self.letters()
            chosen = [each for each in letters if matches(each) and marks.state(each.id) == "open"]
            transactions.write(
                [self._mark(each, marks.marked(each.id, "discarded", self._now(), why)) for each in chosen]
            )
            return len(chosen)

    def edit(self, id: str, key: bytes | None, value: bytes | None) -> None:
        """Gives a letter another key and value for its replay. A discarded letter is open again.

        The dead-letter topic keeps the original letter. Raises `StreamsError` for a letter that was replayed.
        """
        with _Transactions(self._config, self.topic, self._marks_topic) as transactions:
            letter, marks = self.letter(id)
            if marks.state(id) == "replayed":
                raise StreamsError(
                    f"letter {id} was replayed already: an edit has no effect any more. Edit letters before a replay"
                )
            transactions.write([self._mark(letter, marks.edited(id, key, value, self._now()))])

    def _mark(self, letter: Letter, mark: bytes) -> tuple[Any, ...]:
        return self._marks_topic, None, letter.id.encode(), mark, self._now(), ()

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _check_targets(self, topics: set[str]) -> None:
        missing = topics - KafkaAdmin(settings_of(self._config)).partition_counts(topics).keys()
        if missing:
            raise StreamsError(
                f"letters came from topics that do not exist any more: {', '.join(sorted(missing))}. Create these "
                "topics, or discard the letters"
            )


class _Transactions:
    """The transactions of one desk. From the beginning of the ``with`` block on, brokers refuse the transactions of
    earlier desks."""

    def __init__(self, config: StreamsConfig, topic: str, marks: str) -> None:
        KafkaAdmin(settings_of(config)).ensure_topics([TopicSpec(marks, 1, {"cleanup.policy": "compact"})])
        self._producer = Producer(
            {
                **client_of(config),
                "transactional.id": f"{topic}-desk",
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )

    def __enter__(self) -> _Transactions:
        self._ask("init_transactions", _PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(0)

    def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Writes rows (topic, partition, key, value, timestamp, headers) in one transaction: all of them, or none."""
        if not rows:
            return
        self._ask("begin_transaction")
        try:
            for row in rows:
                self._produce(*row)
            failpoints.hit("desk-written")
            self._ask("commit_transaction", _PATIENCE_SECONDS)
            failpoints.hit("desk-committed")
        except BaseException:
            with suppress(KafkaException):  # of a fenced or lost producer, whose transaction brokers abort
                self._producer.abort_transaction(_PATIENCE_SECONDS)
            raise

    def _produce(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        where = {} if partition is None else {"partition": partition}
        try:
            self._producer.produce(
                topic,
                value=value,
                key=key,
                timestamp=create_time(timestamp),
                headers=list(headers),
                **where,
            )
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() in (KafkaError._FATAL, KafkaError._STATE):  # the consequence of an earlier error
                self._ask("commit_transaction", _PATIENCE_SECONDS)
            text = f"a record for {topic} cannot be sent: {refusal_text(reason, key, value, timestamp)}"
            raise BrokerError(f"{text}{_remedy(reason)}") from error
        self._producer.poll(0)

    def _ask(self, name: str, *arguments: Any) -> None:
        try:
            getattr(self._producer, name)(*arguments)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() in (
                KafkaError._FENCED,
                KafkaError.INVALID_PRODUCER_EPOCH,
                KafkaError.PRODUCER_FENCED,
            ):
                raise BrokerError(
                    "another desk began to write, so this desk was stopped; its open transaction was aborted. "
                    "Use one desk at a time"
                ) from error
            raise BrokerError(f"{name.replace('_', ' ')} failed: {reason.str()}{_remedy(reason)}") from error


def _remedy(error: KafkaError) -> str:
    remedy = CHECK_KAFKA if error.code() in NO_ANSWER else REMEDIES.get(error.code(), "")
    return remedy and f". {remedy}"


def read_record(config: StreamsConfig, topic: str, partition: int, offset: int) -> Letter:
    """One committed record of a topic, as a `Letter`. Raises `StreamsError` if the offset has no committed record."""
    admin, tp = KafkaAdmin(settings_of(config)), TopicPartition(topic, partition)
    if partition >= admin.partition_counts([topic]).get(topic, 0):
        raise StreamsError(f"there is no partition {tp}")
    low, high = admin.log_start_offsets([tp])[tp], admin.log_end_offsets([tp])[tp]
    if not low <= offset < high:
        raise StreamsError(f"{tp} has no offset {offset}: its records are from {low} to {high - 1}")
    with _consumer(config) as consumer:
        consumer.assign([KafkaPartition(topic, partition, offset)])
        while True:
            message = _next(consumer, topic)
            if message is None or message.offset() > offset:
                raise StreamsError(
                    f"{tp} has no record at offset {offset}: compaction removed the record, its "
                    "transaction was rolled back, or the offset is the marker of a transaction"
                )
            return _letter(message)


def _read(config: StreamsConfig, topic: str) -> Iterator[Letter]:
    """All committed records of a topic by partition, up to the ends of its partitions when the reading begins."""
    admin = KafkaAdmin(settings_of(config))
    count = admin.partition_counts([topic]).get(topic)
    if count is None:
        raise StreamsError(
            f"there is no topic {topic} at {config.bootstrap_servers}: check dead_letter_queue_topic and the address"
        )
    partitions = [TopicPartition(topic, number) for number in range(count)]
    starts, ends = admin.log_start_offsets(partitions), admin.log_end_offsets(partitions)
    for tp in partitions:
        with _consumer(config) as consumer:
            consumer.assign([KafkaPartition(*tp, starts[tp])])
            while starts[tp] < ends[tp] and (message := _next(consumer, topic)) is not None:
                if message.offset() >= ends[tp]:
                    break
                yield _letter(message)


class _Closing:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _consumer(config: StreamsConfig) -> _Closing:
    return _Closing(
        Consumer(
            {
                **client_of(config),
                "group.id": f"{config.application_id}-desk",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
    )


def _next(consumer: Consumer, topic: str) -> Any:
    """The next record; None at the end of the partition. Raises `BrokerError`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            return None
        if not passes(error):
            raise BrokerError(f"{topic} cannot be read: {error.str()}")
    raise BrokerError(f"{topic} cannot be read: brokers have not answered for {_PATIENCE_SECONDS:g} s")


def _letter(message: Any) -> Letter:
    headers: Headers = tuple((name, value) for name, value in message.headers() or ())
    return Letter(
        message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers
    )
