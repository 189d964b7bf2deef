"""A join of streams with two Avro types, on a registry that compares the versions of a subject."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from streamapp import (
    AvroSerde,
    JoinWindows,
    JsonSerde,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.topology.schemas import planned_schemas

pytestmark = pytest.mark.broker
TEXT = StringSerde()
MINUTE = timedelta(minutes=1)


class Authorised(msgspec.Struct):
    card: str
    cents: int


class Cleared(msgspec.Struct):
    bank: str


@pytest.mark.parametrize("left_first", [True, False])
def test_both_sides_of_an_outer_join_wait_for_a_match(
    registry: ConfluentSchemaRegistry, topic: str, left_first: bool
) -> None:
    """The registry took the schemas of the two sides for versions of one, and the worker ended."""
    left, right = AvroSerde(type=Authorised, registry=registry), AvroSerde(type=Cleared, registry=registry)
    builder = StreamsBuilder()
    joined = builder.stream(f"{topic}-left", key_serde=TEXT, value_serde=left).outer_join(
        builder.stream(f"{topic}-right", key_serde=TEXT, value_serde=right),
        lambda authorised, cleared: [authorised and authorised.cents, cleared and cleared.bank],
        JoinWindows.of_time_difference_with_no_grace(MINUTE),
        stream_joined=StreamJoined(topic, topic),
    )
    joined.to(f"{topic}-out", key_serde=TEXT, value_serde=JsonSerde())
    with TopologyTestDriver(builder.build()) as driver:
        lefts = driver.create_input_topic(f"{topic}-left", TEXT, left)
        rights = driver.create_input_topic(f"{topic}-right", TEXT, right)
        first = [
            lambda: lefts.pipe_input("a", Authorised("c", 5), 0),
            lambda: rights.pipe_input("b", Cleared("x"), 0),
        ]
        for pipe in first if left_first else reversed(first):
            pipe()
        rights.pipe_input("end", Cleared("y"), 1_000_000)
        out = driver.create_output_topic(f"{topic}-out", TEXT, JsonSerde())
        assert sorted(out.read_key_values()) == [("a", [5, None]), ("b", [None, "x"])]


def test_a_left_join_plans_no_schema_for_right_values_without_a_match(
    registry: ConfluentSchemaRegistry, topic: str
) -> None:
    builder = StreamsBuilder()
    left, right = AvroSerde(type=Authorised, registry=registry), AvroSerde(type=Cleared, registry=registry)
    builder.stream("left", key_serde=TEXT, value_serde=left).left_join(
        builder.stream("right", key_serde=TEXT, value_serde=right),
        lambda authorised, cleared: None,
        JoinWindows.of_time_difference_with_no_grace(MINUTE),
        stream_joined=StreamJoined("j", "j"),
    )
    planned = {(each.subject, each.registered.record) for each in planned_schemas(builder.build().plan())}
    shared = {each for each in planned if "shared" in each[0]}
    assert shared == {("streamapp-j-left-shared-join-store-changelog-value", "Authorised")}
