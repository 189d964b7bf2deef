"""New offsets of a group whose committed offsets belong to an earlier topic of this name, or to another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StreamsError, StringSerde, TopicPartition
from streamapp.engine.metadata import from_outside
from streamapp.operations.offsets import moves
from streamapp.operations.offsets.moves import plan_copy, plan_reset
from streamapp.operations.offsets.positions import Position, ShiftBy, ToEarliest
from streamapp.operations.offsets.subject import Subject

OLD, NEW = TopicPartition("in", 0), TopicPartition("in", 1)
BETWEEN = TopicPartition("app-keys-repartition", 0)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Subject:
    """A group that has committed the offset 5 in an earlier topic, and in the present one."""
    found = [Position(OLD, 5, 0, 9, anew=True), Position(NEW, 5, 0, 9), Position(BETWEEN, 7, 0, 9, anew=True)]
    monkeypatch.setattr(moves, "check_at_rest", lambda *_: None)
    monkeypatch.setattr(moves, "positions", lambda *_: found)
    monkeypatch.setattr(Subject, "admin", None)
    monkeypatch.setattr(Subject, "topics", {"in": 2, BETWEEN.topic: 1})
    monkeypatch.setattr(
        Subject,
        "committed",
        lambda self: {} if self.group == "copy" else dict.fromkeys((OLD, NEW, BETWEEN), (5, "")),
    )
    return Subject("app", {"bootstrap.servers": "127.0.0.1:1"})


def test_offsets_of_another_cluster_are_committed_without_the_id_of_its_topic(
    group: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[Any] = []
    monkeypatch.setattr(moves, "commit_for", lambda admin, *rest: committed.append(rest))
    plan_reset(group, ShiftBy(0)).carry_out()
    assert [move.at.partition for move in plan_reset(group, ShiftBy(1)).moves] == [OLD, NEW]
    assert committed == [("app", {OLD: 5, BETWEEN: 7}, "")]


def test_offsets_of_another_tool_are_committed_anew_with_metadata_that_workers_take(
    group: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain group has no tables, and its members may have metadata of their own."""
    found = [Position(OLD, 5, 0, 9, outside=True), Position(BETWEEN, 7, 0, 9, outside=True)]
    monkeypatch.setattr(moves, "positions", lambda *_: found)
    monkeypatch.setattr(Subject, "topics", {"in": 2, BETWEEN.topic: 1, "app-counts-changelog": 1})
    committed: list[Any] = []
    monkeypatch.setattr(moves, "commit_for", lambda admin, *rest: committed.append(rest))
    plan_reset(group, ShiftBy(0)).carry_out()
    ((name, offsets, metadata),) = committed
    assert (name, offsets) == ("app", {OLD: 5, BETWEEN: 7})
    assert not from_outside(metadata)
    assert "set by another tool" in found[0].remark


@pytest.mark.parametrize(("topic", "made"), [("of-agents", True), ("in", False)])
def test_the_first_offsets_of_a_topology_come_with_its_topics_also_beside_agents(
    monkeypatch: pytest.MonkeyPatch, topic: str, made: bool
) -> None:
    """The agents of an application have the same group, and a topology may be new in this version."""
    builder = StreamsBuilder()
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).group_by_key().count()
    plan = builder.build().plan(StreamsConfig("app"))
    monkeypatch.setattr(moves, "check_at_rest", lambda *_: None)
    monkeypatch.setattr(moves, "positions", lambda *_: [Position(TopicPartition("in", 0), None, 0, 9)])
    monkeypatch.setattr(Subject, "topics", {"in": 1, "of-agents": 1})
    monkeypatch.setattr(Subject, "committed", lambda self: {TopicPartition(topic, 0): (5, "")})
    change = plan_reset(Subject("app", {"bootstrap.servers": "127.0.0.1:1"}, plan), ToEarliest())
    assert change.new_topics == (tuple(each.name for each in plan.internal_topics) if made else ())
    assert plan.internal_topics


def test_offsets_of_an_earlier_topic_are_not_copied(group: Subject) -> None:
    """The copy has no metadata, so its workers would have passed over records of the new topic."""
    with pytest.raises(StreamsError, match="the topic in was .*anew .*--to-earliest.* give --shift-by 0"):
        plan_copy(group, "copy", None)
    assert [move.to for move in plan_copy(group, "copy", ShiftBy(0)).moves] == [5, 5]


def test_the_remark_about_an_earlier_topic_names_the_way_out() -> None:
    assert "another cluster, then: offsets reset --shift-by 0" in Position(OLD, 5, 0, 9, anew=True).remark
