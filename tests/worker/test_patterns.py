"""Sources that read by pattern, on the topics of a broker."""

from __future__ import annotations

import re
import signal
import uuid
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, TopologyError
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.broker.requests import LastingAdmin
from streamapp.runners.worker.topics import prepare_topics
from streamapp.testing import Backlog

from ..processes import until
from .conftest import Cluster
from .member import Member


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


def test_a_backlog_has_the_topics_of_patterns(kafka: LocalKafka) -> None:
    name = uuid.uuid4().hex[:8]
    builder = StreamsBuilder()
    builder.stream(re.compile(f"{name}-.*"), key_serde=StringSerde(), value_serde=StringSerde()).foreach(
        print
    )
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    plan = builder.build().plan(StreamsConfig(name, bootstrap_servers=kafka.bootstrap_servers))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    with Backlog(plan, settings) as backlog, closing(consumer):
        assert not backlog.empty()  # no topic matches yet
        for topic in (f"{name}-a", f"{name}-b"):
            KafkaAdmin(settings).ensure_topics([TopicSpec(topic, 1, {})])
            producer.produce(topic, b"value")
            producer.flush()
            assert not backlog.empty()
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            assert backlog.empty()
        assert backlog.progress() == (2, 2)


def test_workers_follow_topics_that_come_and_go(cluster: Cluster) -> None:
    """A worker that started after the new topic ran tasks that another worker ran, too. So counts were wrong."""
    cluster.feed(200)
    first = Member(cluster, "a", app="pattern_app")
    first.until_it_has(4, 0)
    added = f"{cluster.source}-more"
    cluster.create(added)
    _feed(cluster, added)
    second = Member(cluster, "b", app="pattern_app")

    def ids(tasks: list[dict[str, Any]]) -> set[str]:
        return {task["id"] for task in tasks}

    def read(topics: set[str]) -> bool:
        # A task may move between two questions, so only a task that was there before and after counts as run twice.
        before, theirs, ours = (each.status().get("tasks", ()) for each in (first, second, first))
        assert not ids(before) & ids(theirs) & ids(ours)
        found = [{each["topic"] for each in task["inputs"]} for task in (*ours, *theirs)]
        return found == [topics] * 4

    until(lambda: read({cluster.source, added}), 60, cluster.story)
    cluster.counted()
    first.worker.signal(signal.SIGKILL)
    _feed(cluster, added)
    cluster.counted()
    for future in cluster.admin.delete_topics([added]).values():
        future.result()
    until(lambda: read({cluster.source}), 60, cluster.story)
    cluster.feed(200)
    cluster.counted()
    cluster.create(added)  # once more, as a new topic of the same name
    until(lambda: read({cluster.source, added}), 60, cluster.story)
    _feed(cluster, added)
    cluster.counted()
    counts = cluster.totals(f"{cluster.id}-counts-changelog")
    assert cluster.totals()[1] == counts[1] == 1_000
    assert second.worker.terminate() == 0


def _feed(cluster: Cluster, topic: str) -> None:
    cluster.feed(200, topic=topic)
    cluster.produced += 200
