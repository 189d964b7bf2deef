"""How records of a Spark task go to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from streamapp.records import create_time

__all__ = ["TIMEOUT_SECONDS", "TRANSACTION_TIMEOUT_MS", "produce", "roll_back", "transactional_producer"]

TIMEOUT_SECONDS = 60.0
TRANSACTION_TIMEOUT_MS = 600_000
"""A busy machine must not end what makes progress."""
_ABORT_SECONDS = 5.0
_FENCED_AT_A_TIME = 8


@contextmanager
def transactional_producer(settings: Mapping[str, Any]) -> Iterator[Producer]:
    """A producer, after Kafka has rolled back and shut out every earlier one of its ``transactional.id``.

    What an error leaves open is rolled back at once, so that readers of committed records do not wait for it. It has to be: librdkafka
    ends the process with an assertion when its producer is destroyed while it announces partitions of a transaction
    (`rd_kafka_txn_register_partitions`).
    """
    producer = Producer(dict(settings))
    producer.init_transactions(TIMEOUT_SECONDS)
    try:
        yield producer
    except BaseException:
        with suppress(KafkaException):  # no transaction is open, or the next producer ends it
            producer.abort_transaction(_ABORT_SECONDS)
        raise


def roll_back(clients: Iterable[Mapping[str, Any]]) -> None:
    """Has Kafka roll back what producers of earlier runs left open, and shut them out; of each client's ``transactional.id``.

    Readers of committed records wait in front of an open transaction until its time-out. So a run whose tasks read what others of
    its tasks write begins with this. Raises `KafkaException`.
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
) -> None:
    """Hands a record over as soon as the producer has room for it. ``partition`` -1 leaves it to the partitioner."""
    at = create_time(timestamp)
    while True:
        try:
            producer.produce(topic, value, key, partition, None, None, at, list(headers or ()))
            return
        except BufferError:
            producer.poll(0.05)
