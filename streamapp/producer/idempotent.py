"""The channel for single records: librdkafka's idempotent producer. Its retries neither double records nor change their
order.

Brokers refuse a batch of records as a whole, though often one record is the cause, or only the size of the batch.
Java's producer splits a batch that is too large (KAFKA-3995). This channel splits each refused batch, unless brokers
name the records that are the cause. Each record of the batch is then sent alone. Later records wait, so the order of
each partition stays.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streamapp._base.counted import counted
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.refused import OF_A_REQUEST, OF_THE_BATCH, REMEDIES, advised, is_refusal
from streamapp.producer.counts import Counts
from streamapp.producer.options import ProducerOptions
from streamapp.producer.outcomes import Outcomes
from streamapp.producer.parcel import Parcel, Reports
from streamapp.producer.plain_client import Delivered, PlainClient
from streamapp.producer.report import DeliveryError

__all__ = ["IdempotentChannel"]

logger: logging.Logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.01
"""The time after which a call of `flush` is seen at the latest, if ``linger_ms`` is longer than this."""
_DRAIN_SECONDS = 0.005
_PURGE_SECONDS = 5.0
_ASK_SECONDS = 5.0
"""The time after which brokers are asked again for the names of topics."""
_NOT_WRITTEN = (
    *(REMEDIES.keys() - {KafkaError._UNKNOWN_TOPIC}),  # records that are on their way fail with this one, too
    KafkaError._INVALID_DIFFERENT_RECORD,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)
"""Errors after which certainly no topic has the record, so that an application may send the record again."""
_SPLIT = 4
"""After a batch that was too large, although each of its records fits, batches are smaller by this factor."""


class _Refused(NamedTuple):
    """The parcel of a record in a refused request."""

    parcel: Parcel
    error: KafkaError


class IdempotentChannel:
    """A `Channel` without transactions. A parcel has one record."""

    def __init__(self, options: ProducerOptions, counts: Counts, outcomes: Outcomes) -> None:
        self._name, self._batch_size = options.name, options.batch_size
        self._timeout_seconds = options.delivery_timeout_ms / 1000
        # Without a report, librdkafka does not wake the poller for a flush.
        self._poll_seconds = _LOOK_SECONDS if options.linger_ms > 1000 * _LOOK_SECONDS else _POLL_SECONDS
        self._settings = {**options.producer(), "delivery.timeout.ms": options.delivery_timeout_ms}
        self._counts, self._outcomes = counts, outcomes
        self._numbers = itertools.count()
        self._handing = threading.Lock()
        """A lock for `_held`, which also keeps the order of the calls of `put`."""
        self._held: list[Parcel] | None = None
        """Records that have come while others are sent again. None while records go to librdkafka at once."""
        self._given_back: list[Parcel] = []
        """Records that an ended client gave back. `_take_back` decides which of them were surely not sent."""
        self._back: list[Parcel] = []
        """Records that are sent again."""
        self._refused: dict[tuple[str, int], list[_Refused]] = {}
        """Records of refused requests, by topic and partition."""
        self._told_apart: set[tuple[str, int]] = set()
        """Partitions for which brokers have named the records that are the cause of a refusal."""
        self._guilty: set[tuple[str, int]] = set()
        """Partitions of which brokers have refused a record while `_send_alone` sends each record alone."""
        self._topics: tuple[frozenset[str] | None, float] = (None, -math.inf)
        """The topics that brokers have named, and when. None: brokers did not answer."""
        self._files = CertificateFiles(self._settings)
        self._client = self._open(together=True)
        self._closed = False
        self._lost = 0
        """The number of records that no broker has confirmed at the end."""
        self._flushing = 0
        """The number of calls of `flush` that still wait. Meanwhile, records do not wait for more records
        (``linger_ms``)."""
        self._poller = threading.Thread(target=self._poll, name="producer-poller", daemon=True)
        self._poller.start()

    def _open(self, *, together: bool) -> PlainClient:
        settings = {**self._settings, "batch.size": self._batch_size}
        return PlainClient(settings, self._counts.retried, self._report, together=together)

    def put(self, parcel: Parcel) -> bool:
        partition = parcel.records[0].partition
        if partition is not None:
            parcel.partition = partition
        with self._handing:
            if self._closed:
                return False
            parcel.number = next(self._numbers)
            if self._held is not None:
                parcel.taken = True
                self._held.append(parcel)
            elif not self._produce(self._client, parcel):
                parcel.taken = True
                self._held = [parcel]
        return True

    def _produce(self, client: PlainClient, parcel: Parcel) -> bool:
        """Hands a record to librdkafka, and fails a record that librdkafka refuses. Returns False if the client has
        ended."""
        try:
            client.produce(parcel)
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError._FATAL:
                client.ended = True
                return False
            self._fail(parcel, exc.args[0], written=False)
        return True

    def flush(self, seconds: float | None) -> bool:
        with self._handing:
            self._flushing += 1
        try:
            return self._counts.settled(seconds)
        finally:
            with self._handing:
                self._flushing -= 1

    def close(self, seconds: float) -> int:
        self.flush(seconds)
        with self._handing:
            self._closed = True
        self._poller.join()
        return self._lost

    # The poller.

    def _poll(self) -> None:
        while not self._closed:
            if self._flushing and len(self._client):
                self._client.flush(_POLL_SECONDS)
            else:
                self._client.poll(self._poll_seconds)
            self._outcomes.look()
            if self._client.ended:
                self._send_again()
            elif self._files.changed():
                self._follow_files()
        self._give_up()

    def _give_up(self) -> None:
        """Fails the records that no broker has confirmed at the end."""
        self._lost = len(self._client) + len(self._given_back) + len(self._waiting())
        if self._lost:
            self._client.purge()
            self._client.flush(_PURGE_SECONDS)
            self._take_back()
            for parcel in self._waiting():
                self._fail(parcel, KafkaError(KafkaError._PURGE_QUEUE), written=False)

    def _waiting(self) -> list[Parcel]:
        """The records that no client has."""
        refused = [parcel for group in self._refused.values() for parcel, _ in group]
        return [*self._back, *refused, *(self._held or ())]

    def _follow_files(self) -> None:
        """Opens a new client, which reads the changed certificates, when no record is on its way in the old one."""
        with self._handing:
            self._held = []
        while len(self._client) and not self._closed:
            self._client.flush(_POLL_SECONDS)
            if self._client.ended:
                return  # `_send_again` opens the new client
        if self._closed:
            return
        self._client = self._open(together=True)
        self._hand_over()

    def _report(self, client: PlainClient, delivered: list[Delivered]) -> None:
        confirmed: list[tuple[Parcel, Reports]] = []
        for parcel, error, message in delivered:
            if error is None:
                place = message.partition(), message.offset()
                confirmed.append((parcel, parcel.reports((place,))))
                continue
            self._outcomes.confirmed(confirmed)  # the reports keep their order
            confirmed = []
            self._report_error(client, parcel, error, message.partition())
        self._outcomes.confirmed(confirmed)

    def _report_error(
        self, client: PlainClient, parcel: Parcel, error: KafkaError, partition: int | None
    ) -> None:
        code = error.code()
        where = parcel.records[0].topic, -1 if partition is None else partition
        parcel.partition = where[1]  # a record without a key stays where it was
        if code == KafkaError._PURGE_QUEUE:
            self._given_back.append(parcel)
        elif client.together and code == KafkaError._INVALID_DIFFERENT_RECORD:
            self._told_apart.add(where)
            self._back.append(parcel)
        elif client.together and code in OF_A_REQUEST:
            self._refused.setdefault(where, []).append(_Refused(parcel, error))
        else:
            if is_refusal(error):
                self._guilty.add(where)
            self._fail(parcel, error, written=False if code in _NOT_WRITTEN else None)

    def _fail(self, parcel: Parcel, error: KafkaError, written: bool | None) -> None:
        self._outcomes.failed(parcel, self._error(parcel, error, written))

    def _error(self, parcel: Parcel, error: KafkaError, written: bool | None) -> DeliveryError:
        topic = parcel.records[0].topic
        # librdkafka waits 30 s for a topic that brokers do not know, so a shorter time-out comes first.
        late = error.code() == KafkaError._MSG_TIMED_OUT
        cause = KafkaError(KafkaError._UNKNOWN_TOPIC) if late and self._is_missing(topic) else error
        return DeliveryError(topic, advised(cause, topic), written, refused=is_refusal(error))

    def _is_missing(self, topic: str) -> bool:
        """True if brokers say that the topic does not exist."""
        known, asked = self._topics
        if time.monotonic() - asked > _ASK_SECONDS:
            known = self._client.topics()
            self._topics = known, time.monotonic()
        return known is not None and topic not in known

    # After the end of a client.

    def _send_again(self) -> None:
        """Sends the records that the ended client gives back. Records of refused requests come first, each alone."""
        with self._handing:
            if self._held is None:
                self._held = []
        while len(self._client) and not self._closed:
            self._client.give_back(_DRAIN_SECONDS)
        if self._closed:
            return
        self._take_back()
        suspects = self._judge()
        if suspects:
            self._send_alone(suspects)
            if self._closed:
                return  # `_give_up` takes the records that this client still has
            self._take_back()
        self._counts.retried(1)
        self._client = self._open(together=True)
        self._hand_over()

    def _take_back(self) -> None:
        """Takes the records back that the client has surely not sent. The others fail, because a topic may have them.

        The client reports failures of connections in any order with the records. So nobody may decide before the client
        has given back all records.
        """
        self._client.poll(0)  # serves the reports of failures that came last
        given_back, self._given_back = self._given_back, []
        for parcel in given_back:
            if self._client.surely_unsent(parcel.born):
                self._back.append(parcel)
            else:
                self._fail(parcel, KafkaError(KafkaError._PURGE_QUEUE), written=None)

    def _judge(self) -> dict[tuple[str, int], list[_Refused]]:
        """Fails the records that are the cause of a refused request. Returns the records of requests whose cause is not
        known, by topic and partition."""
        suspects: dict[tuple[str, int], list[_Refused]] = {}
        for where, group in self._refused.items():
            if len(group) > 1 and where not in self._told_apart:
                logger.info(
                    "%s: brokers refuse a request for %s: %s. Each of its %s goes alone",
                    self._name, where[0], group[0].error.str(), counted(len(group), "record"),
                )  # fmt: skip
                suspects[where] = group
                continue
            for parcel, error in group:
                self._fail(parcel, error, written=False)
        self._refused.clear()
        self._told_apart.clear()
        return suspects

    def _send_alone(self, suspects: dict[tuple[str, int], list[_Refused]]) -> None:
        """Sends each record in a request of its own, and waits for the reports.

        If brokers take every record of a partition, its batch was too large only as a whole. Later batches are then
        smaller.
        """
        self._guilty.clear()
        self._client = self._open(together=False)
        if not self._send_in_order([parcel for group in suspects.values() for parcel, _ in group]):
            return
        while len(self._client) and not self._closed:
            if self._client.ended:
                self._client.give_back(_DRAIN_SECONDS)
            else:
                self._client.poll(_POLL_SECONDS)
        sizes = [
            sum(parcel.size for parcel, _ in group)
            for where, group in suspects.items()
            if group[0].error.code() in OF_THE_BATCH and where not in self._guilty
        ]
        if sizes:
            self._batch_size = max(1, min(self._batch_size, *sizes) // _SPLIT)

    def _hand_over(self) -> None:
        """Gives all waiting records to the new client. Afterwards, `put` gives each new record to this client at
        once."""
        waiting, self._back = self._back, []
        while self._send_in_order(waiting):
            with self._handing:
                waiting, self._held = self._held or [], []
                if not waiting:
                    self._held = None
                    return

    def _send_in_order(self, waiting: list[Parcel]) -> bool:
        """Gives records to librdkafka again, in the order of `put`. Returns False if the client has ended; the rest is
        then in `_back`.

        The new client measures ``delivery_timeout_ms`` from the moment at which it gets the record, so a record may
        take up to twice this time.
        """
        waiting.sort(key=lambda parcel: parcel.number)
        for index, each in enumerate(waiting):
            if time.monotonic() - each.born > self._timeout_seconds:
                self._fail(each, KafkaError(KafkaError._MSG_TIMED_OUT), written=False)
                continue
            if not self._produce(self._client, each):
                self._back += waiting[index:]
                return False
        return True
