"""The transaction of a streaming task: where changelogs end when it is committed."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Consumer

from streamapp.broker import KafkaAdmin, LocalKafka
from streamapp.config import StreamsConfig
from streamapp.engine.runner_ports import Position
from streamapp.records import TopicPartition
from streamapp.runners.connection import settings_of
from streamapp.runners.spark.produce import transactional_producer
from streamapp.runners.spark.streaming_transaction import Deliveries, StreamTransaction, output_client

pytestmark = pytest.mark.broker


def test_the_ends_of_changelogs_are_known_before_the_commit(kafka: LocalKafka) -> None:
    """After the commit, another attempt may have written more. The commit itself writes one marker."""
    name = f"ends-{uuid.uuid4().hex[:8]}"
    written, idle, results = (
        TopicPartition(f"{name}-{topic}", 0) for topic in ("written", "idle", "results")
    )
    config = StreamsConfig(name, bootstrap_servers=kafka.bootstrap_servers)
    admin = KafkaAdmin(settings_of(config))
    admin.ensure_topics([(tp.topic, 1, {}) for tp in (written, idle, results)])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    member = consumer.consumer_group_metadata()
    client = output_client(config, 0, 0)
    known: dict[TopicPartition, int] = {}
    for number in (1, 2):
        with transactional_producer(client) as producer:  # it waits for the markers of the one before
            assert admin.log_end_offsets([written, idle]) == (known or {written: 0, idle: 0})
            producer.begin_transaction()
            transaction = StreamTransaction(producer, member, {results.topic: 1}, admin, Deliveries({}, None))
            transaction.begin()
            transaction.results.send(results.topic, b"k", b"v", 1, (), None)
            transaction.changelogs.send(written.topic, b"k", b"%d" % number, 1, (), 0)
            transaction.acknowledge()
            known = transaction.changelog_ends([written, idle])
            transaction.commit({results: Position(number, "note")} if number == 1 else {})
    consumer.close()
    assert known == {written: 4, idle: 0}
    with transactional_producer(client):
        assert admin.log_end_offsets([written, idle]) == known
