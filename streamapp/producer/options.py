"""The settings of a producer, checked where they are given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from streamapp._base.names import check_name
from streamapp._base.whole_numbers import check_whole
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError, TopologyError
from streamapp.runners.connection import client_of

__all__ = ["ProducerOptions", "WhenFull"]

WhenFull = Literal["wait", "refuse", "spill"]
"""With "wait", `send` waits while the buffer is full; with "refuse", it raises `BufferFull`. With "spill", the records
of a nearly full buffer go to the local log."""

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_POSITIVE = (
    "batch_size",
    "delivery_timeout_ms",
    "buffer_records",
    "buffer_bytes",
    "spill_after_ms",
    "spill_max_bytes",
)


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """All settings of a producer, as `ReliableProducer` describes them. Raises `ConfigError` for wrong values."""

    name: str
    bootstrap_servers: str | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    linger_ms: int = 5
    batch_size: int = 1_000_000
    compression_type: str = "lz4"
    delivery_timeout_ms: int = 120_000
    buffer_records: int = 100_000
    buffer_bytes: int = 32 << 20
    when_full: WhenFull = "wait"
    spill_dir: str | os.PathLike[str] | None = None
    spill_after_ms: int = 5_000
    spill_max_bytes: int = 1 << 30
    transactions: bool = False

    def __post_init__(self) -> None:
        try:
            check_name(self.name, "the producer's name")
        except TopologyError as exc:
            raise ConfigError(str(exc)) from None
        for name in (*_POSITIVE, "linger_ms"):
            check_whole(getattr(self, name), name, int(name in _POSITIVE))
        if self.compression_type not in _COMPRESSIONS:
            raise ConfigError(
                f"compression_type is {self.compression_type!r}; it must be one of {', '.join(_COMPRESSIONS)}"
            )
        if self.when_full not in get_args(WhenFull):
            raise ConfigError(
                f"when_full is {self.when_full!r}; it must be one of {', '.join(get_args(WhenFull))}"
            )
        if self.when_full == "spill" and self.spill_dir is None:
            raise ConfigError("when_full='spill' needs spill_dir, the folder of the local log")

    @property
    def transactional(self) -> bool:
        """True if records go out in transactions, because the application asked for them or the local log needs
        them."""
        return self.transactions or self.spill_dir is not None

    @property
    def config(self) -> StreamsConfig:
        """The settings of the cluster and its login."""
        return StreamsConfig(
            self.name,
            bootstrap_servers=self.bootstrap_servers,
            client_properties=self.client_properties,
        )

    def client(self) -> dict[str, Any]:
        """librdkafka's settings for the cluster and its login."""
        return client_of(self.config)

    def producer(self) -> dict[str, Any]:
        """librdkafka's settings for a producer."""
        return {
            **self.client(),
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",  # as in Java; records without a key stay on one partition for a while
            "compression.type": self.compression_type,
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_size,
            # streamapp's buffer limits the records in memory, so librdkafka's queue needs no limit.
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_147_483_647,
        }
