"""The producers of a worker, which all its tasks share.

With exactly_once_v2, a worker has one producer, whose transactions have outputs, changelog records and offsets. With
at_least_once, outputs have a producer without transactions, so that readers see them at once. Changelog records and
offsets still go out together in a short transaction at each commit, so that state is right after a worker is killed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from streamapp._base.counted import counted
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.refused import CONSEQUENCES, UNKNOWN, is_refusal, remedy_for
from streamapp.broker.requests import broker_error
from streamapp.broker.transacting import abandon_transaction, open_transactions
from streamapp.config import StreamsConfig
from streamapp.engine.collector import ResultRefused
from streamapp.engine.runner_ports import Position
from streamapp.errors import AuthorizationError, BrokerError, StreamsError
from streamapp.records import NO_HEADERS, Headers, TopicPartition, create_time
from streamapp.runners.refusals import Failure, Refusals, refusal
from streamapp.runners.worker.clients import GRANTS, PATIENCE_SECONDS, admin_client, producer_settings
from streamapp.runners.worker.membership import Member
from streamapp.runners.worker.sender import FLUSH_STEP_SECONDS, Sender, open_sender
from streamapp.runners.worker.transactions import (
    OffsetsNotAnswered,
    ResultsRefused,
    TransactionAborted,
    commit_transaction,
    transaction_failed,
)

__all__ = ["ChangelogRefused", "ProductionError", "RecordProducer"]

_FULL_SECONDS = 0.01
_LAST_SECONDS = 2.0
_ROWS_AT_ONCE = 5_000
"""Between two calls with so many rows, other threads can have the interpreter."""
_GONE = (*UNKNOWN, KafkaError._UNKNOWN_PARTITION)
_NO_CHANGELOG = (
    "The changelog was deleted, or created anew with fewer partitions. Restore the topic; or, to compute the tables "
    "anew, stop all workers and run `streamapp reset`"
)
"""The remedy for errors of `_GONE`. An empty changelog in place of the deleted one would lack the rows."""
_OUT_OF_STEP = (
    KafkaError._FATAL,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
"""Errors after which a producer and its brokers disagree about the written records, for example after a restart.

A new producer can continue.
"""


class ProductionError(BrokerError):
    """Kafka did not take a record: a result, a change of a store or a dead letter.

    The work since the last commit is not committed, and a restart repeats this work.
    """


class ChangelogRefused(ProductionError):
    """Brokers refused a change of a store. No handler may skip the change, because a changelog needs every change."""

    def __init__(self, store: str, changelog: TopicPartition, refused: ResultRefused) -> None:
        of_gone = [remedy_for(KafkaError(code), changelog.topic) for code in _GONE]
        remedy = _NO_CHANGELOG if refused.remedy in of_gone else refused.remedy
        super().__init__(
            f"the store {store} has a change that its changelog {changelog} does not take: {refused}. The state must "
            f"have every change, so no exception handler is asked. {remedy}"
        )
        self.changelog = changelog


def _denied(topic: str, error: KafkaError) -> AuthorizationError | None:
    """The error for a topic that this client may not write to, or None.

    Brokers tell the missing right in three ways: with the topic's metadata, with the topic's partition in a
    transaction, and with a record. The way depends on the moment. So no way leads to a question about one record, and
    all of them name the rights of the worker.
    """
    found = broker_error(f"no record could be written to {topic}: {error.str()}", error, GRANTS)
    return found if isinstance(found, AuthorizationError) else None


class RecordProducer:
    """A `streamapp.engine.Collector` on top of a librdkafka producer. With ``transactional_id``, the producer writes in
    transactions.

    ``stores`` maps each changelog topic to the name of its store. For speed, librdkafka reports only the records that
    could not be written. When `flush` returns, brokers have acknowledged all other records.
    """

    def __init__(
        self,
        config: StreamsConfig,
        partitions: Mapping[str, int],
        transactional_id: str | None = None,
        stores: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._transactional = transactional_id is not None
        self._patient = not self._transactional and config.production_exception_handler != "fail"
        """True if refused results may be dropped, and later results may go out after them."""
        self._stores = stores or {}
        self._partitions = dict(partitions)
        self._failure: StreamsError | None = None
        self._in_transaction = False
        self._refusals = Refusals(config.dead_letter_queue_topic)
        self._knows_refusals = False
        self._abandoned = threading.Event()
        self.waits_for_room: bool = False
        """True while `send` waits for brokers, because librdkafka's queue has no room for another record."""
        self._settings = producer_settings(config, transactional_id)
        self._files = CertificateFiles(self._settings)
        self._renew()

    def _renew(self) -> None:
        smaller = self._refusals.batch_bytes
        batches = {} if smaller is None else {"batch.size": smaller}
        self.client: Sender = open_sender(self._settings | batches, self._on_failure)
        self._produce = self.client.produce
        self._failure = None
        self._in_transaction = False

    # Transactions.

    def open(self) -> None:
        """Ends the transaction of an earlier producer with the same transactional id. Raises `BrokerError`."""
        open_transactions(self.client, PATIENCE_SECONDS)

    def begin(self) -> None:
        """Begins a transaction.

        First opens a new client if the certificates have changed, as no records are in flight.
        """
        self.follow_files()
        with self._naming_errors():
            self.client.begin_transaction()
        self._in_transaction = True

    def commit(
        self,
        positions: Mapping[TopicPartition, Position],
        member: Member,
        offsets_sent: Callable[[], None],
        brokers_answer: Callable[[], bool],
    ) -> None:
        """Commits the transaction together with the offsets. Raises the errors of `commit_transaction`.

        The wait until brokers take the offsets ends with the transaction's time-out. After an outage, librdkafka may
        wait for ever, while a new producer can continue at once.

        The wait for the commit itself may take five minutes, because librdkafka may crash the process if a producer is
        replaced during its commit. If ``brokers_answer()`` is True for 20 s without an answer to the commit, this wait
        ends, too.
        """
        group = self._config.application_id
        open_for = self._config.transaction_timeout_ms / 1000
        try:
            commit_transaction(
                self.client,
                positions,
                group,
                member,
                open_for,
                PATIENCE_SECONDS,
                offsets_sent,
                brokers_answer,
            )
        except OffsetsNotAnswered:
            self._renew()  # the client must not be touched any more
            raise
        self._in_transaction = False

    def roll_back(self) -> None:
        """Drops the records that are not acknowledged, gives up the open transaction, and opens a new client.

        The old client waits only a moment for its abort, because after an error it may wait for brokers for minutes.
        If brokers have not answered, the first request of the new client aborts the transaction.
        """
        with contextlib.suppress(KafkaException):
            self.client.poll(0)  # collects refusals
        if not self._in_transaction or abandon_transaction(self.client):
            self.client.purge()
        self._refusals.take()
        self._refusals.rolled_back()
        self._knows_refusals = bool(self._refusals)
        self._renew()
        if self._transactional:
            self.open()

    def follow_files(self) -> bool:
        """Opens a new client if the certificate files have changed. Returns True if the client is new.

        librdkafka reads the files only when a client is opened. While a record waits for its acknowledgement, the
        method does nothing. A new client aborts an open transaction, so call the method only while the transaction has
        no records.
        """
        if len(self.client) or not self._files.changed():
            return False
        if self._in_transaction:
            abandon_transaction(self.client)
        self._renew()
        if self._transactional:
            self.open()
        return True

    # Records.

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        number = -1 if partition is None else partition
        at = timestamp or create_time(timestamp)
        if self._knows_refusals and (refused := self._refusals.find(topic, key, value, at)) is not None:
            raise refused
        try:
            try:
                self._produce(topic, value, key, number, at, headers)
            except BufferError:
                self._send_when_there_is_room(partial(self._produce, topic, value, key, number, at, headers))
        except KafkaException as exc:
            self._not_taken(Failure(exc.args[0], topic, number, key, value, at))

    def send_rows(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
    ) -> None:
        produce_rows, at, count = self.client.produce_rows, 0, len(keys)
        while at < count:
            end = min(count, at + _ROWS_AT_ONCE)
            at = produce_rows(topic, partition, keys, values, timestamps, at, end)
            if at < end:  # `send` waits for room, or notes the error
                self.send(topic, keys[at], values[at], timestamps[at], NO_HEADERS, partition)
                at += 1

    def partition_count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            metadata = admin_client(self._config).list_topics(topic, timeout=10).topics[topic]
            if not metadata.partitions:
                raise ProductionError(f"the topic {topic} does not exist; create it first")
            count = self._partitions[topic] = len(metadata.partitions)
        return count

    def poll(self) -> None:
        """Collects reports of failed records, and raises the first failure.

        With at_least_once, a refusal that a handler may skip is raised at the next `flush` instead."""
        with self._naming_errors():
            self.client.poll(0)
        self._raise_failure(wait=self._patient)

    def abandon(self) -> None:
        """Ends the waits for brokers to acknowledge records, of now and later, with `BrokerError`.

        Another thread calls this method when a stop takes too long.
        """
        self._abandoned.set()

    def send_now(self) -> None:
        """Sends records at once that would wait for more records (``linger.ms``)."""
        with self._naming_errors():
            self.client.send_now()

    def flush(self) -> None:
        """Waits until the brokers have acknowledged every record.

        Raises `ProductionError` for a record that could not be written, and `TransactionAborted` if the caller has to
        roll back. Raises `BrokerError` if records are still not acknowledged after five minutes, or after `abandon`.
        """
        began = time.monotonic()
        with self._naming_errors():
            while self.client.flush(FLUSH_STEP_SECONDS) and not self._spoilt:
                self._check_patience(began)
        self._raise_failure()

    def _check_patience(self, began: float) -> None:
        seconds = time.monotonic() - began
        if self._abandoned.is_set() or seconds > PATIENCE_SECONDS:
            left = counted(len(self.client), "record is", "records are")
            raise BrokerError(f"{left} still not acknowledged after {seconds:.0f} s")

    @property
    def unacknowledged_bytes(self) -> int:
        """The approximate bytes of keys and values that brokers have not acknowledged."""
        waiting = len(self.client)
        if not waiting:
            return 0
        records, size = self.client.taken()
        return waiting * size // max(1, records)

    def committed(self) -> None:
        """Notes that a commit has succeeded. Refused results that a handler has judged leave the list of refused
        results, because the handler's answers are part of this commit.

        Without transactions, this is also the moment to open a new client if the certificate files have changed.
        """
        if not self._transactional:
            self.follow_files()
        if self._knows_refusals:
            self._refusals.committed()
            self._knows_refusals = bool(self._refusals)

    def forget_refusals(self) -> None:
        """Removes all refused results from the list, because their tasks belong to other workers now."""
        self._refusals.clear()
        self._knows_refusals = False

    @property
    def _spoilt(self) -> bool:
        return self._failure is not None or (self._refusals.new and not self._patient)

    def close(self) -> None:
        """Aborts the open transaction, so that its records are lost; the next run sends them again.

        Without transactions, first waits up to two seconds for brokers to take the records, and then drops the rest.
        The wait is for the dead letter of the record that stopped the worker, which may be among the records.
        """
        with contextlib.suppress(KafkaException):  # fenced, or never begun: there is nothing to roll back
            if self._in_transaction:
                self.client.abort_transaction(5.0)
            elif not self._transactional:
                self.client.flush(_LAST_SECONDS)
            self.client.purge()
            self.client.flush(1.0)

    def _send_when_there_is_room(self, produce: Callable[[], None]) -> None:
        # A flush sends at once, while a poll would wait for more records (``linger.ms``).
        began, self.waits_for_room = time.monotonic(), True
        try:
            while not self._spoilt:  # the next `poll` or `flush` raises the failure
                self._check_patience(began)
                with self._naming_errors():
                    self.client.flush(_FULL_SECONDS)
                with contextlib.suppress(BufferError):
                    produce()
                    return
        finally:
            self.waits_for_room = False

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Translates the exceptions that librdkafka raises after a fatal error.

        `TransactionAborted` means that a new producer can continue at the last commit. Other errors end the worker.
        """
        try:
            yield
        except SystemError as exc:  # after restarts of brokers, confluent-kafka may lose the exception
            raise TransactionAborted(f"the producer has failed: {exc}") from exc
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if self._transactional:
                raise transaction_failed("the transaction has failed", error) from exc
            if error.code() in _OUT_OF_STEP:
                raise TransactionAborted(f"the producer has failed: {error.str()}") from exc
            raise ProductionError(f"the producer had to stop: {error.str()}") from exc

    def _on_failure(self, failure: Failure) -> None:
        if failure.error.code() not in CONSEQUENCES:
            self._failed(failure)

    def _failed(self, failed: Failure) -> None:
        error, topic, partition, key, value, timestamp = failed
        if (denied := _denied(topic, error)) is not None:
            # Replaces an earlier failure of the transaction: without the right, each attempt would fail.
            self._failure = denied
            return
        if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self._refusals.spare(failed)
            return  # the record is sent again after the rollback, with the refused records
        if not is_refusal(error):
            if self._transactional or error.code() in _OUT_OF_STEP:
                where = topic if partition < 0 else str(TopicPartition(topic, partition))
                failure: StreamsError = TransactionAborted(
                    f"the producer has failed: {error.str()} (a record for {where})"
                )
            else:
                failure = ProductionError(f"a record could not be written to {topic}: {error.str()}")
            self._failure = self._failure or failure
        elif topic in self._stores:
            # Replaces an earlier failure of the transaction: this refusal is the reason, and would come again.
            self._failure = self._fault(topic, partition, refusal(error, topic, key, value, timestamp))
        else:
            self._refusals.add(failed)

    def _fault(self, topic: str, partition: int, refused: ResultRefused) -> ProductionError:
        """The error for a refused change of a store or a refused dead letter, which no handler may skip."""
        if topic in self._stores:
            return ChangelogRefused(self._stores[topic], TopicPartition(topic, partition), refused)
        return ProductionError(f"a dead letter could not be written to {topic}: {refused}. {refused.remedy}")

    def _not_taken(self, failed: Failure) -> None:
        """Handles a record that librdkafka refused before sending it, so that the transaction does not fail.

        The refusal of a result or of a dead letter is raised at once, in the call that knows its record. A missing
        right is raised at once, too.
        """
        error, topic, _, key, value, timestamp = failed
        if (denied := _denied(topic, error)) is not None:
            raise denied
        if is_refusal(error) and topic not in self._stores:
            raise refusal(error, topic, key, value, timestamp)
        self._failed(failed)

    def _raise_failure(self, *, wait: bool = False) -> None:
        """Raises the first failure, or the refused results that caused it. With ``wait``, refused results are raised at
        the next flush instead, all together."""
        if (lost := self._refusals.lost_letter()) is not None:
            error, topic, partition, key, value, timestamp = lost
            self._failure = self._fault(topic, partition, refusal(error, topic, key, value, timestamp))
        if isinstance(self._failure, (ProductionError, AuthorizationError)):
            raise self._failure
        if not wait and (story := self._refusals.take()) is not None:
            raise ResultsRefused(story)
        if self._failure is not None:
            raise self._failure
