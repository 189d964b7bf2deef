"""The test driver runs all sub-topologies in one task, in the order of Kafka Streams' driver.

The expected results are those of Kafka Streams 4.3.1 (TopologyTestDriver) for the same topology and input.
"""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import (
    FixedKeyProcessor,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    TopologyTestDriver,
)
from streamapp.serdes import LongSerde, StringSerde

TEXT = StringSerde()


class Hold(FixedKeyProcessor):
    """Keeps records, and forwards them together at each punctuation."""

    def init(self, context: Any) -> None:
        self.context = context
        self.held: list[Record] = []
        context.schedule(10, PunctuationType.STREAM_TIME, self.release)

    def process(self, record: Record) -> None:
        self.held.append(record)

    def release(self, time: int) -> None:
        held, self.held = self.held, []
        for record in held:
            self.context.forward(record)


@pytest.mark.parametrize(
    ("cache_bytes", "expected"),
    [
        (0, ["a1", "b1", "b2", "a2", "c1"]),
        (10_000_000, ["a1", "b2", "a2", "c1"]),
    ],
)
def test_nodes_and_stores_have_the_order_in_which_they_were_added(
    cache_bytes: int, expected: list[str]
) -> None:
    builder = StreamsBuilder()
    first = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    second = builder.stream("in2", key_serde=TEXT, value_serde=TEXT)
    held_second, held_first = second.process_values(Hold), first.process_values(Hold)
    counts_of_second = held_second.group_by_key(key_serde=TEXT, value_serde=TEXT).count()
    counts_of_first = held_first.group_by_key(key_serde=TEXT, value_serde=TEXT).count()
    for counts in (counts_of_first, counts_of_second):
        counts.to_stream().to("out", key_serde=TEXT, value_serde=LongSerde())
    driver = TopologyTestDriver(builder.build(), StreamsConfig(statestore_cache_max_bytes=cache_bytes))
    for topic, key, timestamp in [
        ("in", b"a", 1),
        ("in2", b"b", 1),
        ("in", b"a", 2),
        ("in2", b"b", 3),
        ("in", b"c", 14),
    ]:
        driver.pipe_raw(topic, key, b"x", timestamp)
    written = [(record.key or b"", record.value or b"") for record in driver.produced["out"]]
    assert [f"{key.decode()}{value[-1]}" for key, value in written] == expected
    driver.close()
