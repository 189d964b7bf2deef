"""Topics, partition counts and log ends on a real broker."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.broker.ports import free_port
from streamapp.broker.requests import reach
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(kafka: LocalKafka) -> KafkaAdmin:
    return KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex}"


def test_topics_are_created_once_and_deleted_once(admin: KafkaAdmin, topic: str) -> None:
    other = f"{topic}-other"
    admin.ensure_topics([TopicSpec(topic, 3, {"cleanup.policy": "compact"})])
    admin.ensure_topics([(topic, 3, {}), (other, 1, {})])
    assert admin.partition_counts([topic, other, "no-such-topic"]) == {topic: 3, other: 1}
    admin.delete_topics([topic, other, "no-such-topic"])
    assert admin.partition_counts([topic, other]) == {}
    admin.delete_topics([])


def test_another_partition_count_is_refused_and_nothing_is_created(admin: KafkaAdmin, topic: str) -> None:
    admin.ensure_topics([TopicSpec(topic, 3)])
    with pytest.raises(BrokerError, match=rf"{topic} has 3, not 4"):
        admin.ensure_topics([TopicSpec(f"{topic}-new", 1), TopicSpec(topic, 4)])
    assert admin.partition_counts([f"{topic}-new"]) == {}


def test_workers_that_start_together_may_all_create(admin: KafkaAdmin, topic: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(admin.ensure_topics, [TopicSpec(topic, 2)]) for _ in range(4)]:
            each.result()
    assert admin.partition_counts([topic]) == {topic: 2}


def test_a_user_who_waits_for_kafka_learns_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A closed port is the reason that both texts name."""
    monkeypatch.setattr("streamapp.broker.requests._SOON_KNOWN_SECONDS", 0.25)
    nowhere = KafkaAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout=0.75)
    said = r"cannot be reached at 127\.0\.0\.1:1 .*Connection refused.*streamapp broker start"
    with pytest.raises(BrokerError, match=said):
        nowhere.partition_counts(["any"])
    (line,) = caplog.messages
    assert re.search(rf"{said}\. Trying again for \d s", line)


def test_a_host_that_does_not_exist_is_named(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = KafkaAdmin(KafkaSettings(bootstrap_servers="kafka.invalid:9092"), timeout=0.5)
    with pytest.raises(BrokerError, match=r"Failed to resolve 'kafka\.invalid:9092'.*Check that Kafka runs"):
        nowhere.partition_counts(["any"])


def test_a_listener_may_need_longer_than_the_first_look(kafka: LocalKafka) -> None:
    """Each look of a second had a new client, so that no connection to a slow listener was ever complete."""
    slow = Proxy(free_port(), int(kafka.bootstrap_servers.rpartition(":")[2]))
    slow.delay(0.7)
    try:
        reach({"bootstrap.servers": f"127.0.0.1:1,127.0.0.1:{slow.port}"})
    finally:
        slow.close()


def test_a_setting_that_kafka_refuses_is_named(admin: KafkaAdmin, topic: str) -> None:
    with pytest.raises(BrokerError, match=rf"could not create {topic}: .*cleanup\.policy"):
        admin.ensure_topics([TopicSpec(topic, 1, {"cleanup.policy": "sometimes"})])


def test_log_ends_with_and_without_what_is_not_committed(
    admin: KafkaAdmin, kafka: LocalKafka, topic: str
) -> None:
    admin.ensure_topics([TopicSpec(topic, 2)])
    # Timestamps of 2001: retention must not touch them.
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1, timestamp=1_000_000_000_000)
    assert producer.flush(30) == 0
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.log_end_offsets([first, second]) == {first: 0, second: 1}
    assert admin.log_end_offsets([second], read_committed=True) == {second: 0}
    producer.commit_transaction(30)
    # The commit marker, offset 1, is written in the background after the commit returned.
    deadline = time.monotonic() + 30
    while admin.log_end_offsets([second], read_committed=True) != {second: 2}:
        assert time.monotonic() < deadline
    assert admin.log_end_offsets([]) == {}


def test_the_log_end_of_an_unknown_topic_is_an_error(admin: KafkaAdmin) -> None:
    with pytest.raises(BrokerError, match="no-such-topic"):
        admin.log_end_offsets([TopicPartition("no-such-topic", 0)])


def test_a_cluster_that_does_not_answer_says_how_to_get_one() -> None:
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout=0.5)
    with pytest.raises(BrokerError, match=r"cannot be reached at 127\.0\.0\.1:1 .*streamapp broker start"):
        admin.ensure_topics([TopicSpec("topic", 1)])


def test_a_partition_whose_leader_changes_is_asked_again(
    admin: KafkaAdmin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.ensure_topics([TopicSpec(topic, 1)])
    partition = TopicPartition(topic, 0)
    list_offsets, refused = admin._client.list_offsets, []

    def refuse_once(asked: Any, **options: Any) -> Any:
        if refused:
            return list_offsets(asked, **options)
        answers = {}
        for at in asked:
            refused.append(at)
            answers[at] = Future()
            answers[at].set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return answers

    monkeypatch.setattr(admin._client, "list_offsets", refuse_once)
    assert admin.log_end_offsets([partition]) == {partition: 0}
    assert len(refused) == 1
