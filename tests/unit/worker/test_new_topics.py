"""The topics that a worker creates for its agents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from streamapp.config import StreamsConfig
from streamapp.runners.worker.agents import sends


def test_a_new_topic_is_there_when_the_brokers_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the group saw no such topic, so nobody read the topic for a minute."""
    answers: list[set[str]] = [set(), {"other"}, {"other"}, {"other", "by-key"}, {"never asked for"}]
    created: list[str] = []
    monkeypatch.setattr(sends, "admin_client", lambda _config: None)
    monkeypatch.setattr(sends, "find_topics", lambda *_: SimpleNamespace(topics=answers.pop(0)))

    def create(_admin: Any, topics: list[NewTopic], _timeout: float) -> None:
        created.extend(topic.topic for topic in topics)

    monkeypatch.setattr(sends, "create_topics", create)
    config = StreamsConfig("app", bootstrap_servers="localhost:1")
    sends._create_missing(config, NewTopic("by-key", num_partitions=4))
    assert (created, answers) == (["by-key"], [{"never asked for"}])
    answers[:] = [{"by-key"}]
    sends._create_missing(config, NewTopic("by-key", num_partitions=4))
    assert (created, answers) == (["by-key"], [])
