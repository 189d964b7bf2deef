"""Transactions under one name, each with offsets that show later if the transaction was committed.

If a connection breaks during a commit, nobody knows if the transaction is committed. The next session of the same name
first ends a transaction that is still open (`init_transactions`). The committed offsets then show the outcome.

The offsets are the positions of a consumer, or a bookmark: a number and a note, stored as a committed offset with
metadata. The consumer group of a bookmark has the same name as the transactions. The partition of a bookmark is
partition 0 of the first record's topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base.counted import counted
from streamapp._base.failpoints import hit
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.librdkafka import opening
from streamapp.broker.refused import CONSEQUENCES, UNKNOWN, advised, is_refusal
from streamapp.broker.requests import broker_error, committed_of_stranger
from streamapp.broker.transacting import NotBack, abandon_transaction, in_time, open_transactions, retrying
from streamapp.errors import BrokerError
from streamapp.producer.retries import count_retries
from streamapp.records import OutputRecord, TopicPartition, create_time

__all__ = [
    "CLIENT_LOGGER",
    "Bookmark",
    "BookmarkedSession",
    "RecordsRefused",
    "TransactionSession",
    "UnknownTopics",
    "Unsettled",
]

CLIENT_LOGGER = logging.getLogger("streamapp.kafka")
"""The logger of librdkafka."""
_STEP_SECONDS = 0.05
_UNKNOWN_TOPIC_MS = 4_000
"""The time for which one attempt waits for a topic that brokers do not know."""
_UNKNOWN_SECONDS = 30.0
"""The time after which a topic that brokers do not know counts as missing."""


class Bookmark(NamedTuple):
    """A number and a note that a transaction commits with its records. The last committed bookmark shows the
    progress."""

    number: int
    note: str = ""


class Unsettled(BrokerError):
    """The outcome of a transaction is not known yet. This session is over. After the next session of the name has
    opened, the committed offsets show the outcome."""


class RecordsRefused(BrokerError):
    """Brokers refused records for good, so the transaction was rolled back. This session is over.

    ``errors``: index of a refused record in the batch -> its error.
    """

    def __init__(self, errors: Mapping[int, KafkaError]) -> None:
        super().__init__(
            f"brokers refused {counted(len(errors), 'record')}: {next(iter(errors.values())).str()}"
        )
        self.errors = errors


class UnknownTopics:
    """Remembers since when brokers do not know a topic. Successive sessions of the same transactional name share this
    object.

    A broker that has just started knows no topics for a moment. So a topic counts as missing only after 30 s.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def known(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._since.pop(topic, None)

    def missing(self, topic: str) -> bool:
        """Notes that brokers do not know the topic. True if brokers have not known the topic for 30 s."""
        now = time.monotonic()
        return now - self._since.setdefault(topic, now) > _UNKNOWN_SECONDS


class TransactionSession:
    """A client for the transactions of a name, for one thread.

    A new session fences earlier sessions of the name: brokers refuse their transactions. ``settings`` are librdkafka's
    for a producer. Raises `BrokerError` if brokers refuse the client, or do not answer within ``seconds``.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        seconds: float,
        transaction_timeout_ms: int,
        unknown: UnknownTopics,
        retried: Callable[[int], None] = lambda times: None,
    ) -> None:
        self.name: str = name
        self._unknown = unknown
        producer_settings = {
            **settings,
            "transactional.id": name,
            "transaction.timeout.ms": transaction_timeout_ms,
            "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
            **count_retries(retried),
            "logger": CLIENT_LOGGER,
        }
        self._files = CertificateFiles(settings)
        with opening(producer_settings) as current:
            self._client = Producer(current)
        open_transactions(self._client, seconds)

    def commit(
        self,
        records: Sequence[OutputRecord],
        positions: Sequence[KafkaPartition],
        member: object,
        seconds: float,
    ) -> list[tuple[int | None, int | None]]:
        """Commits records and the positions of a group in one transaction, and returns partition and offset of each
        record.

        ``member`` is the result of `Consumer.consumer_group_metadata`. With ``member``, brokers refuse the positions if
        the group has removed this member (KIP-447). Raises `RecordsRefused` if brokers refuse records, so that nothing
        is committed. Every other failure raises `Unsettled`, after which the transaction may be committed or not. After
        either error, a new session is needed.
        """
        places: list[tuple[int | None, int | None]] = [(None, None)] * len(records)
        refused: dict[int, KafkaError] = {}
        try:
            in_time(
                partial(self._commit, records, positions, member, seconds, places, refused),
                2 * seconds,
                lambda: abandon_transaction(self._client),
            )
        except KafkaException as exc:
            self.abandon()
            raise Unsettled(f"the transaction was not committed: {exc.args[0].str()}") from exc
        except Unsettled:
            self.abandon()
            raise
        except NotBack as exc:
            raise Unsettled(str(exc)) from None
        if refused:
            # The requests after the refused one fail as well. librdkafka may then use wrong sequence numbers in the
            # next transaction, which fails, or of which nothing is sent.
            self.abandon()
            raise RecordsRefused(refused)
        return places

    def _commit(
        self,
        records: Sequence[OutputRecord],
        positions: Sequence[KafkaPartition],
        member: object,
        seconds: float,
        places: list[tuple[int | None, int | None]],
        refused: dict[int, KafkaError],
    ) -> None:
        deadline = time.monotonic() + seconds
        # Reports of records behind a refused one come until the client ends. So the refused records have a dict of
        # their own.
        errors: dict[int, KafkaError] = {}

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors[index] = error
            else:
                places[index] = message.partition(), message.offset()

        self._client.begin_transaction()
        for index, record in enumerate(records):
            try:
                self._produce(record, partial(delivered, index), deadline)
            except KafkaException as exc:
                errors[index] = exc.args[0]
                break
        # An error that only follows from another error sometimes comes first, so this loop goes on.
        while self._client.flush(_STEP_SECONDS) and not any(
            error.code() not in CONSEQUENCES for error in errors.values()
        ):
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if errors:
            refused.update(
                {
                    index: error
                    for index, error in errors.items()
                    if self._refuses(records[index].topic, error)
                }
            )
            if not refused:
                index, error = next(iter(errors.items()))
                raise Unsettled(
                    "the transaction was not committed: a record for "
                    f"{records[index].topic}: {advised(error, records[index].topic)}"
                )
            try:
                retrying(self._client.abort_transaction, seconds)
            except KafkaException as exc:
                # Nothing is committed, even without an answer to the abort. The next session ends the transaction.
                if not exc.args[0].retriable():
                    raise
            return
        self._unknown.known({record.topic for record in records})
        hit("producer-sent")
        retrying(
            lambda left: self._client.send_offsets_to_transaction(list(positions), member, left), seconds
        )
        hit("producer-bookmarked")
        retrying(self._client.commit_transaction, seconds)
        hit("producer-committed")

    def _refuses(self, topic: str, error: KafkaError) -> bool:
        return self._unknown.missing(topic) if error.code() in UNKNOWN else is_refusal(error)

    def _produce(self, record: OutputRecord, delivered: Callable[..., None], deadline: float) -> None:
        partition = -1 if record.partition is None else record.partition
        while True:
            try:
                self._client.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition,
                    delivered,
                    timestamp=create_time(record.timestamp),
                    headers=list(record.headers),
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
                self._client.poll(_STEP_SECONDS)

    def outdated(self) -> bool:
        """True after a change of the certificate files. Open a new session then, between two transactions."""
        return self._files.changed()

    def idle(self) -> None:
        """Serves librdkafka's callbacks.

        Call this now and then while nothing is sent: errors and logs wait for the call.
        """
        self._client.poll(0)

    def abandon(self) -> None:
        """Closes the session within about 2 s. An open transaction is aborted; if brokers do not answer in this time,
        the next session aborts it."""
        abandon_transaction(self._client)


class BookmarkedSession(TransactionSession):
    """A session whose transactions each commit a bookmark. ``group_settings`` are librdkafka's for the cluster."""

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        group_settings: Mapping[str, Any],
        *,
        seconds: float,
        transaction_timeout_ms: int,
        unknown: UnknownTopics,
        retried: Callable[[int], None] = lambda times: None,
    ) -> None:
        super().__init__(
            name,
            settings,
            seconds=seconds,
            transaction_timeout_ms=transaction_timeout_ms,
            unknown=unknown,
            retried=retried,
        )
        self._group = {
            **group_settings,
            "group.id": name,
            "isolation.level": "read_committed",  # offsets of an open transaction are waited for
            "enable.auto.commit": False,
            "logger": CLIENT_LOGGER,
        }
        with closing(self._consumer()) as consumer:
            self._metadata = consumer.consumer_group_metadata()

    def _consumer(self) -> Consumer:
        with opening(self._group) as current:
            return Consumer(current)

    def bookmarks(self, topics: Iterable[str], seconds: float) -> list[Bookmark]:
        """The last bookmark of each of these topics, if there is one.

        The topic of a bookmark is that of the first record in its transaction. Raises `BrokerError` if brokers give no
        answer in time, or refuse it.
        """
        consumer = self._consumer()
        try:
            found = committed_of_stranger(
                consumer, [TopicPartition(topic, 0) for topic in set(topics)], seconds=seconds
            )
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            # For a transaction that is still open, librdkafka has no error of its own: it waits until the time is over.
            hint = f"brokers do not answer, or a transaction hangs (streamapp doctor --group {self.name})"
            told = hint if error.code() == KafkaError._TIMED_OUT else error.str()
            raise broker_error(
                f"the bookmarks of {self.name} are not known: {told}",
                error,
                {KafkaError.GROUP_AUTHORIZATION_FAILED: f"Grant this client READ on the group {self.name}"},
            ) from exc
        finally:
            consumer.close()
        return [Bookmark(each.offset, each.metadata or "") for each in found if each.offset >= 0]

    def send(
        self, records: Sequence[OutputRecord], bookmark: Bookmark, seconds: float
    ) -> list[tuple[int | None, int | None]]:
        """Commits the records with the bookmark, and returns partition and offset of each record.

        Raises the same errors as `commit`.
        """
        position = KafkaPartition(records[0].topic, 0, bookmark.number, bookmark.note)
        return self.commit(records, [position], self._metadata, seconds)
