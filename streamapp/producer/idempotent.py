"""The channel for single records: librdkafka's idempotent producer. Its retries neither double records nor change their
order."""

from __future__ import annotations

import threading
import time
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamapp._base.counted import counted
from streamapp.broker.librdkafka import opening
from streamapp.broker.refused import REMEDIES, is_refusal
from streamapp.producer.buffer import Buffer
from streamapp.producer.counts import Counts
from streamapp.producer.options import ProducerOptions
from streamapp.producer.parcel import Parcel
from streamapp.producer.report import DeliveryError, UnsentRecords
from streamapp.producer.retries import count_retries
from streamapp.producer.session import CLIENT_LOGGER
from streamapp.records import create_time

__all__ = ["IdempotentChannel"]

_POLL_SECONDS = 0.1
_PURGE_SECONDS = 5.0
_NOT_WRITTEN = (
    *(REMEDIES.keys() - {KafkaError._UNKNOWN_TOPIC}),  # records that are on their way fail with this one, too
    KafkaError._PURGE_QUEUE,
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)
"""Errors that say for certain that no topic has the record, so that an application may send the record again."""


class IdempotentChannel:
    """A `Channel` without transactions. A parcel has one record."""

    def __init__(self, options: ProducerOptions, buffer: Buffer, counts: Counts) -> None:
        self._settings = {
            **options.producer(),
            "delivery.timeout.ms": options.delivery_timeout_ms,
            **count_retries(counts.retried),
            "logger": CLIENT_LOGGER,
        }
        self._buffer, self._counts = buffer, counts
        self._renewing = threading.Lock()
        self._client = self._open()
        self._closed = False
        self._poller = threading.Thread(target=self._poll, name="producer-reports", daemon=True)
        self._poller.start()

    def _open(self) -> Producer:
        with opening(self._settings):
            return Producer(self._settings)

    def put(self, parcel: Parcel) -> None:
        (record,) = parcel.records
        client = self._client
        try:
            client.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                partial(self._report, parcel),
                timestamp=create_time(record.timestamp),
                headers=list(record.headers),
            )
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError._FATAL and self._renew(client):
                self.put(parcel)
                return
            self._fail(parcel, exc.args[0], written=False)

    def _renew(self, old: Producer) -> bool:
        """Opens a new client after a fatal error. Records in the old client get an error as their report.

        False: the channel is closed.
        """
        with self._renewing:
            if self._client is old:
                old.purge()
                old.poll(0)
                self._client = self._open()
        return not self._closed

    def close(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self._client) and time.monotonic() < deadline:
            self._client.flush(_POLL_SECONDS)  # sends at once what lingers
        lost = self._counts.snapshot().unconfirmed
        self._closed = True
        if lost:
            self._client.purge()
            self._client.flush(_PURGE_SECONDS)
        self._poller.join()
        if lost:
            raise UnsentRecords(
                lost,
                f"the producer stopped with {counted(lost, 'record')} that no broker has confirmed; "
                "the reports are errors",
            )

    def _poll(self) -> None:
        while not self._closed:
            self._client.poll(_POLL_SECONDS)

    def _report(self, parcel: Parcel, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(parcel, error, written=False if error.code() in _NOT_WRITTEN else None)
            return
        reports = parcel.reports(((message.partition(), message.offset()),))
        self._buffer.release(1, parcel.size)
        self._counts.confirmed(1, [reports[0].seconds])
        parcel.future.set_result(reports)

    def _fail(self, parcel: Parcel, error: KafkaError, written: bool | None) -> None:
        remedy = REMEDIES.get(error.code())
        reason = f"{error.str()}. {remedy}" if remedy else error.str()
        self._buffer.release(1, parcel.size)
        self._counts.failed(1)
        topic = parcel.records[0].topic
        parcel.future.set_exception(DeliveryError(topic, reason, written, refused=is_refusal(error)))
