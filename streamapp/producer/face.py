"""The common part of both producers: their settings, their counts, and the records of a transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from streamapp._base.prometheus import Metric, metrics_text
from streamapp._base.whole_numbers import check_whole
from streamapp.config import StreamsConfig
from streamapp.producer.core import Core
from streamapp.producer.counts import ProducerMetrics
from streamapp.producer.options import ProducerOptions, WhenFull
from streamapp.producer.report import DeliveryReport
from streamapp.records import NO_HEADERS, Headers, OutputRecord
from streamapp.serdes import Serde

__all__ = ["ProducerFace", "TransactionFace"]

K = TypeVar("K")
V = TypeVar("V")


class ProducerFace(Generic[K, V]):
    """The settings of `ReliableProducer` and `SyncReliableProducer`; times are milliseconds, sizes bytes."""

    def __init__(
        self,
        name: str,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        bootstrap_servers: str | None = None,
        client_properties: Mapping[str, Any] | None = None,
        linger_ms: int = 5,
        batch_size: int = 1_000_000,
        compression_type: str = "lz4",
        delivery_timeout_ms: int = 120_000,
        buffer_records: int = 100_000,
        buffer_bytes: int = 32 << 20,
        when_full: WhenFull = "wait",
        spill_dir: str | os.PathLike[str] | None = None,
        spill_after_ms: int = 5_000,
        spill_max_bytes: int = 1 << 30,
        transactions: bool = False,
        close_timeout_ms: int = 30_000,
    ) -> None:
        options = ProducerOptions(
            name=name,
            bootstrap_servers=bootstrap_servers,
            client_properties=client_properties or {},
            linger_ms=linger_ms,
            batch_size=batch_size,
            compression_type=compression_type,
            delivery_timeout_ms=delivery_timeout_ms,
            buffer_records=buffer_records,
            buffer_bytes=buffer_bytes,
            when_full=when_full,
            spill_dir=spill_dir,
            spill_after_ms=spill_after_ms,
            spill_max_bytes=spill_max_bytes,
            transactions=transactions,
        )
        check_whole(close_timeout_ms, "close_timeout_ms", 0)
        self._core = Core(options, key_serde, value_serde)
        self.config: StreamsConfig = options.config
        """The settings of the cluster and its login, for commands of ``streamapp`` that load this producer."""
        self.transactional: bool = options.transactional
        """True if records go out in transactions."""
        self._close_seconds = close_timeout_ms / 1000

    @property
    def metrics(self) -> ProducerMetrics:
        """The counts at this moment: each record that was taken is confirmed, unconfirmed or failed.

        >>> from streamapp.producer import SyncReliableProducer
        >>> SyncReliableProducer("orders-service").metrics.events
        0
        """
        return self._core.metrics()

    def exposition(self) -> str:
        """The counts in Prometheus' text format, for a metrics page that the application serves.

        For the counts of several producers, consumers or relays on a page, call `metrics_text`.

        >>> from streamapp.producer import SyncReliableProducer
        >>> print(SyncReliableProducer("orders-service").exposition().splitlines()[2])
        streamapp_producer_events_total{producer="orders-service"} 0
        """
        return metrics_text(self)

    def _families(self) -> Iterable[Metric]:
        return self._core.families()


class TransactionFace(Generic[K, V]):
    """The records of a transaction, collected in memory until its block ends.

    After the block, ``reports`` has the delivery report of each record, in the order of `send`. If the block raises,
    nothing is sent, and ``reports`` is empty.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._records: list[OutputRecord] = []
        self.reports: tuple[DeliveryReport, ...] = ()

    def send(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        """Adds a record. ``timestamp`` is in ms since the epoch (default: now). Raises `SerializationError`."""
        self._add(topic, self._core.making(topic, key, value, timestamp, headers, partition))

    def _add(self, topic: str, make: Callable[[], OutputRecord]) -> None:
        self._records.append(make())
