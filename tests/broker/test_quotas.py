"""A client that a quota of the brokers holds back says so."""

from __future__ import annotations

import logging
import uuid

import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.librdkafka import COMPILED
from streamapp.records import TopicPartition
from tests.brokers import set_quota
from tests.processes import until

pytestmark = pytest.mark.broker


@pytest.mark.skipif(not COMPILED, reason="only the part in C hears of quotas")
def test_the_log_tells_of_a_quota_of_the_brokers(kafka: LocalKafka, caplog: pytest.LogCaptureFixture) -> None:
    name, servers = f"quota-{uuid.uuid4().hex[:8]}", {"bootstrap.servers": kafka.bootstrap_servers}
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics([TopicSpec(name, 1)])
    producer = Producer(servers)
    for _ in range(2_000):
        producer.produce(name, bytes(1_000))
    assert producer.flush(60) == 0
    set_quota(kafka, name, consumer_byte_rate=20_000)
    consumer = open_consumer({**servers, "client.id": name, "group.id": name, "enable.partition.eof": True})
    consumer.assign({TopicPartition(name, 0): 0})

    def told() -> list[str]:
        consumer.poll(100, 0.1)
        return [line for line in caplog.messages if "THROTTLE" in line]

    try:
        with caplog.at_level(logging.WARNING):
            until(told, 60.0, lambda: caplog.text)
    finally:
        consumer.close()
    (line,) = [line for line in caplog.messages if "THROTTLE" in line]
    assert name in line
    assert "a quota of the brokers has held this client back for" in line
