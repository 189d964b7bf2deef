"""The doctor's checks of the last records of inputs, with made-up samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamapp.operations.doctor.checks.record_checks import hot_key
from streamapp.operations.doctor.samples import Sample
from streamapp.operations.offsets.positions import Position
from streamapp.records import TopicPartition


def survey(keys: list[list[bytes | None]], ends: list[int]) -> Any:
    partitions = [TopicPartition("flights", number) for number in range(len(keys))]
    topic = SimpleNamespace(name="flights", partitions=partitions)
    return SimpleNamespace(
        of_role=lambda role: [topic],
        global_topics=frozenset(),
        records={tp: Sample(each, []) for tp, each in zip(partitions, keys, strict=True)},
        positions=[Position(tp, None, 0, end) for tp, end in zip(partitions, ends, strict=False)],
    )


def test_records_that_came_after_the_look_at_the_positions_are_no_hot_key() -> None:
    """With global topics, the doctor looks at the positions twice."""
    assert list(hot_key(survey([[b"a"] * 300, [b"b"] * 300], [0, 0]))) == []
    assert list(hot_key(survey([[b"a"] * 300, [b"b"] * 300], [300]))) != []
