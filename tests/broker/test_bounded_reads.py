"""Reads of partitions up to their ends, on a real broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.records import TopicPartition

pytestmark = pytest.mark.broker

SECONDS = 30.0


@pytest.fixture
def consumer(kafka: LocalKafka) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"reader-{uuid4().hex}",
        **TO_THE_END,
    }
    with closing(Consumer(settings)) as opened:
        yield opened


@pytest.fixture
def topic(kafka: LocalKafka) -> str:
    """A topic with no, ten, 2,000 and four records in its partitions. The last four are of a transaction."""
    name = f"topic-{uuid4().hex}"
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics([TopicSpec(name, 4)])
    write(kafka, name, 1, range(10))
    write(kafka, name, 2, range(2_000))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(4):
        producer.produce(name, str(number), partition=3)
    producer.commit_transaction(SECONDS)
    return name


def write(kafka: LocalKafka, topic: str, partition: int, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in numbers:
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(SECONDS) == 0


def test_each_partition_is_read_from_its_start_to_its_end(consumer: Consumer, topic: str) -> None:
    starts = {TopicPartition(topic, number): start for number, start in enumerate((0, 3, 0, 1))}
    found = defaultdict(list)
    for message in read_to_end(consumer, starts, SECONDS):
        found[message.partition()].append(message.offset())
    assert found == {1: [*range(3, 10)], 2: [*range(2_000)], 3: [1, 2, 3]}
    assert consumer.assignment() == [], "brokers would be asked a hundred times a second for further records"


def test_a_read_ends_before_the_given_offsets_although_others_write(
    kafka: LocalKafka, consumer: Consumer, topic: str
) -> None:
    first, second = TopicPartition(topic, 1), TopicPartition(topic, 3)
    write(kafka, topic, 1, range(10, 500))
    found = defaultdict(list)
    for message in read_to_end(consumer, {first: 8, second: 0}, SECONDS, {first: 12, second: 5}):
        found[message.partition()].append(message.offset())
        write(kafka, topic, message.partition(), range(1))
    assert found == {1: [8, 9, 10, 11], 3: [0, 1, 2, 3]}


def test_no_partition_is_read_for_no_starts(consumer: Consumer) -> None:
    assert [*read_to_end(consumer, {}, SECONDS)] == []
