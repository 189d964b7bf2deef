"""Keys that Python takes for equal, and Java does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    DoubleSerde,
    FixedKeyProcessor,
    JoinWindows,
    JsonSerde,
    LongSerde,
    Materialized,
    Record,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.engine.equality import same
from streamapp.engine.processor import FixedKeyRecord, check_same_key
from streamapp.testing import try_out

TEXT, NAN = StringSerde(), float("nan")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (NAN, float("nan"), True),
        (NAN, 1.0, False),
        ("a", "a", True),
        ("1", 1, False),
        (None, None, True),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}, True),
        ({"x": 1}, {"x": True}, False),
        ({"x": 1}, {"y": 1}, False),
        ([1, (2.0,)], [1, (2.0,)], True),
        ([1], [1, 2], False),
        ((1, 0.0), (1, -0.0), False),
    ],
)
def test_same(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal


@pytest.mark.parametrize(
    ("serde", "values", "left"),
    [
        (DoubleSerde(), [0.0, -0.0, NAN, NAN], {"0.0": 0, "-0.0": 0, "nan": 1}),
        (JsonSerde(), [1, True, {"x": 1}, {"x": True}], {"1": 0, "True": 0, "{'x': 1}": 0, "{'x': True}": 1}),
    ],
)
def test_a_row_that_moves_leaves_its_group(serde: Any, values: list[Any], left: dict[str, int]) -> None:
    builder = StreamsBuilder(StreamsConfig("app", statestore_cache_max_bytes=0))
    rows = builder.table("t", key_serde=TEXT, value_serde=serde)
    grouped = rows.group_by(lambda key, value: (value, 1), key_serde=serde, value_serde=LongSerde())
    grouped.count(materialized=Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        written = driver.create_input_topic("t", TEXT, serde)
        for number, value in enumerate(values):
            written.pipe_input("a", value, number)
        assert {str(key): count for key, (count, _) in driver.store("counts").all()} == left


def test_unmatched_records_of_a_left_join_come_once() -> None:
    number = DoubleSerde()
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key_serde=number, value_serde=TEXT) for name in "lr")
    joined = left.left_join(
        right, lambda one, other: f"{one}+{other}", JoinWindows.of_time_difference_and_grace(10, 0)
    )
    joined.to("out", key_serde=number, value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        written = driver.create_input_topic("l", number, TEXT)
        for key, value, time in (
            (0.0, "A", 1),
            (-0.0, "B", 1),
            (5.0, "x", 1000),
            (5.0, "y", 2000),
            (5.0, "z", 3000),
        ):
            written.pipe_input(key, value, time)
        read = driver.create_output_topic("out", number, TEXT).read_values()
        assert read == ["A+None", "B+None", "x+None", "y+None"]


def test_a_fixed_key_keeps_its_type() -> None:
    check_same_key("steady", 1, Record(1, "v", 0))
    check_same_key("steady", 1, FixedKeyRecord(2, "v", 0).with_value("w").with_timestamp(3).with_headers(()))
    with pytest.raises(StreamsError, match="steady changed the key from 1 to True"):
        check_same_key("steady", 1, Record(True, "v", 0))


class Buffering(FixedKeyProcessor[str, str, str]):
    """Forwards each record when the next one comes."""

    kept: Record[str, str] | None = None

    def process(self, record: Record[str, str]) -> None:
        if self.kept is not None:
            self.context.forward(self.kept.with_value(self.kept.value.upper()).with_timestamp(7))
        self.kept = record


class Renaming(FixedKeyProcessor[str, str, str]):
    def __init__(self, rename: Callable[[Record[str, str]], Record[str, str]]) -> None:
        self.rename = rename

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(self.rename(record))


def test_a_fixed_key_processor_may_forward_a_record_that_it_has_kept() -> None:
    """The error was that the processor had changed the key. Kafka Streams forwards the record."""
    records = [("a", "x"), ("b", "y"), ("c", "z")]
    assert try_out(lambda words: words.process_values(Buffering), records) == [("a", "X"), ("b", "Y")]


@pytest.mark.parametrize(
    "rename",
    [
        lambda record: record.with_key("z"),
        lambda record: record._replace(key="z"),
        lambda record: Record("z", record.value),
    ],
    ids=["with_key", "_replace", "Record"],
)
def test_a_fixed_key_processor_may_not_change_the_key(rename: Any) -> None:
    with pytest.raises(StreamsError, match="changed the key from 'a' to 'z'"):
        try_out(lambda words: words.process_values(lambda: Renaming(rename)), [("a", "x")])
