"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from streamapp._base.aside import MustAsk, aside, unless_asking
from streamapp.producer.core import Core
from streamapp.producer.face import ProducerFace, TransactionFace
from streamapp.producer.parcel import Parcel
from streamapp.producer.report import DeliveryReport
from streamapp.records import NO_HEADERS, Headers, OutputRecord
from streamapp.registry.rest import RegistryAway

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
        self._waiting: dict[str, _Waiting] = {}
        await asyncio.to_thread(self._core.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._core.close, self._close_seconds)

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
        make = partial(self._core.record, topic, key, value, timestamp, headers, partition)
        record = await self._serialized(topic, make)
        return (await _deliver(self._core, self._core.parcel([record])))[0]

    async def _serialized(self, topic: str, make: Callable[[], OutputRecord]) -> OutputRecord:
        """The result of ``make``. While a call waits for a registry, later calls for the topic wait, too: the order of
        a partition is the order of the calls."""
        waiting = self._waiting.get(topic)
        if waiting is None:
            with suppress(MustAsk):
                return unless_asking(make)
            waiting = self._waiting[topic] = _Waiting()
        waiting.calls += 1
        try:
            async with waiting.turn:
                if waiting.asking is not None:  # by a call that was cancelled
                    await asyncio.wait([waiting.asking])
                if waiting.away is not None:
                    raise RegistryAway(str(waiting.away)) from waiting.away
                with suppress(MustAsk):
                    return unless_asking(make)
                asking = asyncio.ensure_future(aside(make, f"{self._core.options.name}-registry"))
                waiting.asking = asking
                asking.add_done_callback(partial(self._answered, topic, waiting))
                await asyncio.wait([asking])
                return asking.result()
        finally:
            waiting.calls -= 1
            self._forget(topic, waiting)

    def _answered(self, topic: str, waiting: _Waiting, asking: asyncio.Future[OutputRecord]) -> None:
        waiting.asking = None
        if not asking.cancelled() and isinstance(away := asking.exception(), RegistryAway):
            waiting.away = away
        self._forget(topic, waiting)

    def _forget(self, topic: str, waiting: _Waiting) -> None:
        """Lets the next call for the topic ask for itself, if it would not wait for an answer."""
        over = waiting.away is not None or not (waiting.calls or waiting.asking)
        if over and self._waiting.get(topic) is waiting:
            del self._waiting[topic]

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

        The records of a partition arrive in the order of these calls. Raises `BufferFull` if the buffer is full,
        because the call cannot wait for space, as `send` does. The first record of a topic may need an answer of the
        schema registry, for which the event loop stands still. So send the first record with `send`.
        """
        parcel = self._core.parcel([self._core.record(topic, key, value, timestamp, headers, partition)])
        report: asyncio.Future[DeliveryReport] = asyncio.get_running_loop().create_future()
        self._core.reserve_now(parcel)
        self._core.put(parcel)
        parcel.future.add_done_callback(partial(_tell, report))
        return report

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
        self._core.check_transactions()
        return Transaction(self._core)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Sends all waiting records at once, and returns True when every record is confirmed or has failed.

        Records in the local log wait, too. Returns False if ``timeout_ms`` pass first (None: no limit).
        """
        return await asyncio.to_thread(self._core.settled, None if timeout_ms is None else timeout_ms / 1000)


class _Waiting:
    """The calls of `ReliableProducer.send` for a topic that wait for the answer of a registry.

    A call that is cancelled leaves its thread behind, and the next call waits for this thread. With a thread for each
    call, an application with short time-outs would have thousands, because each thread may wait for a minute.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.calls = 0
        self.asking: asyncio.Future[OutputRecord] | None = None
        self.away: RegistryAway | None = None
        """The error of all calls that have waited. Otherwise each of them would be patient, one after the other."""


class Transaction(TransactionFace[K, V]):
    """Collects records in memory, and sends them together when the block ends. Blocks of several tasks may overlap.

    After the block, ``reports`` has the delivery report of each record, in the order of `send`. If the block raises,
    nothing is sent, and ``reports`` is empty.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._records:
            self.reports: tuple[DeliveryReport, ...] = await _deliver(
                self._core, self._core.parcel(self._records)
            )


def _tell(report: asyncio.Future[DeliveryReport], delivered: Future[tuple[DeliveryReport, ...]]) -> None:
    """Sets the future ``report`` to the outcome of ``delivered``, on the event loop of ``report``. Any thread may
    call."""

    def settle() -> None:
        if report.done():  # cancelled
            return
        error = delivered.exception()
        if error is None:
            report.set_result(delivered.result()[0])
        else:
            report.set_exception(error)

    with suppress(RuntimeError):  # the loop is closed, and nobody waits
        report.get_loop().call_soon_threadsafe(settle)


async def _deliver(core: Core, parcel: Parcel) -> tuple[DeliveryReport, ...]:
    place = core.reserve(parcel)
    if not place.done():
        try:
            await asyncio.wrap_future(place)
        except asyncio.CancelledError:
            if not place.cancelled():
                core.release(parcel)
            raise
    core.put(parcel)
    return await asyncio.wrap_future(parcel.future)
