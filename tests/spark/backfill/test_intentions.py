"""The lines that a backfill prints before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamapp import LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde, TimeWindows
from streamapp.cli.backfill import _intentions
from streamapp.records import TopicPartition
from streamapp.runners.spark.handover_survey import Survey
from streamapp.runners.spark.stage import Resume


def test_stores_that_are_not_handed_over_are_named() -> None:
    builder = StreamsBuilder()
    for name, logging in (("kept", True), ("lost", False)):
        stream = builder.stream(f"in-{name}", key_serde=StringSerde(), value_serde=StringSerde())
        table: Any = Materialized(name, key_serde=StringSerde(), value_serde=LongSerde(), logging=logging)
        stream.group_by_key().count(materialized=table)
    plan = builder.build().plan(StreamsConfig("app"))
    partitions = dict.fromkeys(("in-kept", "in-lost", "app-kept-changelog"), 1)
    survey = Survey(plan, partitions, {}, {}, Resume(), {}, None)
    found: Any = SimpleNamespace(survey=survey, nothing_to_do=False, outputs=(), warnings=())
    (line,) = [line for line in _intentions(found) if "Not handed over" in line]
    assert line.endswith(
        "(logging=False): lost. Workers begin with an empty store, or with old rows on their disk"
    )


def test_windows_that_may_drop_records_behind_the_cut_are_named() -> None:
    builder = StreamsBuilder()
    text: Any = {"key_serde": StringSerde(), "value_serde": StringSerde()}
    stream, hour = builder.stream("in", **text), TimeWindows.of_size_with_no_grace(3_600_000)
    for name, grouped in (
        ("by-key", stream.group_by_key()),
        ("by-value", stream.group_by(lambda k, v: v, **text)),
    ):
        grouped.windowed_by(hour).count(materialized=Materialized(name))
    stream.group_by(lambda k, v: v, name="r", **text).count(materialized=Materialized("no-windows"))
    plan = builder.build().plan(StreamsConfig("app"))
    survey = Survey(
        plan,
        dict.fromkeys([t for s in plan.subtopologies for t in s.source_topics], 1),
        {},
        {},
        Resume(),
        {},
        None,
    )
    found: Any = SimpleNamespace(survey=survey, nothing_to_do=False, outputs=(), warnings=())
    (line,) = [line for line in _intentions(found, 5) if line.startswith("Warning")]
    assert "may drop records behind the cut as late, in the windows of by-value. " in line
    assert not any(line.startswith("Warning") for line in _intentions(found))


def test_inputs_that_begin_late_are_named() -> None:
    """Kafka has deleted their first records. A forgotten ``--files`` would leave half of the history out."""
    builder = StreamsBuilder()
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to("out")
    plan = builder.build().plan(StreamsConfig("app"))
    inputs = [TopicPartition("in", number) for number in range(4)]
    starts = (0, 1_811, 7, 90)
    ranges = {tp: (start, 2_000) for tp, start in zip(inputs, starts, strict=True)}

    def warnings(committed: dict[TopicPartition, str]) -> list[str]:
        survey = Survey(plan, {"in": 4}, {}, ranges, Resume({}, committed), {}, None)
        found: Any = SimpleNamespace(survey=survey, nothing_to_do=False, outputs=(), warnings=())
        return [line for line in _intentions(found) if line.startswith("Warning")]

    (line,) = warnings({inputs[3]: "the group goes on here"})
    assert line.startswith(
        "Warning: in-1 begins at offset 1,811, and 1 further partition begins late, too. The "
    )
    assert warnings(dict.fromkeys(inputs, "all")) == []
