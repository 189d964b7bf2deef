"""Producers for a worker, which cost little for each record and report only failures.

`NativeSender` calls librdkafka from C (``streamapp/broker/native/producer.c``). `ConfluentSender` uses
confluent-kafka's producer, which takes about three times the CPU time for each record. `open_sender` chooses
`ConfluentSender` if the C file was not compiled at the installation, or if a client setting is a Python callback.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp.broker.librdkafka import COMPILED, opening, pass_on_log, plain_settings
from streamapp.engine.runner_ports import Position
from streamapp.records import NO_HEADERS, Headers, TopicPartition, create_time
from streamapp.runners.refusals import Failure
from streamapp.runners.worker.logs import CLIENT_LOGGER
from streamapp.runners.worker.membership import Member

if COMPILED:
    from streamapp.broker import _native

__all__ = ["FLUSH_STEP_SECONDS", "Sender", "group_metadata", "open_sender"]

FLUSH_STEP_SECONDS = 0.001
"""The time-out in seconds of one call in a flush. A longer call would notice the end of a flush only every 10 ms,
because librdkafka reports no successes here."""
_SEND_SECONDS = 0.005
_GATHER_SECONDS = 0.002
_MANY = 1
"""With more than so many unacknowledged records, the thread waits for more records before it sends again. Otherwise
many requests with single records would keep the brokers busy."""


class Sender(Protocol):
    """A librdkafka producer. Its methods raise `KafkaException`; `poll` and `flush` report failed records."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp: int,
        headers: Headers,
        /,
    ) -> None:
        """Puts a record into librdkafka's queue. Partition -1: the key decides. Raises `BufferError` if the queue is
        full."""

    def produce_rows(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        start: int,
        end: int,
        /,
    ) -> int:
        """Puts the records from index ``start`` to ``end`` (exclusive) into librdkafka's queue, all without headers.

        Stops at the first record that librdkafka does not take, and returns the index of this record, or ``end``. The
        caller then calls `produce` for this record, which raises the error. The timestamp 0 becomes 1, because
        librdkafka takes 0 for the present time.
        """

    def poll(self, timeout: float) -> None:
        """Waits at most ``timeout`` seconds for reports of failed records."""

    def flush(self, timeout: float) -> int:
        """Sends everything, and waits at most ``timeout`` seconds. Returns the number of records that are not
        acknowledged."""

    def send_now(self) -> None:
        """Sends records at once that would wait for more records (``linger.ms``)."""

    def purge(self) -> None:
        """Drops the records that are not acknowledged."""

    def __len__(self) -> int:
        """The number of records that are not acknowledged."""

    def taken(self) -> tuple[int, int]:
        """The numbers of records, and of bytes of their keys and values, since the sender was opened."""

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets(
        self, positions: Mapping[TopicPartition, Position], group: str, member: Member, timeout: float
    ) -> None:
        """Adds a group's offsets to the transaction. Brokers refuse offsets of a stale member (KIP-447)."""

    def commit_transaction(self, timeout: float) -> None: ...

    def abort_transaction(self, timeout: float) -> None: ...


def open_sender(settings: Mapping[str, Any], on_failure: Callable[[Failure], None]) -> Sender:
    """A `NativeSender`; a `ConfluentSender` without the C code, or with settings that are Python callbacks."""
    with opening(settings) as current:
        plain = plain_settings(current) if COMPILED else None
        if plain is None:
            return ConfluentSender(current, on_failure)
        return NativeSender(plain, settings.get("logger") or CLIENT_LOGGER, on_failure)


class NativeSender:
    """A `Sender` in C."""

    def __init__(
        self, settings: Mapping[str, str], logger: logging.Logger, on_failure: Callable[[Failure], None]
    ) -> None:
        self._client = _native.Producer(dict(settings))
        self._logger = logger
        self._on_failure = on_failure
        self._to_send: SimpleQueue[_native.Producer | None] = SimpleQueue()
        self._flusher: threading.Thread | None = None
        self.produce: Callable[[str, bytes | None, bytes | None, int, int, Headers], None] = (
            self._client.produce
        )
        self.produce_rows: Callable[
            [str, int, Sequence[bytes], Sequence[bytes | None], Sequence[int], int, int], int
        ] = self._client.produce_rows
        self.taken: Callable[[], tuple[int, int]] = self._client.taken
        self.init_transactions: Callable[[float], None] = self._client.init_transactions
        self.begin_transaction: Callable[[], None] = self._client.begin_transaction
        self.commit_transaction: Callable[[float], None] = self._client.commit_transaction
        self.abort_transaction: Callable[[float], None] = self._client.abort_transaction

    def poll(self, timeout: float) -> None:
        try:
            self._client.poll(timeout)
        finally:
            self._pass_on()

    def flush(self, timeout: float) -> int:
        try:
            return self._client.flush(timeout)
        finally:
            self._pass_on()

    def send_now(self) -> None:
        if self._flusher is None:
            self._flusher = threading.Thread(
                target=_send_now, args=(self._to_send,), name="send-now", daemon=True
            )
            self._flusher.start()
            weakref.finalize(self, self._to_send.put, None)
        if len(self._client) and self._to_send.empty():
            self._to_send.put(self._client)

    def purge(self) -> None:
        self._client.purge()

    def __len__(self) -> int:
        return len(self._client)

    def send_offsets(
        self, positions: Mapping[TopicPartition, Position], group: str, member: Member, timeout: float
    ) -> None:
        offsets = [(*tp, position.offset, position.metadata) for tp, position in positions.items()]
        self._client.send_offsets_to_transaction(offsets, group, member.generation, member.member_id, timeout)

    def _pass_on(self) -> None:
        pass_on_log(self._client.take_log(), self._logger)
        for failure in self._client.take_failures():
            self._on_failure(Failure(*failure))


def _send_now(clients: SimpleQueue[_native.Producer | None]) -> None:
    """Flushes clients in a thread, because librdkafka sends waiting records at once only during a flush.

    Records that are produced during the flush go out with the earlier records.
    """
    while (client := clients.get()) is not None:
        with suppress(KafkaException):  # a fatal error, which the next `poll` raises again
            if client.flush(FLUSH_STEP_SECONDS) > _MANY:
                time.sleep(_GATHER_SECONDS)


class ConfluentSender:
    """A `Sender` on top of confluent-kafka's producer."""

    def __init__(self, settings: Mapping[str, Any], on_failure: Callable[[Failure], None]) -> None:
        self._on_failure = on_failure
        self._client = Producer({**settings, "error_cb": _log_error})
        self._records = self._bytes = 0
        self.init_transactions: Callable[..., None] = self._client.init_transactions
        self.begin_transaction: Callable[[], None] = self._client.begin_transaction
        self.commit_transaction: Callable[..., None] = self._client.commit_transaction
        self.abort_transaction: Callable[..., None] = self._client.abort_transaction

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp: int,
        headers: Headers,
        /,
    ) -> None:
        report = partial(self._on_delivery, timestamp)  # librdkafka forgets the timestamp
        if headers:
            self._client.produce(topic, value, key, partition, report, None, timestamp, list(headers))
        else:
            self._client.produce(topic, value, key, partition, report, None, timestamp)
        self._records += 1
        self._bytes += len(key or b"") + len(value or b"")

    def produce_rows(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        start: int,
        end: int,
        /,
    ) -> int:
        for at in range(start, end):
            try:
                self.produce(topic, values[at], keys[at], partition, create_time(timestamps[at]), NO_HEADERS)
            except (BufferError, KafkaException):
                return at
        return end

    def taken(self) -> tuple[int, int]:
        return self._records, self._bytes

    def poll(self, timeout: float) -> None:
        self._client.poll(timeout)

    def flush(self, timeout: float) -> int:
        return int(self._client.flush(timeout))

    def send_now(self) -> None:
        deadline = time.monotonic() + _SEND_SECONDS
        while len(self._client) and time.monotonic() < deadline:
            self._client.flush(FLUSH_STEP_SECONDS)

    def purge(self) -> None:
        self._client.purge(in_queue=True, in_flight=True, blocking=False)

    def __len__(self) -> int:
        return len(self._client)

    def send_offsets(
        self, positions: Mapping[TopicPartition, Position], group: str, member: Member, timeout: float
    ) -> None:
        offsets = [RdTopicPartition(*tp, *position) for tp, position in positions.items()]
        self._client.send_offsets_to_transaction(offsets, group_metadata(group, member), timeout)

    def _on_delivery(self, timestamp: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._on_failure(
                Failure(
                    error,
                    message.topic() or "",
                    message.partition() or 0,
                    message.key(),
                    message.value(),
                    timestamp,
                )
            )


def group_metadata(group: str, member: Member) -> bytes:
    """The proof of membership in a consumer group, for confluent-kafka's `send_offsets_to_transaction`.

    confluent-kafka gives this proof only for its own group consumers, as opaque bytes. A worker's member belongs to
    Faust's consumer, so this function builds the bytes. Their format is private to librdkafka, so
    `tests/worker/test_transactions.py` compares them with those of the installed version.
    """
    return b"".join(
        (
            b"CGMDv2:",
            struct.pack("<i", member.generation),
            group.encode(),
            b"\0",
            member.member_id.encode(),
            b"\0",
            b"\1",  # no group.instance.id follows
        )
    )


def _log_error(error: KafkaError) -> None:
    CLIENT_LOGGER.warning("producer: %s", error.str())  # the next call raises a fatal error
