"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from streamapp.producer.core import Core
from streamapp.producer.face import ProducerFace, TransactionFace
from streamapp.producer.parcel import Parcel
from streamapp.producer.report import DeliveryReport
from streamapp.records import NO_HEADERS, Headers

__all__ = ["ReliableProducer", "Transaction"]

K = TypeVar("K")
V = TypeVar("V")


class ReliableProducer(ProducerFace[K, V]):
    """Sends records to Kafka from an asyncio application; `SyncReliableProducer` is its twin for threads.

    Every record is confirmed (``acks=all``, idempotent), or has an error as its report. Keys go where Java's and
    streamapp's clients send them (murmur2); ``partition=`` of a record chooses another. Records without a key stick to
    one partition for a while.

    - ``buffer_records``, ``buffer_bytes``: the bound of what waits in memory. ``when_full``: at the bound `send` waits,
      raises `BufferFull` (``"refuse"``), or the buffer goes to the local log (``"spill"``).
    - ``spill_dir``: the folder of the local log, one for each process. Records that brokers have not confirmed after
      ``spill_after_ms`` go to this log. From the log they go to Kafka exactly once, in order, also after a kill of this
      process.
    - ``transactions``: records go out in transactions, and `transaction` is allowed. Implied by ``spill_dir``.
    - ``delivery_timeout_ms``: without transactions, a record that is not confirmed by then has an error as its report.
    - ``close_timeout_ms``: at the end of the ``async with`` block, records are waited for so long.

    ``bootstrap_servers`` and ``client_properties`` are those of `StreamsConfig`. Raises `ConfigError`.

    >>> async def main(servers: str) -> None:
    ...     async with ReliableProducer("orders-service", bootstrap_servers=servers) as producer:
    ...         report = await producer.send("orders", key=b"o1", value=b"paid")
    ...         print(report.partition, report.offset)
    """

    async def __aenter__(self) -> Self:
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
        """Sends a record, and returns its report when brokers, or the local log, have it.

        Raises `DeliveryError`, `BufferFull`, `SerializationError`. A cancelled call has sent its record, or has not
        taken it.
        """
        parcel = self._core.parcel([self._core.record(topic, key, value, timestamp, headers, partition)])
        return (await _deliver(self._core, parcel))[0]

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
        """Takes a record without waiting, and returns its report to be awaited. Raises `BufferFull` at the bound.

        Records arrive in the order of these calls. `send` is the call that waits for space in the buffer.
        """
        parcel = self._core.parcel([self._core.record(topic, key, value, timestamp, headers, partition)])
        report: asyncio.Future[DeliveryReport] = asyncio.get_running_loop().create_future()
        self._core.reserve_now(parcel)
        self._core.put(parcel)
        parcel.future.add_done_callback(partial(_tell, report))
        return report

    def transaction(self) -> Transaction[K, V]:
        """Records that arrive all or none: at the end of the ``async with`` block, unless the block raises.

        >>> async def pay(producer: ReliableProducer) -> None:
        ...     async with producer.transaction() as transaction:
        ...         transaction.send("orders", key=b"o1", value=b"paid")
        ...         transaction.send("payments", key=b"p1", value=b"o1")
        """
        self._core.check_transactions()
        return Transaction(self._core)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Waits until no record is unconfirmed, those of the local log included. False: the time is over."""
        return await asyncio.to_thread(self._core.settled, None if timeout_ms is None else timeout_ms / 1000)


class Transaction(TransactionFace[K, V]):
    """Collects records in memory; Kafka sees them when the block ends. Blocks of several tasks may overlap.

    ``reports`` are those of the records, in order, after the block.
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
    """Settles a report on its event loop, from any thread."""

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
