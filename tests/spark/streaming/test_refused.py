"""Results and dead letters that brokers refuse in micro-batches: the handler decides, as on workers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin, TopicSpec
from streamapp.errors import ConfigError, StreamsError
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.streaming import SparkStream

from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEXTS: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}
PATIENCE_SECONDS = 240
AHEAD_MS = 3 * 3_600_000
"""Further ahead of the clock than a topic allows by default."""
BIG = "x" * 1_500_000


class Strict:
    """An application whose source takes any record, and whose other topics have the defaults of brokers."""

    def __init__(self, cluster: Cluster, name: str, handler: Any, *, raises: bool = False) -> None:
        self.cluster = cluster
        self.source, self.target, self.dead = (f"{cluster.prefix}-{name}-{n}" for n in ("in", "out", "dead"))
        lenient = {"message.timestamp.after.max.ms": str(10**15), "max.message.bytes": "5000000"}
        topics = [(self.source, 1, lenient), (self.target, 1, {}), (self.dead, 1, {})]
        KafkaAdmin(cluster.settings).ensure_topics([TopicSpec(*topic) for topic in topics])
        self.config = StreamsConfig(
            f"{cluster.prefix}-{name}",
            bootstrap_servers=cluster.servers,
            state_dir=str(cluster.folder),
            production_exception_handler=handler,
            dead_letter_queue_topic=self.dead,
        )
        builder = StreamsBuilder(self.config)
        stream = builder.stream(self.source, **TEXTS)
        if raises:
            stream = stream.map_values(self.without_bad, on_error="dead_letter")
        stream.to(self.target, **TEXTS)
        self.topology = builder.build()

    @staticmethod
    def without_bad(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    def send(self, *values: str) -> None:
        client = {"bootstrap.servers": self.cluster.servers, "enable.idempotence": True}
        producer = Producer({**client, "message.max.bytes": 5_000_000})
        now = int(time.time() * 1000)
        for value in values:
            timestamp = now + AHEAD_MS if value in ("bad", "ahead") else now
            producer.produce(self.source, value, "k", 0, timestamp=timestamp)
        assert producer.flush(60) == 0

    def run(self, wanted: list[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        checkpoint = str(self.cluster.folder / "checkpoint")
        with SparkStream(
            self.topology, self.config, self.cluster.spark, checkpoint=checkpoint, interval_ms=100
        ) as running:
            while self.values() != wanted:
                assert time.monotonic() < deadline, self.values()
                assert not running.wait(0.2)

    def values(self) -> list[bytes | None]:
        return [value for _, value, _ in read(self.cluster.servers, self.target)]

    def letters(self) -> list[bytes | None]:
        """The dead letters, which are not ahead of the clock."""
        found = read(self.cluster.servers, self.dead)
        assert all(timestamp <= time.time() * 1000 for _, _, timestamp in found)
        return [value for _, value, _ in found]


def test_the_handler_decides_about_a_refused_result(cluster: Cluster) -> None:
    app = Strict(cluster, "ahead", "continue")
    app.send("first", "ahead", "last")
    app.run([b"first", b"last"])
    assert app.letters() == [b"ahead"]


def test_a_result_that_is_too_large_is_dropped_if_the_handler_says_so(cluster: Cluster) -> None:
    app = Strict(cluster, "large", "skip")
    app.send("first", BIG, "last")
    app.run([b"first", b"last"])
    assert app.letters() == []


def test_a_refused_letter_goes_out_with_the_time_of_the_clock(cluster: Cluster) -> None:
    app = Strict(cluster, "letters", "fail", raises=True)
    app.send("first", "bad", "last")
    app.run([b"first", b"last"])
    assert app.letters() == [b"bad"]


def test_errors_name_the_record_and_the_remedy(cluster: Cluster) -> None:
    app = Strict(cluster, "fails", "fail")
    app.send("ahead")
    with pytest.raises(
        StreamsError, match=r"at offset 0 gave a result .* does not take.*timestamp_extractor"
    ):
        app.run([b"never"])
    with pytest.raises(
        ConfigError, match=r"in the future.*timestamp_extractor of the source. Then run the backfill again"
    ):
        Backfill(app.topology, app.config, spark=cluster.spark).run()
    letters = Strict(cluster, "large-letter", "dead_letter")
    letters.send(BIG)
    with pytest.raises(
        StreamsError,
        match=r"large-letter-in-0 at offset 0 has a dead letter .* does not take: .*max.message.bytes",
    ):
        letters.run([b"never"])
