"""What was committed is read, also in the moment in which Kafka has not told all partitions of the commit yet."""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from streamapp import StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.spark import KafkaSource, batch_source, handover_survey
from streamapp.runners.spark.batch_source import KafkaRange
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.handover_survey import survey

pytestmark = pytest.mark.broker

TEXT = StringSerde()


class Application:
    """A topic of its own, and a producer of transactions that writes there."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.id = f"settled-{uuid.uuid4().hex[:6]}"
        self.settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        self.config = StreamsConfig(self.id, bootstrap_servers=kafka.bootstrap_servers)
        self.partition = TopicPartition(self.id, 0)
        self.add_topic(self.id)
        self.range = KafkaRange(self.settings.librdkafka())
        self.producer = Producer({**self.settings.librdkafka(), "transactional.id": self.id})
        self.producer.init_transactions()

    def add_topic(self, name: str) -> None:
        KafkaAdmin(self.settings).ensure_topics([TopicSpec(name, 1, {"retention.ms": "-1"})])

    def write(self, topic: str) -> None:
        """One record, in a transaction that stays open."""
        self.producer.begin_transaction()
        self.producer.produce(topic, b"value", b"key", partition=0)
        self.producer.flush()

    def commit_soon(self) -> threading.Timer:
        timer = threading.Timer(0.3, self.producer.commit_transaction)
        timer.start()
        return timer


@pytest.fixture
def application(kafka: LocalKafka) -> Application:
    return Application(kafka)


def test_a_batch_has_what_was_committed_before_it_began(application: Application) -> None:
    for number in range(1, 30):
        application.write(application.id)
        application.producer.commit_transaction()
        # A record and its marker each.
        found = application.range.resolve(KafkaSource(), [application.partition])
        assert found == {application.partition: (0, 2 * number)}


def test_a_batch_waits_for_transactions_that_are_open(application: Application) -> None:
    application.write(application.id)
    assert application.range.settle([application.partition], 0.1) == {application.partition}
    timer = application.commit_soon()
    assert application.range.resolve(KafkaSource(), [application.partition]) == {
        application.partition: (0, 2)
    }
    timer.join()


def test_a_transaction_that_stays_open_is_told(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch_source, "SETTLE_SECONDS", 0.1)
    tp = application.partition
    application.write(application.id)
    application.producer.commit_transaction()
    application.write(application.id)
    told = f"left out: {tp} is read up to offset 2. No reader of committed records"
    for source in (KafkaSource(), KafkaSource(until=4_000_000_000_000)):
        caplog.clear()
        assert application.range.resolve(source, [tp]) == {tp: (0, 2)}
        assert told in caplog.text
    caplog.clear()
    for until in ({tp: 1}, {tp: 2}, 1):
        application.range.resolve(KafkaSource(until=until), [tp])
    assert caplog.text == ""
    with pytest.raises(ConfigError, match=f"{tp} has 0 to 2. No reader of committed records .* find-hanging"):
        application.range.resolve(KafkaSource(until={tp: 3}), [tp])
    application.producer.abort_transaction()


def test_a_group_settles_when_its_transaction_has_ended(application: Application) -> None:
    group, partition = Group(application.config), application.partition
    member = Consumer(
        {**application.settings.librdkafka(), "group.id": application.id}
    ).consumer_group_metadata()
    application.producer.begin_transaction()
    application.producer.send_offsets_to_transaction([ClientPartition(*partition, 5)], member)
    timer = application.commit_soon()
    assert group.read([partition]) == {}
    assert group.read_settled([partition]) == {partition: Position(5)}
    timer.join()


def test_state_that_is_still_being_committed_is_not_taken_over(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_survey, "OPEN_SECONDS", 0.5)
    builder = StreamsBuilder(application.config)
    builder.stream(application.id, key_serde=TEXT, value_serde=TEXT).group_by_key().count(name="counts")
    plan = builder.build().plan(application.config)
    (log,) = plan.subtopologies[0].changelog_topics.values()
    application.add_topic(log.name)
    application.write(log.name)
    with pytest.raises(BrokerError, match=f"transactions in {log.name}-0 have not ended within 0.5 s"):
        survey(plan, None)
    application.producer.abort_transaction()
    assert survey(plan, None).resume.changelogs == {}
