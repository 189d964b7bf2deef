"""Sources that read by pattern, on the topics of a broker."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, TopologyError
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.broker.requests import LastingAdmin
from streamapp.runners.worker.topics import prepare_topics


def test_a_worker_refuses_a_topic_that_two_patterns_match(kafka: LocalKafka) -> None:
    prefix = uuid.uuid4().hex[:8]
    text: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}
    builder = StreamsBuilder()
    builder.stream(re.compile(f"{prefix}-a.*"), **text).foreach(print)
    builder.stream(re.compile(f"{prefix}-.*b"), **text).foreach(print)
    config = StreamsConfig(prefix, bootstrap_servers=kafka.bootstrap_servers)
    plan = builder.build().plan(config)
    topics = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin = LastingAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    topics.ensure_topics([TopicSpec(f"{prefix}-a", 1, {}), TopicSpec(f"{prefix}-b", 1, {})])
    assert prepare_topics(plan, admin).sources == {0: (f"{prefix}-a",), 1: (f"{prefix}-b",)}
    topics.ensure_topics([TopicSpec(f"{prefix}-ab", 1, {})])
    with pytest.raises(TopologyError, match=f"topic {prefix}-ab matches the patterns {prefix}-a"):
        prepare_topics(plan, admin)
