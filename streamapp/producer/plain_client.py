"""`PlainClient`: one librdkafka producer without transactions, which also notes the errors of its connections."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamapp.broker.librdkafka import opening
from streamapp.producer.parcel import Parcel
from streamapp.producer.retries import count_retries
from streamapp.producer.session import CLIENT_LOGGER
from streamapp.records import create_time

__all__ = ["Delivered", "PlainClient"]

Delivered = tuple[Parcel, KafkaError | None, Message]
"""A parcel, and librdkafka's report of its record."""

_NOTHING_SENT = re.compile(
    r"in state (?:INIT|DOWN|TRY_CONNECT|CONNECT|SSL_HANDSHAKE|AUTH\w*|APIVERSION_QUERY)\b"
)
"""The end of librdkafka's message about a connection that failed before it could carry a request."""
_SAME_ERROR_SECONDS = 30.0
"""librdkafka does not repeat the same error of a connection within this time."""
_NAMES_SECONDS = 2.0


_GAPLESS = "enable.gapless.guarantee"


def _is_news(record: logging.LogRecord) -> bool:
    """False for librdkafka's log lines about a client that ended because of a refused batch. Such an end is no failure
    here."""
    line = record.getMessage()
    return not (_GAPLESS in line or "gap-less guarantee" in line)


_LOGGER = CLIENT_LOGGER.getChild("producer")
_LOGGER.addFilter(_is_news)


class _Note(msgspec.Struct, gc=False):
    """The callback of a parcel. A closure would be four more objects of the garbage collector for each record."""

    noted: deque[Delivered]
    parcel: Parcel

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.noted.append((self.parcel, error, message))


class PlainClient:
    """A librdkafka producer. With ``together``, the client ends when brokers refuse a batch. Otherwise each record has
    a request of its own.

    ``together`` sets librdkafka's ``enable.gapless.guarantee``, with which a refusal is a fatal error of the client. So
    no later record of a partition is written before the refused records are handled. `give_back` takes the other
    records out of librdkafka.

    A report may call this client, or run a function of the application that does. So librdkafka's callbacks only note
    the reports. This object makes a report after the call of librdkafka that has run the callback. Otherwise
    confluent-kafka would end the process: a call inside a callback removes the state that the next callback needs.

    Several threads may call `produce`. Only one thread at a time calls `poll`, `flush` and `give_back`, and makes the
    reports. An application's main thread must not do so, because a Ctrl-C there loses reports.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        retried: Callable[[int], None],
        report: Callable[[PlainClient, list[Delivered]], None],
        *,
        together: bool,
    ) -> None:
        """``report`` gets the outcomes of records, many at once, as `poll` and `flush` find them."""
        self.together: bool = together
        self.ended: bool = False
        """True after a fatal error: the client sends nothing more."""
        self._doubtful_until = -math.inf
        self._report = report
        self._noted: deque[Delivered] = deque()
        self._unreported = 0
        self._counting = threading.Lock()
        kind = {_GAPLESS: True} if together else {"batch.num.messages": 1, "linger.ms": 0}
        with opening(settings) as current:
            self._producer = Producer(
                {
                    **current,
                    **kind,
                    **count_retries(retried),
                    "error_cb": self._on_error,
                    "logger": _LOGGER,
                }
            )

    def __len__(self) -> int:
        """The number of records without a report."""
        return self._unreported

    def produce(self, parcel: Parcel) -> None:
        """Takes the only record of a parcel. With partition -1, the key decides the partition. Raises
        `KafkaException`."""
        (record,), note = parcel.records, _Note(self._noted, parcel)
        timestamp, headers = create_time(record.timestamp), list(record.headers)
        with self._counting:
            try:
                # No signal can come between these lines and the call.
                self._unreported += 1
                parcel.taken = True
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    parcel.partition,
                    note,
                    timestamp=timestamp,
                    headers=headers,
                )
            except Exception:
                self._unreported -= 1
                parcel.taken = False
                raise

    def poll(self, seconds: float) -> None:
        """Serves reports, for up to ``seconds``."""
        self._call(self._producer.poll, seconds)

    def flush(self, seconds: float) -> None:
        """Sends all waiting records at once, and serves delivery reports for up to ``seconds``."""
        self._call(self._producer.flush, seconds)

    def give_back(self, seconds: float) -> None:
        """Takes the waiting records out of librdkafka's queues, and serves reports for up to ``seconds``."""
        self._producer.purge(in_queue=True, in_flight=False)
        self.poll(seconds)

    def purge(self) -> None:
        """Takes all records out of librdkafka, also those without an answer of their broker."""
        self._producer.purge()

    def topics(self) -> frozenset[str] | None:
        """The names of all topics that the client may see. None if brokers do not answer.

        The request names no topic, because brokers might create a topic that a request names.
        """
        try:
            return frozenset(self._producer.list_topics(timeout=_NAMES_SECONDS).topics)
        except KafkaException:
            return None

    def surely_unsent(self, since: float) -> bool:
        """True if a record in librdkafka's queue was certainly never sent. ``since`` is when the client got the record.

        librdkafka does not distinguish a record that was never sent from a record that waits for another attempt. But
        another attempt follows only after a connection has failed. So a record that came after the last failure of a
        connection was never sent.
        """
        return since > self._doubtful_until

    def _call(self, call: Callable[[float], int], seconds: float) -> None:
        try:
            call(seconds)
        except KafkaException as exc:
            error = exc.args[0]
            if not error.fatal():
                raise
            if not self.ended and error.code() != KafkaError._GAPLESS_GUARANTEE:
                _LOGGER.warning("producer: %s; its records go through a new client", error.str())
            self.ended = True
        finally:
            self._make_reports()

    def _make_reports(self) -> None:
        delivered = [self._noted.popleft() for _ in range(len(self._noted))]
        if delivered:
            self._report(self, delivered)
            with self._counting:
                self._unreported -= len(delivered)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() not in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
        ) and not _NOTHING_SENT.search(error.str()):
            self._doubtful_until = time.monotonic() + _SAME_ERROR_SECONDS
        _LOGGER.warning("producer: %s", error.str())
