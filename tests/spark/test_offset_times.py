"""Offsets by time are those of records, also in topics that were written in transactions."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.records import TopicPartition
from streamapp.runners.spark import KafkaSource
from streamapp.runners.spark.batch_source import KafkaRange

pytestmark = pytest.mark.broker

FIRST = 1_356_998_400_000


@pytest.mark.parametrize("transactions_of", [0, 1, 3, 20])
def test_a_time_is_the_first_record_that_has_it(kafka: LocalKafka, transactions_of: int) -> None:
    topic = f"times-{uuid.uuid4().hex[:6]}"
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    KafkaAdmin(settings).ensure_topics([TopicSpec(topic, 1, {"retention.ms": "-1"})])
    client = settings.librdkafka()
    producer = Producer({**client, **({"transactional.id": topic} if transactions_of else {})})
    if transactions_of:
        producer.init_transactions()
    for number in range(40):
        if transactions_of and number % transactions_of == 0:
            producer.begin_transaction()
        producer.produce(topic, b"%d" % number, timestamp=FIRST + 10 * number)
        if transactions_of and (number + 1) % transactions_of == 0:
            producer.commit_transaction()
    if transactions_of and 40 % transactions_of:
        producer.commit_transaction()
    producer.flush()

    tp = TopicPartition(topic, 0)
    kafka_range = KafkaRange(client)
    end = kafka_range.resolve(KafkaSource(), [tp])[tp][1]

    def cut(time: int) -> int:
        return kafka_range.resolve(KafkaSource(until=time), [tp])[tp][1]

    def offset(number: int) -> int:
        return number + (number // transactions_of if transactions_of else 0)

    for number in (0, 3, 20, 39):
        assert cut(FIRST + 10 * number) == offset(number)
        assert cut(FIRST + 10 * number - 5) == offset(number)
    assert cut(FIRST + 391) == end
    assert cut(FIRST - 1_000_000) == 0
    for before in (-1, -2, -5):  # times before 1970, which have other meanings in Kafka's requests
        assert kafka_range.resolve(KafkaSource(since=before), [tp])[tp] == (0, end)
        assert cut(before) == 0
