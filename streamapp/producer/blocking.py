"""The producer for threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from streamapp.errors import StreamsError
from streamapp.producer.core import Core
from streamapp.producer.face import ProducerFace, TransactionFace
from streamapp.producer.parcel import Parcel, Reports, first_of
from streamapp.producer.report import DeliveryReport
from streamapp.records import NO_HEADERS, Headers

__all__ = ["SyncReliableProducer", "SyncTransaction"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class _Answer(Future[T]):
    """The future of a parcel's reports. Its result is the part of them that ``pick`` returns.

    A callback that waits for another report of its producer gets an error. The thread that would deliver the other
    report runs the callback.
    """

    def __init__(self, core: Core, pick: Callable[[Reports], T]) -> None:
        super().__init__()
        self._core, self._pick = core, pick
        self._asked = False

    def __del__(self) -> None:
        if not self._asked and self.done() and (error := super().exception()) is not None:
            self._core.note_unasked(error)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        self._asked = True
        super().add_done_callback(fn)

    def tell(self, reports: Reports, error: BaseException | None) -> None:
        if error is None:
            self.set_result(self._pick(reports))
        else:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Returns False, because records that the producer has taken are sent in any case."""
        return False

    def running(self) -> bool:
        """True until the report comes, because nobody can cancel the record."""
        return not self.done()

    def result(self, timeout: float | None = None) -> T:
        self._check(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check(timeout)
        return super().exception(timeout)

    def _check(self, timeout: float | None) -> None:
        self._asked = True
        if (timeout is None or timeout > 0) and not self.done():
            _check_may_wait(self._core)


def _check_may_wait(core: Core) -> None:
    if core.in_callback():
        raise StreamsError(
            f"a callback of a report waits for the producer {core.options.name}, which waits for the end of the "
            "callback. Call send_soon in the callback, or wait in another thread"
        )


class SyncReliableProducer(ProducerFace[K, V]):
    """`ReliableProducer` for threads: the same settings, methods and errors. Several threads may share a producer.

    >>> def main(servers: str) -> None:
    ...     with SyncReliableProducer("orders-service", bootstrap_servers=servers) as producer:
    ...         report = producer.send("orders", key=b"o1", value=b"paid")
    ...         print(report.partition, report.offset)
    """

    def __enter__(self) -> Self:
        self._core.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _check_may_wait(self._core)
        self._core.close(self._close_seconds)

    def send(
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
        (docs/producing.md). ``timestamp`` is in ms since the epoch (default: now).

        Raises `DeliveryError` if the record was not confirmed, and `SerializationError` if a serde refuses key or
        value. Raises `BufferFull` if the buffer has no space and the call does not wait (``when_full``), or if the
        record is larger than the buffer. Raises `SchemaRegistryError` if the registry of a serde does not answer.
        Raises `StreamsError` in a callback of a report (`send_soon`).
        """
        _check_may_wait(self._core)
        return self.send_soon(
            topic, key=key, value=value, timestamp=timestamp, headers=headers, partition=partition
        ).result()

    def send_soon(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> Future[DeliveryReport]:
        """Takes a record, and returns the future of its report, without waiting for brokers.

        If one thread makes the calls, the records of a partition arrive in the order of the calls. If the buffer is
        full, the call waits for space, or raises `BufferFull` with ``when_full="refuse"``.

        A callback of the future runs in the thread that delivers reports, so the callback cannot wait for the producer.
        There, a call that would wait for another report raises `StreamsError`, also with a time-out. This method
        raises `BufferFull` there if the buffer is full. The thread runs one callback at a time. Meanwhile, the producer
        sends other records, until the buffer is full. The log names a callback that does not come back for 10 s.

        If the record is not confirmed, the future has the error. If nobody asks the future, the log has the first such
        error, and at the end their number.
        """
        core, report = self._core, _Answer(self._core, first_of)
        record = core.record(topic, key, value, timestamp, headers, partition)
        _deliver(core, core.parcel((record,), report))
        return report

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic, for a function that chooses ``partition=`` of a record.

        The producer keeps a count for five minutes, and then asks brokers again. While brokers do not answer, the
        result is the last count. Raises `BrokerError` if the topic does not exist, or if brokers have never told its
        count.

        >>> def order(producer: SyncReliableProducer, shop: int) -> None:
        ...     partition = shop % producer.partition_count("orders")
        ...     producer.send("orders", value=b"paid", partition=partition)
        """
        return self._core.partition_count(topic)

    def transaction(self) -> SyncTransaction[K, V]:
        """A transaction: its records are sent together at the end of the ``with`` block, all or none.

        If the block raises, no record is sent. Raises `ConfigError` for a producer without transactions. Source:
        KIP-98.

        >>> def pay(producer: SyncReliableProducer) -> None:
        ...     with producer.transaction() as transaction:
        ...         transaction.send("orders", key=b"o1", value=b"paid")
        ...         transaction.send("payments", key=b"p1", value=b"o1")
        """
        self._core.check_transactions()
        return SyncTransaction(self._core)

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Sends all waiting records at once, and returns True when every record is confirmed or has failed.

        Records in the local log wait, too. Returns False if ``timeout_ms`` pass first (None: no limit). Raises
        `StreamsError` in a callback of a report (`send_soon`), which such a wait would hold up.
        """
        _check_may_wait(self._core)
        return self._core.settled(None if timeout_ms is None else timeout_ms / 1000)


class SyncTransaction(TransactionFace[K, V]):
    """Collects records in memory, and sends them together when the block ends. Blocks of several threads may overlap.

    After the block, ``reports`` has the delivery report of each record, in the order of `send`. If the block raises,
    nothing is sent, and ``reports`` is empty.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._records:
            _check_may_wait(self._core)
            told = _Answer(self._core, tuple)
            _deliver(self._core, self._core.parcel(self._records, told))
            self.reports: Reports = told.result()


def _deliver(core: Core, parcel: Parcel) -> None:
    try:
        if not core.try_reserve(parcel):
            if core.in_callback():
                raise core.full(parcel.count)
            core.reserve(parcel).result()
        core.put(parcel)
    except BaseException:
        core.give_up(parcel)
        raise
