"""A broker that has just come back may name no brokers. Clients then have to find it again (librdkafka#5301)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.requests import LastingAdmin, ask
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import brokers_answer
from streamapp.runners.worker.membership import Member
from streamapp.runners.worker.sender import Sender, open_sender
from streamapp.runners.worker.transactions import TransactionAborted, commit_transaction

from ..processes import until
from .brokers import FaultyKafka

pytestmark = pytest.mark.broker
PARTITION = TopicPartition("t", 0)
CLIENTS = 4
"""Several clients, because only chance decides if one of them forgets its brokers."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyKafka]:
    with FaultyKafka(tmp_path_factory.mktemp("forgotten") / "kafka", 1) as broker:
        KafkaAdmin(KafkaSettings(bootstrap_servers=broker.bootstrap_servers)).ensure_topics(
            [TopicSpec("t", 1), TopicSpec("committed", 1)]
        )
        yield broker


def settings(kafka: FaultyKafka, group: str) -> dict[str, object]:
    return {
        "bootstrap.servers": kafka.links["A"].bootstrap_servers,
        "group.id": group,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 500,
    }


def produce(kafka: FaultyKafka, value: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    producer.produce("t", value)
    producer.flush()


def forget(kafka: FaultyKafka, meanwhile: Callable[[], object]) -> None:
    """Lets the broker name no brokers, so long that each client asks several times."""
    link = kafka.links["A"]
    link.forget_brokers()
    until_time = time.monotonic() + 4
    while time.monotonic() < until_time:
        meanwhile()
    assert link.forgotten
    link.heal()


def test_consumers_go_on(kafka: FaultyKafka) -> None:
    consumers = [open_consumer(settings(kafka, f"group-{number}")) for number in range(CLIENTS)]
    read: list[list[int]] = [[] for _ in consumers]

    def poll() -> None:
        for consumer, offsets in zip(consumers, read, strict=True):
            for _, batch in consumer.poll(100, 0.02)[0]:
                offsets.extend(batch.offsets)

    def all_read(end: int) -> bool:
        poll()
        return all(offsets == list(range(end)) for offsets in read)

    for consumer in consumers:
        consumer.assign({PARTITION: 0})
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    produce(kafka, "before")
    end = admin.log_end_offsets([PARTITION])[PARTITION]
    until(lambda: all_read(end), 30, lambda: read)
    forget(kafka, poll)
    produce(kafka, "after")
    until(lambda: all_read(end + 1), 30, lambda: read)
    for consumer in consumers:
        consumer.close()


def test_commits_are_answered_or_given_up(kafka: FaultyKafka) -> None:
    """The coordinator is gone as well, so a client that commits knows no broker to ask for another. A new producer goes
    on."""
    link = kafka.links["A"]
    given = {name: str(value) for name, value in settings(kafka, "").items() if name != "group.id"}
    admin = LastingAdmin(given)

    def in_transaction(number: int) -> Sender:
        sender = open_sender({**given, "transactional.id": f"sender-{number}"}, lambda failure: None)
        sender.init_transactions(60)
        sender.begin_transaction()
        sender.produce("committed", b"value", b"key", -1, 0, [])
        assert sender.flush(60) == 0
        return sender

    def commit(sender: Sender) -> None:
        with suppress(TransactionAborted):
            commit_transaction(
                sender, {}, "nobody", Member(-1, ""), 60, 120, lambda: None, lambda: brokers_answer(admin)
            )

    senders = [in_transaction(number) for number in range(CLIENTS)]
    link.resign()
    with ThreadPoolExecutor(CLIENTS) as threads:
        commits = [threads.submit(commit, sender) for sender in senders]
        until(lambda: link.refused >= CLIENTS, 30, lambda: link.refused)
        forget(kafka, lambda: time.sleep(0.1))
        for ended in commits:
            ended.result()
    for number in range(CLIENTS):
        in_transaction(number).commit_transaction(60)


def test_admin_clients_go_on(kafka: FaultyKafka) -> None:
    given = {name: value for name, value in settings(kafka, "").items() if name != "group.id"}
    admins = [LastingAdmin(given) for _ in range(CLIENTS)]
    wanted = {ClientPartition(*PARTITION): OffsetSpec.latest()}

    def look() -> list[bool]:
        known = []
        for admin in admins:
            (answer,) = ask(admin.list_offsets, wanted, seconds=1).values()
            known.append(answer.exception() is None)
        return known

    until(lambda: all(look()), 30, look)
    forget(kafka, look)
    until(lambda: all(look()), 60, look)
    for admin in admins:
        try:
            admin.list_topics(timeout=5)
        except KafkaException:
            admin.list_topics(timeout=5)
