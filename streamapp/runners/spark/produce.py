"""Producers of Spark's tasks: transactional producers, the rollback of earlier runs, and sending records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from streamapp.records import create_time

__all__ = ["TIMEOUT_SECONDS", "TRANSACTION_TIMEOUT_MS", "produce", "roll_back", "transactional_producer"]

TIMEOUT_SECONDS = 60.0
TRANSACTION_TIMEOUT_MS = 600_000
"""Kafka aborts a transaction after this time.

The time is long, so that a slow transaction on a busy machine succeeds.
"""
_ABORT_SECONDS = 5.0
_FENCED_AT_A_TIME = 8


@contextmanager
def transactional_producer(settings: Mapping[str, Any]) -> Iterator[Producer]:
    """A producer, after Kafka has rolled back and fenced every earlier producer of its ``transactional.id``.

    An error in the body rolls back the open transaction at once, so readers of committed records do not wait.

    The rollback also protects the process. librdkafka ends the process with an assertion if a producer is destroyed
    while it announces partitions of a transaction (`rd_kafka_txn_register_partitions`).
    """
    producer = Producer(dict(settings))
    producer.init_transactions(TIMEOUT_SECONDS)
    try:
        yield producer
    except BaseException:
        with suppress(KafkaException):  # no transaction is open, or the next producer ends the transaction
            producer.abort_transaction(_ABORT_SECONDS)
        raise


def roll_back(clients: Iterable[Mapping[str, Any]]) -> None:
    """Fences the earlier producers of each client's ``transactional.id``, and rolls back their open transactions.

    Readers of committed records wait at an open transaction until its time-out. So a run whose tasks read each other's
    output begins with this call. Raises `KafkaException`.
    """

    def fence(settings: Mapping[str, Any]) -> None:
        with transactional_producer(settings):
            pass

    with ThreadPoolExecutor(_FENCED_AT_A_TIME) as pool:
        for done in [pool.submit(fence, settings) for settings in clients]:
            done.result()


def produce(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    partition: int,
    timestamp: int | None,
    headers: Sequence[tuple[str, bytes | None]] | None,
    report: Callable[..., None] | None = None,
) -> None:
    """Hands a record to the producer, and waits while its queue is full. ``partition`` -1: the partitioner decides.

    ``report`` is called with the error and the record if brokers do not take the record.
    """
    at = create_time(timestamp)
    while True:
        try:
            producer.produce(topic, value, key, partition, report, None, at, list(headers or ()))
            return
        except BufferError:
            producer.poll(0.05)
