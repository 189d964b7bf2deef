"""`Core`: the common part of the blocking and the asyncio producer: serialization, buffer, channel and counts."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any, TypeVar

from confluent_kafka import Producer

from streamapp._base.counted import counted
from streamapp._base.names import check_topic_name
from streamapp._base.prometheus import Metric, labelled
from streamapp._base.rough_size import rough_size
from streamapp.broker.librdkafka import opening
from streamapp.errors import BrokerError, ConfigError
from streamapp.producer.buffer import Buffer, Claim
from streamapp.producer.counts import Counts, ProducerMetrics, described
from streamapp.producer.idempotent import IdempotentChannel
from streamapp.producer.options import ProducerOptions
from streamapp.producer.outcomes import Outcomes
from streamapp.producer.parcel import RECORD_BYTES, Channel, Parcel, Sender, record_bytes
from streamapp.producer.partition_counts import PartitionCounts
from streamapp.producer.report import BufferFull, UnsentRecords
from streamapp.producer.spill_log import SpillLog
from streamapp.producer.transactional import TransactionalChannel
from streamapp.records import NO_HEADERS, Headers, OutputRecord, check_headers, check_timestamp
from streamapp.serdes import BytesSerde, Serde
from streamapp.serdes.base import check_serde
from streamapp.serdes.framing import Framing

__all__ = ["Core"]

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


class Core:
    """A producer without a public interface. Several threads may use a core at the same time."""

    def __init__(
        self, options: ProducerOptions, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> None:
        self.options: ProducerOptions = options
        self._serdes = (key_serde or BytesSerde(), value_serde or BytesSerde())
        for serde, what in zip(self._serdes, ("key_serde", "value_serde"), strict=True):
            check_serde(serde, what)
        self._bound: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], bytes], Framing]] = {}
        self._counts = Counts()
        self._partitions = PartitionCounts(options.client())
        self._buffer = Buffer(options.buffer_records, options.buffer_bytes)
        self._outcomes = Outcomes(options.name, self._buffer, self._counts)
        self._log: SpillLog | None = None
        self._channel: Channel | None = None
        self._closed = False
        self._unasked = count(1)
        self._unasked_so_far = 0
        """The number of errors that `note_unasked` has got."""

    def open(self) -> None:
        """Opens the clients and the local log, without waiting for brokers."""
        options = self.options
        if self._channel is not None:
            raise ConfigError(f"the producer {options.name} was opened before: make a new producer")
        if not options.transactional:
            channel: Channel = IdempotentChannel(options, self._counts, self._outcomes)
        else:
            channel = self._transactional(options)
        self._outcomes.start()
        self._channel = channel

    def _transactional(self, options: ProducerOptions) -> Channel:
        # The sender opens its client later, in another thread. This client for a test finds wrong settings before the
        # log exists.
        with opening(options.producer()) as current:
            Producer(current)
        name = f"{options.name}-{uuid.uuid4().hex[:12]}"
        if options.spill_dir is not None:
            self._log = SpillLog(options.spill_dir, options.name, most_bytes=options.spill_max_bytes)
            name = self._log.transactional_id
        return TransactionalChannel(options, name, self._buffer, self._counts, self._outcomes, self._log)

    def record(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> OutputRecord:
        """The serialized record.

        Raises `SerializationError`, `TopologyError` for a name that no topic can have, or `TypeError` for wrong headers
        or timestamps.
        """
        serialize = self._bound.get(topic)
        if serialize is None:
            check_topic_name(topic, "the topic")
            of_key, of_value = self._serdes[0].bind(topic, True), self._serdes[1].bind(topic, False)
            serialize = of_key.serialize, of_value.serialize, Framing(of_key, of_value)
            self._bound[topic] = serialize
        if headers is not NO_HEADERS:
            check_headers(headers)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        else:
            check_timestamp(timestamp)
        raw_key = None if key is None else serialize[0](key)
        raw_value = None if value is None else serialize[1](value)
        if serialize[2].parts:
            raw_key, raw_value, headers = serialize[2].parted(raw_key, raw_value, headers)
        return OutputRecord(topic, raw_key, raw_value, timestamp, headers, partition)

    def making(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> Callable[[], OutputRecord]:
        """The call of `record` for later. The default of ``timestamp`` is the present time, not that of the call."""
        when = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        return partial(self.record, topic, key, value, when, headers, partition)

    def parcel(self, records: Sequence[OutputRecord], sender: Sender) -> Parcel:
        size = sum([record_bytes(record) for record in records])
        return Parcel(len(records), size, records=tuple(records), sender=sender)

    def try_reserve(self, parcel: Parcel) -> bool:
        """Reserves space in the buffer for a parcel. Returns False if the call has to wait for space (`reserve`).

        Raises `BufferFull` if the buffer is full and ``when_full`` is "refuse", or if the parcel is larger than the
        buffer.
        """
        free = self._reserve(self._buffer.try_reserve, parcel)
        if not free and self.options.when_full == "refuse":
            raise self.full(parcel.count)
        return free

    def reserve(self, parcel: Parcel) -> Future[None]:
        """Reserves space as soon as it is free, behind earlier calls that wait. The future is then done.

        Raises `BufferFull` if the parcel is larger than the buffer.
        """
        return self._reserve(self._buffer.reserve, parcel)

    def reserve_now(self, parcel: Parcel) -> None:
        """Reserves space in the buffer for a parcel. Raises `BufferFull` if the buffer is full."""
        if not self.try_reserve(parcel):
            raise self.full(parcel.count)

    def _reserve(self, call: Callable[[Claim], T], parcel: Parcel) -> T:
        self.check_open()
        try:
            return call(parcel)
        except BufferFull:  # larger than the buffer
            self._counts.refused(parcel.count)
            raise

    def hold(self, key: Any, value: Any) -> Callable[[], None]:
        """Reserves space in the buffer for a record that is not serialized yet, by its rough size.

        The result is a function that frees this space, at its first call. Raises `BufferFull` if the buffer is full.
        """
        size = min(self.options.buffer_bytes, RECORD_BYTES + rough_size(key) + rough_size(value))
        claim = Claim(1, size)
        if not self._buffer.try_reserve(claim):
            raise self.full(1)
        return partial(self._buffer.give_up, claim)

    def full(self, records: int) -> BufferFull:
        """Counts records that the full buffer refuses, and returns the error for their caller."""
        self._counts.refused(records)
        return BufferFull(
            f"the buffer of {self.options.name} is full: {counted(self._buffer.records, 'record')} of "
            f"{counted(self._buffer.bytes, 'byte')} not confirmed yet. The record was not taken. Send "
            "more slowly, or send the record again later"
        )

    def give_up(self, parcel: Parcel) -> None:
        """Takes the count and the space of a parcel back, unless a channel has taken the parcel.

        Each call that sends a parcel ends with this call after an exception. A Ctrl-C is such an exception, too.
        """
        if not parcel.taken:
            self._counts.withdrawn(parcel)
            self._buffer.give_up(parcel)

    def failed_before(self) -> None:
        """Counts a record whose report is an error, and which was never put."""
        self._counts.failed_before(1)

    def note_unasked(self, error: BaseException) -> None:
        """Notes the error of a record whose report nobody has asked for. The call may come in any thread."""
        self._unasked_so_far = next(self._unasked)
        if self._unasked_so_far == 1:
            logger.error(
                "producer %s: a record was not sent, and nobody has asked the future of its report: %s",
                self.options.name,
                error,
            )

    def put(self, parcel: Parcel) -> None:
        """Sends a parcel whose buffer space is reserved."""
        channel = self.check_open()
        self._counts.accepted(parcel)
        if not channel.put(parcel):
            raise self._not_open()

    def in_callback(self) -> bool:
        """True if a callback of a report makes the call. No other report of this producer comes before its end."""
        return self._outcomes.in_callback()

    def partition_count(self, topic: str) -> int:
        """The partition count of a topic. Raises `BrokerError` if brokers do not tell."""
        self.check_open()
        return self._partitions.of(topic)

    def check_transactions(self) -> None:
        """Raises `ConfigError` for a producer without transactions."""
        if not self.options.transactional:
            raise ConfigError(
                f"the producer {self.options.name} was made without transactions: give it transactions=True, "
                "or a spill_dir"
            )

    def settled(self, seconds: float | None) -> bool:
        """Sends all waiting records at once, and returns True when every record is confirmed or has failed.

        Returns False if ``seconds`` pass first (None: no limit).
        """
        return self._counts.settled(seconds) if self._channel is None else self._channel.flush(seconds)

    def metrics(self) -> ProducerMetrics:
        return self._counts.snapshot()._replace(
            buffered_records=self._buffer.records,
            buffered_bytes=self._buffer.bytes,
            spilled_bytes=self._log.bytes if self._log is not None else 0,
        )

    def families(self) -> Iterable[Metric]:
        """The counts as metrics for Prometheus."""
        return labelled(described(self.metrics()), {"producer": self.options.name})

    def close(self, seconds: float) -> None:
        """Stops the producer. Waits at most ``seconds`` for confirmations, and then for the callbacks of all reports.

        Raises `UnsentRecords` if records are then neither confirmed nor in the local log.
        """
        if self._channel is not None and not self._closed:
            self._closed = True
            lost = self._channel.close(seconds)
            self._outcomes.end()
            if self._unasked_so_far > 1:
                logger.error(
                    "producer %s: %s were not sent, and nobody has asked the futures of their reports",
                    self.options.name,
                    counted(self._unasked_so_far, "record"),
                )
            if lost:
                raise UnsentRecords(
                    lost,
                    f"the producer stopped with {counted(lost, 'record')} that no broker has confirmed; "
                    "the reports are errors",
                )

    def check_open(self) -> Channel:
        """The open channel. Raises `BrokerError` outside the producer's ``with`` block."""
        if self._channel is None or self._closed:
            raise self._not_open()
        return self._channel

    def _not_open(self) -> BrokerError:
        return BrokerError(
            f"the producer {self.options.name} is {'closed' if self._closed else 'not open'}: "
            "use it inside its with block"
        )
