"""The place at which an application begins to read, and the records that it leaves out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta

import pytest

from streamapp import StreamsConfig, StreamsError, TaskCorruptedError, TopicPartition
from streamapp.config import OffsetReset
from streamapp.errors import ConfigError
from streamapp.runners.first_offsets import FirstOffsets, first_new_partitions

IN = TopicPartition("in", 0)
GONE = "in-0: records 3 to 9 are gone (retention) before they were processed"


def first_offsets(
    reset: OffsetReset, at_time: int = -1, first_new: Mapping[str, int] | None = None
) -> FirstOffsets:
    return FirstOffsets("app", lambda topic: reset, lambda tp, timestamp: at_time, first_new or {})


@pytest.mark.parametrize(
    ("reset", "end", "begin", "told"),
    [
        ("earliest", 50, 10, GONE),
        ("latest", 50, 50, f"{GONE}. Records 10 to 49 are left out, too, as the offset reset policy says"),
        ("latest", 10, 10, GONE),
    ],
)
def test_all_records_that_are_left_out_are_told(
    caplog: pytest.LogCaptureFixture, reset: OffsetReset, end: int, begin: int, told: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert first_offsets(reset).of(IN, 3, 10, end) == begin
    assert caplog.messages == [told]


@pytest.mark.parametrize(("reset", "begin"), [("earliest", 10), ("latest", 50)])
def test_a_new_application_leaves_nothing_out(
    caplog: pytest.LogCaptureFixture, reset: OffsetReset, begin: int
) -> None:
    assert first_offsets(reset).of(IN, -1, 10, 50) == begin
    assert first_offsets(reset).of(IN, 20, 10, 50) == 20
    assert not caplog.messages


@pytest.mark.parametrize("reset", ["earliest", "latest", timedelta(minutes=1)])
def test_a_new_partition_begins_with_its_first_record(reset: OffsetReset) -> None:
    assert first_offsets(reset, first_new={"in": 0}).of(IN, -1, 10, 50) == 10


def test_with_none_a_new_partition_has_no_begin() -> None:
    """The partition was read from its first record, although a missing offset is always an error."""
    with pytest.raises(StreamsError, match="no offset in in-0"):
        first_offsets("none", first_new={"in": 0}).of(IN, -1, 10, 50)


@pytest.mark.parametrize(
    ("committed", "new"),
    [
        ([-1, -1, -1], []),
        ([5, 0, -1], [2]),
        ([5, -1, 7, -1], [3]),  # an earlier release committed nothing in a quiet partition
    ],
)
def test_new_partitions_are_behind_those_with_offsets(committed: list[int], new: list[int]) -> None:
    found = {TopicPartition("in", number): offset for number, offset in enumerate(committed)}
    chooses = first_offsets("latest", first_new=first_new_partitions(found))
    without = [tp for tp, offset in found.items() if offset < 0]
    assert [tp.partition for tp in without if chooses.of(tp, -1, 10, 50) == 10] == new
    later = TopicPartition("in", len(committed))
    assert chooses.of(later, -1, 10, 50) == 10


@pytest.mark.parametrize(("found", "begin"), [(-1, 50), (4, 10), (30, 30), (50, 50)])
def test_a_duration_begins_with_the_first_record_that_is_not_older(found: int, begin: int) -> None:
    asked = []

    def offset_at(tp: TopicPartition, timestamp: int) -> int:
        asked.append(timestamp)
        return found

    before = time.time() * 1000
    chosen = FirstOffsets("app", lambda topic: timedelta(hours=1), offset_at).of(IN, -1, 10, 50)
    assert chosen == begin
    assert before - 1 <= asked[0] + 3_600_000 <= time.time() * 1000


def test_a_duration_longer_than_the_time_since_1970_begins_with_the_first_record() -> None:
    """The request had a negative time, and Kafka gives some of these another meaning: -1 is the end."""

    def offset_at(tp: TopicPartition, timestamp: int) -> int:
        assert timestamp == 0
        return 10

    assert FirstOffsets("app", lambda topic: timedelta(days=36_500), offset_at).of(IN, -1, 10, 50) == 10


@pytest.mark.parametrize(
    ("offset", "told"), [(-1, "no offset in in-0"), (3, "offset 3 in in-0, which begins at 10")]
)
def test_none_chooses_no_place(offset: int, told: str) -> None:
    with pytest.raises(
        StreamsError, match=f"the group app has {told}, and .* --group app --topic in --to-earliest"
    ):
        first_offsets("none").of(IN, offset, 10, 50)
    assert first_offsets("none").of(IN, 20, 10, 50) == 20


def test_a_position_beyond_the_end_is_refused() -> None:
    with pytest.raises(TaskCorruptedError, match="in-0 is 51, but the topic ends at 50"):
        first_offsets("earliest").of(IN, 51, 10, 50)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("none", "none"),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P2DT3H4M5.6S", 183_845_600),
        ("by_duration:PT0S", 0),
    ],
)
def test_the_names_of_kafka_are_understood(text: str, reset: OffsetReset) -> None:
    assert StreamsConfig.from_properties({"auto.offset.reset": text}).auto_offset_reset == reset


@pytest.mark.parametrize(
    "text", ["by_duration:", "by_duration:P", "by_duration:1h", "by_duration:-PT1H", "newest"]
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"auto.offset.reset"):
        StreamsConfig.from_properties({"auto.offset.reset": text})


@pytest.mark.parametrize("reset", [timedelta(seconds=-1), -1, 1.5, None, timedelta(microseconds=1)])
def test_other_durations_are_refused(reset: OffsetReset) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        StreamsConfig(auto_offset_reset=reset)
