"""Agents that raise, and records that nobody can answer."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ..processes import free_port, until
from .answered import GUARANTEES, Answered
from .conftest import ANY_TIME, Cluster


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_agent_that_raises_ends_the_worker_and_its_record_comes_again(
    cluster: Cluster, guarantee: str
) -> None:
    answered = Answered(cluster)
    answered.ask(100)
    worker = answered.start(GUARANTEE=guarantee, COMMIT_MS="2000")  # most is not committed when it fails
    answered.answered(100)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(answered.input, b"poison", b"k1", partition=2)
    producer.flush()
    assert worker.wait() == 1
    assert f"record of {answered.input}-2 at offset" in worker.text().splitlines()[-1]
    assert "this record cannot be answered" in worker.text().splitlines()[-1]
    assert answered.behind() == 1
    again = answered.start(GUARANTEE=guarantee, ON_ERROR="continue")
    again.wait_for("going on without it")
    answered.ask(20)
    answered.answered(120)
    assert again.terminate() == 0
    assert answered.behind() == 0
    assert len(answered.answers()) == 120


@pytest.mark.parametrize(
    "how", ["raises in a sink", "raises in a filter", "cancelled in the agent", "raises in the agent"]
)
def test_a_record_that_fails_anywhere_becomes_a_dead_letter_and_the_next_ones_are_answered(
    cluster: Cluster, how: str
) -> None:
    """Records that failed in a sink or a filter stayed open, so nothing was committed any more; a cancelled one was
    lost, and one with headers, too. Faust also took seconds to start an agent anew that failed twice in a row."""
    answered = Answered(cluster)
    source, letters = f"{cluster.id}-failing", f"{cluster.id}-letters"
    cluster.create(source, letters, partitions=1)
    poison = [b"poison %d" % number for number in range(30)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in [b"before", *poison, b"after"]:
        producer.produce(source, value, b"k1", headers=[("from", b"x"), ("from", None)])
    producer.flush()
    port = free_port()
    worker = answered.start(
        FAILING=source, HOW=how, ON_ERROR="continue", DEAD_LETTERS=letters, WEB_PORT=str(port)
    )

    def good() -> list[bytes]:
        return [value for _, value in answered.answers(b"yielded ") if not value.startswith(b"poison")]

    until(lambda: good() == [b"before", b"after"], 60, worker.text)
    assert [value for _, value in cluster.read(letters)] == poison
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        metrics = page.read().decode()
    of_topic = f'{{application="{cluster.id}",topic="{source}"}}'
    assert f"streamapp_agent_dead_total{of_topic} {len(poison)}\n" in metrics
    assert f"streamapp_agent_skipped_total{of_topic} 0\n" in metrics
    assert worker.terminate() == 0


@pytest.mark.parametrize("hours", [3, -3])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_letters_that_are_far_from_the_clock_get_its_time(
    cluster: Cluster, guarantee: str, hours: int
) -> None:
    """Brokers refuse such a letter, and a request with such a letter as a whole. The refusal ended the worker."""
    answered = Answered(cluster)
    source, letters = f"{cluster.id}-failing", f"{cluster.id}-letters"
    cluster.create(source, partitions=1, config=ANY_TIME)
    cluster.create(letters, partitions=1, config={"message.timestamp.before.max.ms": "3600000"})
    far = int(time.time() * 1000) + hours * 3_600_000
    poison = [b"poison %d" % number for number in range(20)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number, value in enumerate([b"before", *poison, b"after"]):
        producer.produce(source, value, b"k1", timestamp=far + number if number % 3 == 1 else 0)
    producer.flush()
    env = {"FAILING": source, "HOW": "raises in the agent", "ON_ERROR": "continue", "DEAD_LETTERS": letters}
    worker = answered.start(GUARANTEE=guarantee, **env)
    until(lambda: len(answered.answers(b"yielded ")) == 2, 60, worker.text)
    assert worker.terminate() == 0
    assert [value for _, value in cluster.read(letters)] == poison
    assert sorted(value for _, value in answered.answers(b"yielded ")) == [b"after", b"before"]


@pytest.mark.parametrize(
    "how",
    [
        "exits in the agent",
        "raises in the agent with noack",
        "raises in a filter before take",
        "raises in the key of group_by",
        "raises in a task",
    ],
)
def test_a_failure_without_an_answer_ends_the_worker_and_the_record_comes_again(
    cluster: Cluster, how: str
) -> None:
    """The worker hung without its event loop; or it stood still without a word; or it dropped the record."""
    answered = Answered(cluster)
    source = f"{cluster.id}-failing"
    cluster.create(source, partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in (b"before", b"poison"):
        producer.produce(source, value, b"k1")
    producer.flush()
    worker = answered.start(FAILING=source, HOW=how, ON_ERROR="continue")
    assert worker.wait() == 1, worker.text()
    last = worker.text().splitlines()[-1]
    assert f"record of {source}-0 at offset 1" in last
    assert ("SystemExit: 3" if how.startswith("exits") else "not this record") in last
    position = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    expected = -1001 if "noack" in how else 1  # the agent acknowledges nothing
    assert position.committed([TopicPartition(source, 0)], timeout=10)[0].offset == expected
    position.close()


def test_a_service_of_the_application_that_raises_loses_no_record(cluster: Cluster) -> None:
    """The record that the service had read from ``app.stream`` was committed."""
    answered = Answered(cluster)
    source = f"{cluster.id}-failing"
    cluster.create(source, partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in (b"before", b"poison"):
        producer.produce(source, value, b"k1")
    producer.flush()
    worker = answered.start(FAILING=source, HOW="raises in a service")
    assert worker.wait() == 1, worker.text()
    assert (
        f"a service failed at the record of {source}-0 at offset 1: ValueError: not this record"
        in worker.text()
    )
    position = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    assert position.committed([TopicPartition(source, 0)], timeout=10)[0].offset == 1
    position.close()


def test_records_that_cannot_be_decoded_become_dead_letters(cluster: Cluster) -> None:
    answered = Answered(cluster)
    letters = f"{cluster.id}-letters"
    cluster.create(letters)
    env = {"VALUES": "json", "ON_ERROR": "continue", "DEAD_LETTERS": letters}
    worker = answered.start(**env)
    answered.ask(50)  # numbers are JSON
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(answered.input, b"{no json", b"k1")
    producer.flush()
    answered.ask(50)
    answered.answered(100)
    until(lambda: [value for _, value in cluster.read(letters)] == [b"{no json"], 30, worker.text)
    assert worker.terminate() == 0
    assert answered.behind() == 0
    assert len(answered.answers()) == 100


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_records_of_a_batch_that_fails_come_again(cluster: Cluster, guarantee: str) -> None:
    answered = Answered(cluster)
    batches = f"{cluster.id}-batches"
    cluster.create(batches)
    env = {"GUARANTEE": guarantee, "BATCH": batches, "ON_ERROR": "continue", "COMMIT_MS": "1000"}
    worker = answered.start(**env, POISON="raise")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    values = [b"poison" if number == 37 else b"%d" % number for number in range(60)]
    for number, value in enumerate(values):
        producer.produce(batches, value, b"k", partition=number % 4)
    producer.flush()
    assert worker.wait() == 1
    last = worker.text().splitlines()[-1]
    assert "a batch of 10 records" in last
    assert "this batch cannot be answered; a worker cannot go on without a batch" in last
    again = answered.start(**env, POISON="answer")

    def found() -> list[bytes]:
        return [value for _, value in answered.answers(b"batch ")]

    until(lambda: set(found()) == set(values), 60, again.text)
    assert again.terminate() == 0
    if guarantee == "exactly_once_v2":  # the messages of the batch were rolled back with it
        assert sorted(found()) == sorted(values)
