"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from streamapp._base.aside import MustAsk, unless_asking
from streamapp._base.counted import counted
from streamapp.producer.core import Core
from streamapp.producer.face import ProducerFace, TransactionFace
from streamapp.producer.in_order import InOrder, Make, Place
from streamapp.producer.report import BufferFull, DeliveryError, DeliveryReport, UnsentRecords
from streamapp.records import NO_HEADERS, Headers, OutputRecord

__all__ = ["ReliableProducer", "Transaction"]

K = TypeVar("K")
V = TypeVar("V")


class ReliableProducer(ProducerFace[K, V]):
    """Sends records to Kafka from an asyncio application; `SyncReliableProducer` is its twin for threads.

    ``name`` stands in metrics and logs, and is the beginning of the transactional ids. A record has one of three
    outcomes. All in-sync replicas confirm the record (``acks=all``, idempotent); or the local log takes it; or its
    report is an error. The key of a record decides its partition, as in Java's client (murmur2), unless ``partition=``
    is given. Records without a key go to one partition for a while, then to another, because larger batches are
    cheaper.

    - ``key_serde``, ``value_serde``: the serdes for keys and values (default: bytes as they are).
    - ``linger_ms``, ``batch_size``, ``compression_type``: as in Kafka's producers (``linger.ms`` ...).
    - ``buffer_records``, ``buffer_bytes``: limits for the records in memory that brokers have not confirmed.
    - ``when_full``: at such a limit, `send` waits (``"wait"``) or raises `BufferFull` (``"refuse"``). With ``"spill"``,
      all records in memory go to the local log as soon as they reach three quarters of a limit.
    - ``spill_dir``: the folder of the local log. Every process needs its own folder. If a record is not
      confirmed within ``spill_after_ms``, all records in memory go to this log. From the log, records go to Kafka
      exactly once and in order. After a kill of this process, the next producer with this folder sends them. A log of
      ``spill_max_bytes`` takes no more records, except those in memory at the end of the producer.
    - ``transactions``: records go out in transactions, and `transaction` is allowed. ``spill_dir`` implies this.
    - ``delivery_timeout_ms``: without transactions, the report of a record that is not confirmed in this time is an
      error. If brokers refuse a request, its other records are sent again, and may take up to twice this time.
    - ``close_timeout_ms``: the longest time for which the end of the ``async with`` block waits for confirmations.

    ``bootstrap_servers`` and ``client_properties`` are those of `StreamsConfig`. Raises `ConfigError` for a wrong
    setting.

    >>> async def main(servers: str) -> None:
    ...     async with ReliableProducer("orders-service", bootstrap_servers=servers) as producer:
    ...         report = await producer.send("orders", key=b"o1", value=b"paid")
    ...         print(report.partition, report.offset)
    """

    async def __aenter__(self) -> Self:
        self._order = InOrder(self._core)
        self._later: set[asyncio.Task[None]] = set()
        """The records of `send_soon` that wait for a registry, and then for space in the buffer."""
        await asyncio.to_thread(self._core.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends, waiting = time.monotonic() + self._close_seconds, 0
        try:
            if self._later:
                await asyncio.wait(self._later, timeout=self._close_seconds)
        finally:  # also if this call is cancelled
            for each in self._later:
                waiting += each.cancel()
            unsent = (
                f"the producer stopped with {counted(waiting, 'record')} that waited for the schema registry or for "
                "space in the buffer; the reports are errors"
            )
            try:
                await asyncio.to_thread(self._core.close, max(0.0, ends - time.monotonic()))
            except UnsentRecords as exc:
                if not waiting:
                    raise
                raise UnsentRecords(waiting + exc.count, f"{exc}. Also, {unsent}") from None
        if waiting:
            raise UnsentRecords(waiting, unsent)

    async def send(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> DeliveryReport:
        """Sends a record, and returns its report when the record is safe.

        A record is safe when brokers have confirmed it or, with ``spill_dir``, when it is in the local log on disk
        (docs/producing.md). ``timestamp`` is in ms since the epoch (default: now). A call that is cancelled while it
        waits for space in the buffer sends nothing. After that, a cancellation does not stop the record.

        Raises `DeliveryError` if the record was not confirmed, and `SerializationError` if a serde refuses key or
        value. Raises `BufferFull` if the buffer has no space and the call does not wait (``when_full``), or if the
        record is larger than the buffer. Raises `SchemaRegistryError` if the registry of a serde does not answer. The
        event loop goes on while a call waits for the registry.
        """
        self._core.check_open()
        make = self._core.making(topic, key, value, timestamp, headers, partition)
        record = self._order.at_once(topic, make)
        if record is None:
            async with self._order.join([topic]) as place:
                record = await place.record(topic, make)
        return (await self._order.deliver([record]))[0]

    def send_soon(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> asyncio.Future[DeliveryReport]:
        """Takes a record without waiting, and returns a future of its report.

        The records of a partition arrive in the order of these calls and of those of `send`. Raises `BufferFull` if the
        buffer is full, because the call cannot wait for space, as `send` does. Raises `SerializationError` if a serde
        refuses key or value.

        The first record of a topic may need an answer of the schema registry. The call then returns at once, and the
        future gets the errors that `send` would raise. Do not change key and value before the future is done.
        """
        self._core.check_open()
        make = self._core.making(topic, key, value, timestamp, headers, partition)
        report: asyncio.Future[DeliveryReport] = asyncio.get_running_loop().create_future()
        record = self._order.at_once(topic, make)
        if record is not None:
            self._order.put_now(record, report)
            return report
        free = self._core.hold(key, value)
        place = self._order.join([topic])
        later = asyncio.create_task(self._send_later(topic, make, place, report, free))
        self._later.add(later)
        later.add_done_callback(partial(self._over, topic, place, report, free))
        return report

    async def _send_later(
        self,
        topic: str,
        make: Make,
        place: Place,
        report: asyncio.Future[DeliveryReport],
        free: Callable[[], None],
    ) -> None:
        """Sends a record of `send_soon` that waits for a registry. The confirmation comes after the call.

        Meanwhile the record has space in the buffer by its rough size, which ``free`` frees.
        """
        try:
            async with place:
                record = await place.record(topic, make)
            free()
            await self._order.post(record, report)
        except Exception as exc:
            if not isinstance(exc, BufferFull):  # counted as refused
                self._core.failed_before()
            if not report.done():
                report.set_exception(exc)

    def _over(
        self,
        topic: str,
        place: Place,
        report: asyncio.Future[DeliveryReport],
        free: Callable[[], None],
        later: asyncio.Task[None],
    ) -> None:
        """Notes the end of `_send_later`, which may be cancelled before its first step."""
        self._later.discard(later)
        free()
        place.leave()
        if not later.cancelled():
            return
        self._core.failed_before()
        if not report.done():
            reason = "the producer stopped while the record waited for the schema registry or for space in the buffer"
            report.set_exception(DeliveryError(topic, reason, False))

    async def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic, for a function that chooses ``partition=`` of a record.

        The producer keeps a count for five minutes, and then asks brokers again. While brokers do not answer, the
        result is the last count. Raises `BrokerError` if the topic does not exist, or if brokers have never told its
        count.

        >>> async def order(producer: ReliableProducer, shop: int) -> None:
        ...     partition = shop % await producer.partition_count("orders")
        ...     await producer.send("orders", value=b"paid", partition=partition)
        """
        return await asyncio.to_thread(self._core.partition_count, topic)

    def transaction(self) -> Transaction[K, V]:
        """A transaction: its records are sent together at the end of the ``async with`` block, all or none.

        If the block raises, no record is sent. Raises `ConfigError` for a producer without transactions. Source:
        KIP-98.

        >>> async def pay(producer: ReliableProducer) -> None:
        ...     async with producer.transaction() as transaction:
        ...         transaction.send("orders", key=b"o1", value=b"paid")
        ...         transaction.send("payments", key=b"p1", value=b"o1")
        """
        self._core.check_open()
        self._core.check_transactions()
        return Transaction(self._core, self._order)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Sends all waiting records at once, and returns True when every record is confirmed or has failed.

        Records in the local log wait, too. Returns False if ``timeout_ms`` pass first (None: no limit).
        """
        left = None if timeout_ms is None else timeout_ms / 1000
        if self._later:
            began = time.monotonic()
            _, waiting = await asyncio.wait(self._later, timeout=left)
            if waiting:
                return False
            left = None if left is None else max(0.0, left - (time.monotonic() - began))
        return await asyncio.to_thread(self._core.settled, left)


class Transaction(TransactionFace[K, V]):
    """Collects records in memory, and sends them together when the block ends. Blocks of several tasks may overlap.

    After the block, ``reports`` has the delivery report of each record, in the order of `send`. If the block raises,
    nothing is sent, and ``reports`` is empty. The end of the block serializes records that need an answer of the schema
    registry, and then raises the errors of the serde. Do not change their keys and values before.
    """

    def __init__(self, core: Core, order: InOrder) -> None:
        super().__init__(core)
        self._order = order
        self._unmade: dict[int, tuple[str, Make]] = {}
        """The records that need an answer of a registry, by their places in the transaction."""

    def _add(self, topic: str, make: Make) -> None:
        with suppress(MustAsk):
            self._records.append(unless_asking(make))
            return
        self._unmade[len(self._records)] = topic, make
        self._records.append(OutputRecord(topic, None, None, None))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._records:
            self._core.check_open()
            topics = {record.topic for record in self._records}
            if self._unmade or any(map(self._order.waits, topics)):
                async with self._order.join(topics) as place:
                    for number, (topic, make) in self._unmade.items():
                        self._records[number] = await place.record(topic, make)
            self.reports: tuple[DeliveryReport, ...] = await self._order.deliver(self._records)
