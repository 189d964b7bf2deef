"""`streamapp topic` on a cluster in which some partitions have no leader; tests/worker has a real cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp.broker.admin import KafkaAdmin
from streamapp.cli.topic import topic_group
from streamapp.records import TopicPartition


@pytest.fixture
def half_led(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The topic ``flights``, whose second partition has no leader. Returns the deleted topics."""
    partitions = {
        number: SimpleNamespace(leader=leader, replicas=[1], isrs=[1])
        for number, leader in enumerate((1, -1))
    }
    deleted: list[Any] = []
    offsets: Any = {TopicPartition("flights", 0): 5}
    monkeypatch.setattr(
        KafkaAdmin, "topics", lambda self: {"flights": SimpleNamespace(partitions=partitions)}
    )
    monkeypatch.setattr("streamapp.cli.topic.reach", lambda settings: None)
    monkeypatch.setattr(KafkaAdmin, "partition_counts", lambda self, topics: {"flights": 2})
    monkeypatch.setattr(KafkaAdmin, "log_start_offsets", lambda self, asked: dict.fromkeys(asked, 0))
    monkeypatch.setattr(KafkaAdmin, "log_end_offsets", lambda self, asked: {tp: offsets[tp] for tp in asked})
    monkeypatch.setattr(KafkaAdmin, "own_config", lambda self, topic: {})
    monkeypatch.setattr(KafkaAdmin, "groups", lambda self: [])
    monkeypatch.setattr(KafkaAdmin, "delete_topics", lambda self, topics: deleted.extend(topics))
    return deleted


def test_a_partition_without_a_leader_is_described(half_led: list[Any]) -> None:
    """The command waited for the offsets of this partition, and then failed."""
    described = CliRunner().invoke(topic_group, ["describe", "flights"])
    assert described.exit_code == 0, described.output
    rows = [line.split()[1::2] for line in described.output.splitlines() if line.startswith("│")]
    assert [row[:4] for row in rows] == [["0", "0", "5", "1"], ["1", "unknown", "unknown", "none"]]


def test_a_topic_with_such_a_partition_can_be_deleted(half_led: list[Any]) -> None:
    gone = CliRunner().invoke(topic_group, ["delete", "flights", "--yes"])
    assert (gone.exit_code, half_led) == (0, ["flights"])
    assert "flights: 2 partitions, up to 5 records, and those of 1 partition without a leader" in gone.output
