"""The transactions in which a failure desk writes records and marks."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamapp._base import failpoints
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.librdkafka import opening
from streamapp.broker.refused import CONSEQUENCES, REMEDIES, is_refusal, refusal_text, remedy_for
from streamapp.broker.requests import CHECK_KAFKA, broker_error
from streamapp.config import StreamsConfig
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.records import OutputRecord, create_time
from streamapp.runners.connection import client_of, settings_of

__all__ = ["DeskTransactions", "LettersRefused", "Row"]

_PATIENCE_SECONDS = 30.0
_STEP_SECONDS = 0.1


class Row(NamedTuple):
    """A record of a transaction, and the id of its letter."""

    letter: str
    record: OutputRecord


class LettersRefused(BrokerError):
    """Brokers refuse a request with records of these letters."""

    def __init__(self, reason: str, letters: Set[str]) -> None:
        super().__init__(reason)
        self.letters = letters


class DeskTransactions:
    """The transactions of one desk. From the beginning of the ``with`` block on, brokers refuse the transactions of
    earlier desks."""

    def __init__(self, config: StreamsConfig, topic: str, marks: str) -> None:
        KafkaAdmin(settings_of(config)).ensure_topics([TopicSpec(marks, 1, {"cleanup.policy": "compact"})])
        id = f"{topic}-desk"
        self._remedies = {
            **REMEDIES,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"Grant this client WRITE on the transactional id {id}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Grant this client WRITE on {marks}, and on the source topics of "
            "letters to replay",
        }
        with opening(client_of(config)) as current:
            self._producer = Producer(
                {
                    **current,
                    "transactional.id": id,
                    "partitioner": "murmur2_random",
                    "linger.ms": 5,
                }
            )

    def __enter__(self) -> DeskTransactions:
        self._ask("init_transactions", _PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        # A fenced producer raises its error again, which would hide the desk's own.
        with suppress(KafkaException):
            self._producer.flush(0)

    def write(self, rows: Sequence[Row]) -> None:
        """Writes rows in one transaction: all of them, or none. Raises `LettersRefused` if brokers refuse a row."""
        if not rows:
            return
        failed: list[tuple[Row, KafkaError]] = []
        self._ask("begin_transaction")
        try:
            for row in rows:
                if failed or not self._produce(row, failed):
                    break  # the transaction has failed
            failpoints.hit("desk-written")
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while self._ask("flush", _STEP_SECONDS) and not failed and time.monotonic() < deadline:
                pass
            refused = [(row, error) for row, error in failed if is_refusal(error)]
            if refused:
                raise self._refusal(refused)
            self._ask("commit_transaction", _PATIENCE_SECONDS)
            failpoints.hit("desk-committed")
        except BaseException:
            with suppress(KafkaException):  # of a fenced or lost producer, whose transaction brokers abort
                self._producer.abort_transaction(_PATIENCE_SECONDS)
            raise

    def _produce(self, row: Row, failed: list[tuple[Row, KafkaError]]) -> bool:
        """Sends a row. False: the client takes no row any more, because the transaction has failed.

        If brokers refused an earlier row, the delivery report of this row may still be under way.
        """
        record, deadline = row.record, time.monotonic() + _PATIENCE_SECONDS

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() not in CONSEQUENCES:
                failed.append((row, error))

        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    on_delivery=delivered,
                    timestamp=create_time(record.timestamp),
                    headers=list(record.headers),
                )
                break
            except BufferError:  # the client's queue is full until brokers have taken some records
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"brokers have taken no record for {_PATIENCE_SECONDS:g} s. {CHECK_KAFKA}"
                    ) from None
                self._producer.poll(_STEP_SECONDS)
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() in (KafkaError._FATAL, KafkaError._STATE):
                    return False
                raise self._refusal([(row, reason)]) from error
        self._producer.poll(0)
        return True

    def _refusal(self, refused: Sequence[tuple[Row, KafkaError]]) -> BrokerError:
        (row, error), record = refused[0], refused[0][0].record
        text = refusal_text(error, record.key, record.value, record.timestamp)
        said = broker_error(
            f"letter {row.letter}: a record for {record.topic} cannot be sent: {text}",
            error,
            {error.code(): remedy_for(error, record.topic)},
        )
        if isinstance(said, AuthorizationError):
            return said  # another attempt with one letter would get the same answer
        return LettersRefused(str(said), {each.letter for each, _ in refused})

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._producer, name)(*arguments)
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
            raise broker_error(
                f"{name.replace('_', ' ')} failed: {reason.str()}", reason, self._remedies
            ) from error
