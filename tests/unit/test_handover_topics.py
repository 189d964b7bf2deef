"""The topics that a backfill or `streamapp spark run` needs, and those that a replay reads."""

from __future__ import annotations

import pytest

from streamapp import (
    BytesSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyError,
)
from streamapp.runners.spark.handover_survey import read_topics
from streamapp.runners.spark.late_inputs import inputs_of
from streamapp.topology import Plan

TEXT = StringSerde()


def test_the_dead_letter_topic_has_to_exist() -> None:
    """Otherwise the first letter would end the backfill, after the computation."""
    config = StreamsConfig("app", dead_letter_queue_topic="dead")
    builder = StreamsBuilder(config)
    builder.stream("in", key_serde=BytesSerde(), value_serde=BytesSerde(), on_error="dead_letter").to("out")
    plan = builder.build().plan(config)
    with pytest.raises(
        TopologyError, match="dead does not exist on .* that the application reads and writes"
    ):
        read_topics(plan, {"in": 4, "out": 4})
    assert read_topics(plan, {"in": 4, "out": 4, "dead": 1}) == ({"in": 4}, {})


@pytest.fixture
def plan() -> Plan:
    """Two tables: one behind a repartition topic, one of another input."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("left", "right"))
    grouped = left.group_by(lambda key, value: value, key_serde=TEXT, value_serde=TEXT, name="by-value")
    grouped.count(materialized=Materialized("lefts", key_serde=TEXT, value_serde=LongSerde()))
    right.group_by_key().count(materialized=Materialized("rights", key_serde=TEXT, value_serde=LongSerde()))
    left.to("copies", key_serde=TEXT, value_serde=TEXT)
    return builder.build().plan(StreamsConfig("app"))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("lefts", {"left", "app-by-value-repartition"}), ("rights", {"right"}), ("copies", {"left"})],
)
def test_the_topics_that_a_table_or_output_needs(plan: Plan, name: str, inputs: set[str]) -> None:
    existing = {"left": 4, "right": 4, "app-by-value-repartition": 4, "copies": 4}
    assert inputs_of(plan, [name], existing) == inputs
