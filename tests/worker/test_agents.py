"""Agents keep the guarantee of their application: beside a topology, and in an application that has nothing else."""

from __future__ import annotations

import collections
import json
import re
import signal
import struct
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ..processes import Worker, free_port, until
from .answered import GUARANTEES, Answered
from .conftest import PARTITIONS, Cluster
from .test_lag import lags

ONE_WAY = [(False, "exactly_once_v2"), (True, "at_least_once")]
OTHER_WAY = [(False, "at_least_once"), (True, "exactly_once_v2")]
"""True for an application with a topology, and the guarantee. A test takes one of the two lists, because each run of a
worker takes seconds. Together, the tests have all pairs."""


@pytest.fixture(params=[False, True], ids=["agents-only", "beside-a-topology"])
def answered(cluster: Cluster, request: pytest.FixtureRequest) -> Answered:
    return Answered(cluster, request.param)


@pytest.mark.parametrize(("answered", "guarantee"), ONE_WAY, indirect=["answered"])
def test_a_clean_restart_repeats_nothing_whatever_lies_between_the_records(
    answered: Answered, guarantee: str
) -> None:
    """The first worker has the address as ``broker=``, and the second one from the environment.

    In the second one aiokafka finds no offsets of the group, as while a coordinator loads the group: agents began at the
    first record again.
    """
    worker = answered.start(GUARANTEE=guarantee, ADDRESS="broker")
    answered.ask(600)
    answered.abort(7)
    answered.ask(100)
    answered.answered(700)
    assert worker.terminate() == 0
    assert re.search(rf"agents read {answered.cluster.id}-\w+ \({PARTITIONS} partitions\)", worker.text())
    assert answered.behind() == 0
    bootstrap = answered.cluster.bootstrap
    again = answered.start(
        GUARANTEE=guarantee,
        ADDRESS="environment",
        STREAMAPP_BOOTSTRAP_SERVERS=bootstrap,
        AIOKAFKA_FINDS_NO_OFFSETS="yes",
    )
    answered.ask(50)
    answered.answered(750)
    assert again.terminate() == 0
    answers = answered.answers()
    assert len(answers) == 750, answered.story()
    assert len(answered.answers(b"yielded ")) == 750
    if not answered.topology:
        assert sorted(value for _, value in answers) == sorted(answered.asked)


@pytest.mark.parametrize(("answered", "guarantee"), OTHER_WAY, indirect=["answered"])
def test_kafka_s_tools_see_no_lag_behind_markers_and_idle_agents_commit_nothing(
    answered: Answered, guarantee: str
) -> None:
    """The offset of agents used to stay in front of the marker behind the last record.

    Commands, monitors and autoscalers saw a lag for ever, although all records were done.
    """
    cluster, found = answered.cluster, dict[str, int]()

    def settled() -> bool:
        found.clear()
        found.update(lags(cluster))
        mine = [lag for partition, lag in found.items() if partition.startswith(answered.input)]
        return len(mine) == PARTITIONS and not any(found.values())

    def settles() -> None:
        until(settled, 60, lambda: f"{found}\n{answered.story()}")

    worker = answered.start(GUARANTEE=guarantee)
    answered.ask(200, keys=40)
    answered.answered(200)
    settles()
    if not answered.topology:
        answered.abort(7)
        settles()
    before = commits(cluster)
    time.sleep(3)  # thirty commit intervals
    assert commits(cluster) == before
    assert worker.terminate() == 0
    if not answered.topology:
        answered.abort(7)
    worker = answered.start(GUARANTEE=guarantee)
    settles()
    answered.ask(20)
    answered.answered(220)
    settles()
    assert worker.terminate() == 0
    assert len(answered.answers()) == 220, answered.story()


def commits(cluster: Cluster) -> int:
    """The end of the log of all committed offsets, which every commit moves."""
    partitions = (
        cluster.admin.list_topics("__consumer_offsets", timeout=30).topics["__consumer_offsets"].partitions
    )
    ends = cluster.admin.list_offsets(
        {TopicPartition("__consumer_offsets", number): OffsetSpec.latest() for number in partitions}
    )
    return sum(end.result(30).offset for end in ends.values())


def numbers(rows: list[tuple[bytes | None, bytes]]) -> dict[bytes | None, list[int]]:
    """The counts of the table for each key, in the order of the answers."""
    found: dict[bytes | None, list[int]] = collections.defaultdict(list)
    for key, value in rows:
        found[key].append(int(value.rpartition(b"=")[2]))
    return found


def test_kill_9_repeats_nothing_with_exactly_once(answered: Answered) -> None:
    env = {"TABLE": "yes", "DELAY": "0.005"}
    answered.ask(600)
    first = answered.start(**env)
    answered.answered(150)
    first.signal(signal.SIGKILL)
    second = answered.start(**env)
    answered.answered(350)
    second.signal(signal.SIGKILL)
    third = answered.start(**env)
    third.wait_for("Worker ready")
    answered.answered(600)
    assert third.terminate() == 0
    assert len(answered.answers(b"yielded ")) == 600, answered.story()
    counted = numbers(answered.answers())
    assert {key: found for key, found in counted.items() if found != list(range(1, len(found) + 1))} == {}
    assert sum(map(len, counted.values())) == 600


def test_kill_9_in_the_middle_of_a_commit_repeats_nothing(cluster: Cluster) -> None:
    answered = Answered(cluster)
    env = {"TABLE": "yes", "DELAY": "0.005"}
    for step in ("agents-sent", "agents-offsets-sent", "agents-committed"):
        answered.ask(300)
        killed = answered.start(**env, STREAMAPP_FAILPOINT=f"{step}:kill:2")
        assert killed.wait() == -signal.SIGKILL, step
    last = answered.start(**env)
    answered.answered(900)
    assert last.terminate() == 0
    counted = numbers(answered.answers())
    assert {key: found for key, found in counted.items() if found != list(range(1, len(found) + 1))} == {}
    assert sum(map(len, counted.values())) == 900


def test_kill_9_repeats_only_what_was_not_committed_with_at_least_once(answered: Answered) -> None:
    answered.ask(600)
    env = {"GUARANTEE": "at_least_once", "DELAY": "0.002"}
    first = answered.start(**env)
    answered.answered(200)
    first.signal(signal.SIGKILL)
    first.wait()
    before, left = len(answered.answers()), answered.behind()
    second = answered.start(**env)
    answered.answered(before + left)
    assert second.terminate() == 0
    assert len(answered.answers()) == before + left
    assert left < 600
    if not answered.topology:
        assert {value for _, value in answered.answers()} == set(answered.asked)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_agents_that_begin_at_the_end_commit_where_they_begin(cluster: Cluster, guarantee: str) -> None:
    """A worker whose logs were empty committed nothing: the next one began at the new end, and passed over records."""
    answered = Answered(cluster)
    env = {"GUARANTEE": guarantee, "RESET": "latest"}
    first = answered.start(**env)
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    partitions = [TopicPartition(answered.input, number) for number in range(PARTITIONS)]
    until(
        lambda: all(found.offset >= 0 for found in group.committed(partitions, timeout=10)),
        40,
        answered.story,
    )
    group.close()
    first.signal(signal.SIGKILL)
    first.wait()
    answered.ask(30)
    second = answered.start(**env)
    answered.answered(30)
    assert second.terminate() == 0
    assert sorted(value for _, value in answered.answers()) == sorted(answered.asked)


def test_a_worker_that_hangs_and_is_replaced_commits_nothing_any_more(cluster: Cluster) -> None:
    answered = Answered(cluster)
    env = {"TABLE": "yes", "DELAY": "0.005", "COMMIT_MS": "1000"}
    first = answered.start(**env)
    answered.ask(800)
    answered.answered(100)
    first.signal(signal.SIGSTOP)
    answered.start("b", **env)
    answered.answered(800)
    first.signal(signal.SIGCONT)
    answered.ask(100)
    answered.answered(900)
    time.sleep(2.0)  # for what the first might still do
    counted = numbers(answered.answers())
    assert {key: found for key, found in counted.items() if found != list(range(1, len(found) + 1))} == {}, (
        answered.story()
    )
    assert sum(map(len, counted.values())) == 900


def test_the_one_whose_name_was_taken_ends(cluster: Cluster) -> None:
    """Two workers with the same group_instance_id drove each other out of the group again and again."""
    answered = Answered(cluster)
    first = answered.start(TABLE="yes", INSTANCE="same")
    answered.ask(10)
    answered.answered(10)
    second = answered.start("b", TABLE="yes", INSTANCE="same")
    assert first.wait() == 1
    assert "another worker has joined the group with group_instance_id='same'" in first.text()
    answered.ask(10)
    answered.answered(20)
    assert second.terminate() == 0


def test_another_address_of_a_named_worker_is_told_to_the_others(cluster: Cluster) -> None:
    """The broker gave the worker its assignment from before the restart, and the worker ended at the old address."""
    answered = Answered(cluster)

    def start(name: str) -> tuple[Worker, int]:
        port = free_port()
        return answered.start(name, TABLE="yes", INSTANCE=name, SESSION_MS="45000", WEB_PORT=str(port)), port

    (first, _), (second, other_port) = start("a"), start("b")
    answered.ask(30)
    answered.answered(30)

    def owners(port: int) -> set[str]:
        status, found = asked_over_http(port, "/router/seen/")
        return set(found) if status == 200 else set()

    until(lambda: len(owners(other_port)) == 2, 60, answered.story)
    assert first.terminate() == 0
    first, new_port = start("a")
    first.wait_for("Worker ready")
    wanted = {f"{new_port}", f"{other_port}"}
    until(
        lambda: {owner.rpartition(":")[2].strip("/") for owner in owners(other_port)} == wanted,
        60,
        answered.story,
    )
    answered.ask(30)
    answered.answered(60)
    for worker in (first, second):
        assert worker.terminate() == 0


def test_workers_that_come_and_go_repeat_nothing(cluster: Cluster) -> None:
    answered = Answered(cluster)
    env = {"TABLE": "yes", "DELAY": "0.003", "CONCURRENCY": "3"}
    first = answered.start(**env)
    answered.ask(1_000)
    answered.answered(100)
    second = answered.start("b", **env)
    second.wait_for("Worker ready")
    answered.ask(1_000)
    answered.answered(1_500)
    assert first.terminate() == 0
    answered.answered(2_000)
    assert second.terminate() == 0
    counted = numbers(answered.answers())
    assert {
        key: found for key, found in counted.items() if sorted(found) != list(range(1, len(found) + 1))
    } == {}
    assert sum(map(len, counted.values())) == 2_000


@pytest.mark.parametrize(("answered", "guarantee"), ONE_WAY, indirect=["answered"])
def test_a_worker_that_a_record_ends_leaves_its_group_in_order(answered: Answered, guarantee: str) -> None:
    """The group's thread used to end with the crash, before the worker: the log had errors of lost connections, and a
    traceback with "Event loop is closed" in front of the reason."""
    worker = answered.start(GUARANTEE=guarantee)
    answered.ask(40)
    answered.answered(40)
    producer = Producer({"bootstrap.servers": answered.cluster.bootstrap, "enable.idempotence": True})
    producer.produce(answered.input, b"poison", b"k1", partition=1)
    producer.flush()
    assert worker.wait() == 1
    lines = worker.text().splitlines()
    assert "this record cannot be answered" in lines[-1]
    errors = [line for line in lines if "[ERROR]" in line and "Crashed reason=ValueError" not in line]
    assert (errors, worker.text().count("Event loop is closed")) == ([], 0)
    assert answered.behind() == 1


@pytest.mark.parametrize("guarantee", ["exactly_once_v2"])
def test_the_messages_of_batches_are_written_once_whatever_is_killed(
    cluster: Cluster, guarantee: str
) -> None:
    answered = Answered(cluster)
    batches = f"{cluster.id}-batches"
    cluster.create(batches)
    env = {"GUARANTEE": "exactly_once_v2", "BATCH": batches, "POISON": "answer", "COMMIT_MS": "300"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    worker = answered.start(**env)
    for number in range(600):
        producer.produce(batches, b"%d" % number, b"k", partition=number % 4)
        if number % 100 == 50:
            producer.flush()
            until(lambda: len(answered.answers(b"batch ")) > number - 90, 60, worker.text)  # noqa: B023
            worker.signal(signal.SIGKILL)
            worker.wait()
            worker = answered.start(**env)
    producer.flush()
    until(lambda: len(answered.answers(b"batch ")) >= 600, 60, worker.text)
    assert worker.terminate() == 0
    assert sorted(int(value) for _, value in answered.answers(b"batch ")) == list(range(600))


def test_rows_that_agents_change_in_batches_are_right_after_kill_9(cluster: Cluster) -> None:
    """All changes of a batch went to the partition of its last record, so the rows of the other keys began anew."""
    answered = Answered(cluster)
    texts = f"{cluster.id}-texts"
    cluster.create(texts)
    env = {"TABLE": "yes", "COUNTED_BATCH": texts}
    worker = answered.start(**env)
    for round in range(1, 4):
        for number in range(100):
            cluster.producer.produce(texts, b"k%d-" % (number % 10), b"k%d" % (number % 10))
        cluster.producer.flush()
        until(lambda: len(answered.answers(b"counted ")) >= 100 * round, 60, answered.story)  # noqa: B023
        worker.signal(signal.SIGKILL)
        worker.wait()
        worker = answered.start(**env)
    found: dict[bytes | None, list[int]] = collections.defaultdict(list)
    for key, value in answered.answers(b"counted "):
        found[key].append(int(value))
    assert found == {b"k%d" % key: list(range(1, 31)) for key in range(10)}, answered.story()


def test_the_topology_counts_on_beside_its_agents(cluster: Cluster) -> None:
    answered = Answered(cluster, topology=True)
    worker = answered.start()
    answered.ask(200)
    answered.answered(200)
    assert worker.terminate() == 0
    assert cluster.totals() == (200, 200)
    last = dict(answered.answers())
    assert sum(struct.unpack(">q", value)[0] for value in last.values()) == 200


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_agent_waits_for_the_answers_of_another_agent(cluster: Cluster, guarantee: str) -> None:
    """The requests are not part of the transaction, which would end only after the answers."""
    answered = Answered(cluster)
    echo, replies = f"{cluster.id}-echo", f"{cluster.id}-replies"
    cluster.create(echo, replies)
    answered.start(GUARANTEE=guarantee, ECHO=echo, REPLIES=replies)
    answered.ask(10)
    expected = {b"%s%s+%s" % (v, v, v) for v in answered.asked}
    # The topic of the replies costs a rebalance. With at_least_once, some records are answered twice.
    until(lambda: {value for _, value in answered.answers()} >= expected, 180, answered.story)
    values = [value for _, value in answered.answers()]
    assert sorted(values if guarantee == "exactly_once_v2" else set(values)) == sorted(expected)


def asked_over_http(port: int, path: str) -> tuple[int, Any]:
    """Status and JSON of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_each_worker_answers_for_the_rows_of_all_workers(answered: Answered) -> None:
    """The records have raw keys, and the table writes its keys as JSON, so the two bytes are in different partitions."""
    keys, ports = 24, [free_port(), free_port()]
    workers = [
        answered.start(name, TABLE="yes", WEB_PORT=str(port)) for name, port in zip("ab", ports, strict=True)
    ]

    def shared() -> bool:
        owners = asked_over_http(ports[0], "/router/seen/")[1]
        return len(owners) == 2 and all(
            f"{answered.cluster.id}-seen-changelog" in each for each in owners.values()
        )

    for worker in workers:
        worker.wait_for("Worker ready")
    until(shared, 60, answered.story)
    answered.ask(3 * keys, keys)
    answered.answered(3 * keys)

    def rows(port: int) -> list[tuple[int, Any]]:
        return [asked_over_http(port, f"/table/seen/k{number}/") for number in range(keys)]

    counts = [int(value.rpartition(b"=")[2]) for _, value in answered.answers()]
    assert max(counts) >= 3
    answers = [row for port in ports for row in rows(port)]
    until(lambda: all(status == 200 for port in ports for status, _ in rows(port)), 60, lambda: f"{answers}")
    assert all(value >= 3 for port in ports for _, value in rows(port))
    assert {asked_over_http(port, "/table/seen/nobody/")[0] for port in ports} == {404}
    for number in range(keys):
        first, second = (asked_over_http(port, f"/router/seen/k{number}/") for port in ports)
        assert first == second
    for worker in workers:
        assert worker.terminate() == 0
