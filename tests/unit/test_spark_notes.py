"""The notes that a backfill leaves in the metadata of the group's offsets."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamapp import (
    ConfigError,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopicPartition,
    TopologyError,
)
from streamapp.engine.metadata import METADATA_LIMIT, TOPIC_ID, encode_metadata
from streamapp.engine.runner_ports import Position
from streamapp.engine.store_notes import changelog_numbers
from streamapp.runners.spark import handover_survey
from streamapp.runners.spark.handover_group import Progress
from streamapp.runners.spark.handover_survey import Survey, _joined
from streamapp.runners.spark.stage import Resume

TEXT = StringSerde()


class Cluster:
    """Answers as Kafka with one input, and with a global topic of 400 partitions, for a group without offsets."""

    def __init__(self, *_: Any) -> None: ...

    def partition_counts(self) -> dict[str, int]:
        return {"in": 1, "out": 1, "rates": 400}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(partitions, (0, 10_000_000_000))

    def resolve(
        self, source: Any, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return self.committed(partitions)

    def settle(self, *_: Any) -> None: ...

    def check_empty(self) -> None: ...

    def read(self, partitions: Any) -> dict[Any, Any]:
        return {}

    read_settled = read


def surveyed(inputs: int, ends: dict[str, list[int]]) -> Survey:
    builder = StreamsBuilder(StreamsConfig("app"))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    ranges = {TopicPartition("in", number): (0, 1_000_000) for number in range(inputs)}
    plan = builder.build().plan(StreamsConfig("app"))
    return Survey(plan, {"in": inputs}, {}, ranges, Resume(), ends, None)


@pytest.mark.parametrize(
    ("inputs", "topics", "partitions"), [(12, 1, 400), (2, 4, 100), (2, 8, 64), (1, 1, 3), (1, 0, 0)]
)
def test_the_inputs_share_the_ends_of_global_topics(inputs: int, topics: int, partitions: int) -> None:
    ends = {f"topic-{t}": [10_000_000_000 + 1_000 * t + p for p in range(partitions)] for t in range(topics)}
    notes = surveyed(inputs, ends).notes(1_700_000_000_000)
    written = {
        tp: msgspec.structs.replace(note, rows=10**12, checksum=2**32 - 1).to_metadata()
        for tp, note in notes.items()
    }
    assert max(map(len, written.values())) <= METADATA_LIMIT
    read = {tp: note for tp, text in reversed(written.items()) if (note := Progress.of(text))}
    assert _joined(read) == ends


def test_ends_without_room_are_an_error_about_the_global_topics() -> None:
    survey = surveyed(1, {"rates": [10_000_000_000] * 400})
    with pytest.raises(TopologyError, match="global topics rates have 400 partitions.*fewer partitions"):
        survey.notes(1_700_000_000_000)


def test_the_note_of_an_earlier_version_is_read() -> None:
    old = Progress("job", 7, 1, global_ends={"rates": [5, 6]})
    rest = Progress("job", 9, 1)
    assert _joined({TopicPartition("in", 0): old, TopicPartition("in", 1): rest}) == {"rates": [5, 6]}


def test_a_survey_refuses_before_the_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_survey, "KafkaRange", Cluster)
    monkeypatch.setattr(handover_survey, "Group", Cluster)
    monkeypatch.setattr(handover_survey, "ids_of", lambda *_: {})
    builder = StreamsBuilder(StreamsConfig("app"))
    builder.global_table("rates", key_serde=TEXT, value_serde=TEXT)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    with pytest.raises(TopologyError, match="the global topics rates have 400 partitions"):
        handover_survey.survey(builder.build().plan(StreamsConfig("app")), None)


METADATA = encode_metadata(5, {f"{TOPIC_ID}A": 0})


def later(monkeypatch: pytest.MonkeyPatch, metadata: str) -> None:
    """The group has an offset with this metadata, and all topics have the id B now."""

    class Committed(Cluster):
        def __init__(self, of: Any) -> None:
            self.positions = {TopicPartition("in", 0): Position(5, metadata)}
            if of.application_id != "app":
                self.positions = {}

        def read(self, partitions: Any) -> dict[Any, Any]:
            return self.positions

        read_settled = read

    class Admin:
        def __init__(self, *_: Any) -> None: ...

        def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
            answer: Future[Any] = Future()
            answer.set_result(SimpleNamespace(topic_id="B"))
            return dict.fromkeys(topics.topic_names, answer)

    monkeypatch.setattr(handover_survey, "KafkaRange", Cluster)
    monkeypatch.setattr(handover_survey, "Group", Committed)
    monkeypatch.setattr(handover_survey, "admin_of", Admin)


@pytest.mark.parametrize(
    ("metadata", "error", "says"),
    [
        (METADATA, TopologyError, "the group app has committed offsets there.*--shift-by 0 --keep-tables"),
        (
            Progress("job", 7, 1, was=METADATA).to_metadata(),
            ConfigError,
            "since the interrupted backfill of app began.* run `streamapp reset`, then the backfill",
        ),
    ],
)
def test_a_backfill_refuses_offsets_of_an_earlier_topic(
    metadata: str, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, metadata)
    builder = StreamsBuilder(StreamsConfig("app"))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    with pytest.raises(error, match=f"the topic in was deleted and created anew.*{says}"):
        handover_survey.survey(builder.build().plan(StreamsConfig("app")), None)


def test_a_backfill_refuses_a_changelog_that_was_created_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    grouped = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    grouped.count(materialized=Materialized("counts"))
    plan, changelog = builder.build().plan(StreamsConfig("app")), "app-counts-changelog"
    monkeypatch.setattr(Cluster, "partition_counts", lambda _: {"in": 1, changelog: 1})
    numbers = changelog_numbers(plan, "in", {changelog: "A"})
    later(monkeypatch, Progress("job", 7, 1, was=encode_metadata(5, numbers)).to_metadata())
    with pytest.raises(TopologyError, match=f"the changelog {changelog} was deleted and created anew"):
        handover_survey.survey(plan, None)
