"""A topic has one source. A topology that needs two for a topic is refused as early as possible."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamapp import (
    BytesSerde,
    JsonSerde,
    LongSerde,
    Serde,
    SessionWindowedSerde,
    StreamsBuilder,
    StringSerde,
    TimeWindowedSerde,
    Topology,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.runners.spark.handover_survey import read_topics

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}
OVERLAP = (
    r"topic ab matches the patterns a\.\* of source KSTREAM-SOURCE-0000000000 and \.\*b of source KSTREAM-SOURCE-0000000001, "
    "but a topic has one source at most. Change the patterns"
)


def overlapping(apart: bool) -> Topology:
    """``apart``: the two sources are in sub-topologies of their own."""
    builder = StreamsBuilder()
    first, second = builder.stream(re.compile("a.*"), **TEXTS), builder.stream(re.compile(".*b"), **TEXTS)
    for number, stream in enumerate([first, second] if apart else [first.merge(second)]):
        stream.to(f"out-{number}")
    return builder.build()


@pytest.mark.parametrize("apart", [True, False])
def test_a_topic_that_two_patterns_match_is_refused_once_it_is_known(apart: bool) -> None:
    topology = overlapping(apart)
    counts = {"out-0": 1, "out-1": 1, "a": 1, "b": 1}
    read_topics(topology.plan(), counts)
    with pytest.raises(TopologyError, match=OVERLAP):
        read_topics(topology.plan(), counts | {"ab": 1})
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("a", TEXT, TEXT).pipe_input("k", "v")
        with pytest.raises(TopologyError, match=OVERLAP):
            driver.create_input_topic("ab", TEXT, TEXT).pipe_input("k", "v")


def test_the_same_pattern_twice_is_refused_at_once() -> None:
    topology = Topology().add_source("one", pattern=re.compile("a.*"), **TEXTS)
    with pytest.raises(
        TopologyError, match=r"pattern a\.\* has already been registered by source one; read the topics once"
    ):
        topology.add_source("two", pattern=re.compile("a.*"), **TEXTS)


def test_streams_of_the_same_pattern_share_a_source() -> None:
    builder = StreamsBuilder()
    for number in range(2):
        builder.stream(re.compile("a.*"), **TEXTS).to(f"out-{number}")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("ab", TEXT, TEXT).pipe_input("k", "v")
        assert [driver.create_output_topic(f"out-{n}", TEXT, TEXT).read_value() for n in range(2)] == [
            "v"
        ] * 2


class Plus(Serde[int]):
    def __init__(self, offset: int) -> None:
        self.offset = offset

    def serialize(self, value: int) -> bytes:
        return str(value - self.offset).encode()

    def deserialize(self, data: bytes) -> int:
        return int(data) + self.offset


class ByValue:
    def __init__(self, field: str) -> None:
        self.field = field

    def __call__(self, record: Any, partition_time: int) -> int:
        return int(record.value[self.field])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (StringSerde(), LongSerde()),
        (JsonSerde(), JsonSerde(int)),
        (JsonSerde(list[int]), JsonSerde(list[str])),
        (Plus(1), Plus(2)),
        (TimeWindowedSerde(TEXT, 5), TimeWindowedSerde(TEXT, 6)),
        (SessionWindowedSerde(StringSerde()), SessionWindowedSerde(BytesSerde())),
    ],
)
@pytest.mark.parametrize("part", ["key_serde", "value_serde"])
@pytest.mark.parametrize("topic", ["in", re.compile("in.*")])
def test_one_topic_with_two_serdes_is_refused(
    first: Serde[Any], second: Serde[Any], part: str, topic: Any
) -> None:
    builder = StreamsBuilder()
    builder.stream(topic, **TEXTS | {part: first}).foreach(print)
    builder.stream(topic, **TEXTS | {part: second}).foreach(print)
    what = "topic in" if topic == "in" else r"pattern in\.\*"
    with pytest.raises(
        TopologyError,
        match=rf"KSTREAM-SOURCE-0000000000 and KSTREAM-SOURCE-0000000002 both read {what}, but not with the same {part}: "
        rf".* Give both streams one {part}, or read it as BytesSerde\(\) and convert",
    ):
        builder.build()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (StringSerde(), StringSerde()),
        (JsonSerde(), JsonSerde()),
        (JsonSerde(dict[str, int]), JsonSerde(dict[str, int])),
        (Plus(1), Plus(1)),
        (TimeWindowedSerde(StringSerde(), 5), TimeWindowedSerde(StringSerde(), 5)),
    ],
)
def test_serdes_that_do_the_same_need_not_be_one_object(first: Serde[Any], second: Serde[Any]) -> None:
    builder = StreamsBuilder()
    for serde in (first, second):
        builder.stream("in", key_serde=TEXT, value_serde=serde, timestamp_extractor=ByValue("at")).foreach(
            print
        )
    assert sum(name.startswith("KSTREAM-SOURCE") for name in builder.build().nodes) == 1


@pytest.mark.parametrize("second", [None, ByValue("end"), lambda record, time: 0])
def test_one_topic_with_two_timestamp_extractors_is_refused(second: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS, timestamp_extractor=ByValue("at"))
    builder.stream("in", **TEXTS, timestamp_extractor=second)
    with pytest.raises(
        TopologyError, match=r"not with the same timestamp_extractor: .*one timestamp_extractor$"
    ):
        builder.build()


@pytest.mark.parametrize("second", [None, "earliest", 5])
def test_one_topic_with_two_offset_reset_policies_is_refused(second: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS, offset_reset="latest")
    builder.stream("in", **TEXTS, offset_reset=second)
    with pytest.raises(TopologyError, match=r"not with the same offset_reset: .*one offset_reset$"):
        builder.build()
