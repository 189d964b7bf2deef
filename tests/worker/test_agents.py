"""Agents keep the guarantee of their application: beside a topology, and in an application that has nothing else."""

from __future__ import annotations

import collections
import itertools
import json
import signal
import struct
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec

from streamapp import StreamsConfig
from streamapp.broker.requests import NO_TIMEOUT
from streamapp.cli import main
from streamapp.engine.metadata import CHOSEN, from_outside, metadata_of, topic_ids_in
from streamapp.records import TopicPartition as Partition
from streamapp.runners.worker.clients import find_committed

from ..group_offsets import commit_offsets
from ..processes import Worker, free_port, until
from .conftest import ANY_TIME, PARTITIONS, Cluster
from .test_lag import lags

GUARANTEES = ("at_least_once", "exactly_once_v2")


@dataclass
class Answered:
    """An application with an agent, and the questions to the agent."""

    cluster: Cluster
    topology: bool = False
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.input = self.cluster.sink if self.topology else f"{self.cluster.id}-asked"
        self.output = f"{self.cluster.id}-answers"
        self.cluster.create(self.output, *([] if self.topology else [self.input]))
        self.numbers = itertools.count()

    def start(self, name: str = "a", **env: str) -> Worker:
        topology = {"TOPOLOGY": "yes"} if self.topology else {}
        more = {"AGENT_IN": self.input, "AGENT_OUT": self.output, **topology, **env}
        return self.cluster.start(name, app="agents_app", **more)

    def ask(self, count: int, keys: int = 8, per_transaction: int = 10) -> None:
        """Writes records in many small transactions, whose markers leave gaps between the offsets."""
        if self.topology:
            self.cluster.feed(count, keys)
            return
        producer = self._producer()
        for start in range(0, count, per_transaction):
            producer.begin_transaction()
            for number in range(start, min(start + per_transaction, count)):
                value = b"%d" % next(self.numbers)
                self.asked.append(value)
                producer.produce(self.input, value, b"k%d" % (number % keys))
            producer.commit_transaction()

    def abort(self, count: int) -> None:
        """Writes records in a transaction that is rolled back."""
        producer = self._producer()
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(self.input, b"aborted", b"k1")
        producer.flush()
        producer.abort_transaction()

    def _producer(self) -> Producer:
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "transactional.id": f"{self.cluster.id}-asks",
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
        }
        producer = Producer(settings)
        producer.init_transactions()
        return producer

    def answers(self, kind: bytes = b"sent ") -> list[tuple[bytes | None, bytes]]:
        rows = self.cluster.read(self.output)
        return [(key, value.removeprefix(kind)) for key, value in rows if value and value.startswith(kind)]

    def answered(self, count: int, timeout: float = 60.0) -> None:
        until(lambda: len(self.answers()) >= count, timeout, self.story)

    def story(self) -> str:
        logs = "\n".join(f"--- {worker.log.name}\n{worker.text()[-4000:]}" for worker in self.cluster.workers)
        return f"{len(self.answers())} answers\n{logs}"

    def behind(self) -> int:
        """The number of offsets by which the group is behind the last records that can be read."""
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": self.cluster.id,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,  # this one only looks
        }
        consumer = Consumer(settings)
        partitions = [TopicPartition(self.input, number) for number in range(PARTITIONS)]
        lag = 0
        for found in consumer.committed(partitions, timeout=10):
            consumer.assign([TopicPartition(self.input, found.partition, max(found.offset, 0))])
            while (message := consumer.poll(10.0)) is not None and message.error() is None:
                lag += 1
        consumer.close()
        return lag


@pytest.fixture(params=[False, True], ids=["agents-only", "beside-a-topology"])
def answered(cluster: Cluster, request: pytest.FixtureRequest) -> Answered:
    return Answered(cluster, request.param)


@pytest.mark.parametrize("guarantee", GUARANTEES)
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


@pytest.mark.parametrize("guarantee", GUARANTEES)
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
    answered.answered(500)
    assert first.terminate() == 0
    answered.answered(1_000)
    assert second.terminate() == 0
    counted = numbers(answered.answers())
    assert {
        key: found for key, found in counted.items() if sorted(found) != list(range(1, len(found) + 1))
    } == {}
    assert sum(map(len, counted.values())) == 1_000


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


@pytest.mark.parametrize("guarantee", GUARANTEES)
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


@pytest.mark.parametrize(
    "how", ["raises in a sink", "raises in a filter", "cancelled in the agent", "raises in the agent"]
)
def test_a_record_that_fails_anywhere_becomes_a_dead_letter_and_the_next_ones_are_answered(
    cluster: Cluster, how: str
) -> None:
    """Records that failed in a sink or a filter stayed open, so nothing was committed any more; a cancelled one was
    lost. Faust also took seconds to start an agent anew that failed twice in a row."""
    answered = Answered(cluster)
    source, letters = f"{cluster.id}-failing", f"{cluster.id}-letters"
    cluster.create(source, letters, partitions=1)
    poison = [b"poison %d" % number for number in range(30)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in [b"before", *poison, b"after"]:
        producer.produce(source, value, b"k1")
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


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_offsets_of_agents_in_an_earlier_topic_end_the_worker(cluster: Cluster, guarantee: str) -> None:
    """The offsets named no topic, so agents passed over the first records of a topic that was created anew."""
    answered = Answered(cluster)
    answered.ask(20)
    first = answered.start(GUARANTEE=guarantee)
    answered.answered(20)
    assert first.terminate() == 0
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    wanted = [Partition(answered.input, number) for number in range(PARTITIONS)]
    found = {tp: each for tp, each in find_committed(config, wanted, 30.0).items() if each[0] >= 0}
    (topic_id,) = {id for _, metadata in found.values() for id in topic_ids_in(metadata)}
    earlier = metadata_of("B" * len(topic_id))
    moved = [TopicPartition(*tp, offset, earlier) for tp, (offset, _) in found.items()]
    commit_offsets(cluster.bootstrap, cluster.id, moved)
    second = answered.start(GUARANTEE=guarantee)
    second.wait_for(f"the topic {answered.input} was deleted and created anew since the group")
    assert second.wait() != 0


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_topic_that_gets_partitions_ends_the_worker_of_a_table_with_the_remedy(
    cluster: Cluster, guarantee: str
) -> None:
    """The worker said only that the changelog does not take a change: unknown partition."""
    answered = Answered(cluster)
    answered.ask(20)
    worker = answered.start(GUARANTEE=guarantee, TABLE="yes", METADATA_MS="2000")
    answered.answered(20)
    (grown,) = cluster.admin.create_partitions([NewPartitions(answered.input, PARTITIONS + 2)]).values()
    grown.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})

    def write() -> bool:
        for partition in range(PARTITIONS, PARTITIONS + 2):
            producer.produce(answered.input, b"new", b"k1", partition)
        producer.flush()
        return not worker.alive

    until(write, 120, worker.text)
    said = worker.text()
    assert f"{cluster.id}-seen-changelog" in said
    assert "give the table as many partitions as the topic" in said
    assert "run `streamapp reset`" in said


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_tables_of_agents_whose_offsets_are_lost(cluster: Cluster, guarantee: str) -> None:
    """After the offsets of a stopped group had expired, agents counted all records a second time, without a word."""
    answered = Answered(cluster)
    answered.ask(20)
    first = answered.start(GUARANTEE=guarantee, TABLE="yes")
    first.wait_for("ready")
    answered.answered(20)
    assert first.terminate() == 0
    (deleted,) = cluster.admin.delete_consumer_groups([cluster.id], request_timeout=NO_TIMEOUT).values()
    deleted.result()
    second = answered.start("elsewhere", GUARANTEE=guarantee, TABLE="yes")
    second.wait_for(
        f"the table seen has rows, but the group {cluster.id} has no committed offsets in {answered.input}"
    )
    if guarantee == "at_least_once":
        answered.answered(40)
        return
    assert second.wait() != 0
    assert len(answered.answers()) == 20
    command = [
        "offsets",
        "reset",
        "--group",
        cluster.id,
        "--topic",
        answered.input,
        "--to-latest",
        "--execute",
    ]
    moved = CliRunner().invoke(main, command, env={"STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap})
    assert moved.exit_code == 0, moved.output
    third = answered.start("elsewhere", GUARANTEE=guarantee, TABLE="yes")
    answered.ask(10)
    answered.answered(30)
    assert third.terminate() == 0


@pytest.mark.parametrize("other", ["a topology with offsets", "a channel in memory"])
def test_offsets_of_agents_that_are_lost_beside_others(cluster: Cluster, other: str) -> None:
    """Offsets of the topology hid the loss, also those that the operator had chosen as the error said. An agent that
    reads a channel in memory hid the loss, too. Agents then counted all records a second time."""
    answered = Answered(cluster, other == "a topology with offsets")
    env = {"TABLE": "yes"} | ({} if answered.topology else {"CHANNEL": "yes"})
    answered.ask(20)
    first = answered.start(**env)
    first.wait_for("ready")
    answered.answered(20)
    assert first.terminate() == 0
    (deleted,) = cluster.admin.delete_consumer_groups([cluster.id], request_timeout=NO_TIMEOUT).values()
    deleted.result()
    if answered.topology:
        ends = cluster.admin.list_offsets(
            {TopicPartition(cluster.source, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        )
        chosen = metadata_of(None, CHOSEN)  # as `streamapp offsets reset` writes
        moved = [
            TopicPartition(tp.topic, tp.partition, end.result().offset, chosen) for tp, end in ends.items()
        ]
        commit_offsets(cluster.bootstrap, cluster.id, moved)
    second = answered.start("elsewhere", **env)
    second.wait_for(
        f"the table seen has rows, but the group {cluster.id} has no committed offsets in {answered.input}"
    )
    assert second.wait() != 0
    assert len(answered.answers()) == 20


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_offsets_that_are_lost_in_one_of_several_topics(cluster: Cluster, guarantee: str) -> None:
    """Offsets in the other topic hid the loss, and agents counted the records of the topic a second time. A topic that
    is new to the application has no offsets either, and is read."""
    answered = Answered(cluster)
    also = f"{cluster.id}-also"
    cluster.create(also)
    env = {"GUARANTEE": guarantee, "TABLE": "yes"}

    def more() -> int:
        return len(answered.answers(b"more "))

    answered.ask(20)
    first = answered.start(**env)
    answered.answered(20)
    assert first.terminate() == 0
    cluster.feed(20, topic=also)
    second = answered.start(ALSO=also, **env)
    until(lambda: more() == 20, 60, answered.story)
    assert second.terminate() == 0
    cluster.recreate(also)  # brokers delete the offsets with the topic
    cluster.feed(20, topic=also)
    third = answered.start("elsewhere", ALSO=also, **env)
    third.wait_for(f"the table seen has rows, but the group {cluster.id} has no committed offsets in {also}.")
    if guarantee == "at_least_once":
        until(lambda: more() == 40, 60, answered.story)
        return
    assert third.wait() != 0
    assert more() == 20


def without_metadata(cluster: Cluster, topic: str, offset: int, *numbers: int) -> None:
    """Sets offsets as Kafka's own tools do."""
    at = [TopicPartition(topic, number, offset) for number in numbers or range(PARTITIONS)]
    commit_offsets(cluster.bootstrap, cluster.id, at)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("moved", ["all", "one", "all, one taken"])
def test_offsets_of_agents_that_another_tool_has_moved(cluster: Cluster, guarantee: str, moved: str) -> None:
    """Agents with a table counted the records again, without a word, as if they took over a group of plain Faust.
    Another worker, without a row in its partition, may have committed the offset there anew a moment ago."""
    answered = Answered(cluster)
    env = {"GUARANTEE": guarantee, "TABLE": "yes"}
    answered.ask(40)
    first = answered.start(**env)
    answered.answered(40)
    assert first.terminate() == 0
    numbers = [1] if moved == "one" else range(PARTITIONS)
    without_metadata(cluster, answered.input, 0, *numbers)
    if moved == "all, one taken":
        text = metadata_of(cluster.topic_id(answered.input))
        taken_over = TopicPartition(answered.input, 0, 0, metadata=text)
        commit_offsets(cluster.bootstrap, cluster.id, [taken_over])
    second = answered.start("elsewhere", **env)
    second.wait_for(
        f"another tool than streamapp has set offsets of the group {cluster.id}: 0 of {answered.input}-"
    )
    if moved != "one" and guarantee == "at_least_once":
        answered.answered(80)  # a worker that was killed before its first commit also leaves rows
        return
    assert second.wait() != 0
    assert len(answered.answers()) == 40
    command = ["offsets", "reset", "--group", cluster.id, "--shift-by", "0", "--keep-tables", "--execute"]
    taken = CliRunner().invoke(main, command, env={"STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap})
    assert taken.exit_code == 0, taken.output
    third = answered.start("elsewhere", **env)
    until(lambda: len(answered.answers()) > 40, 60, answered.story)
    assert third.terminate() == 0


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_agents_take_over_a_group_of_plain_faust(cluster: Cluster, guarantee: str) -> None:
    """Plain Faust writes no metadata, as the tools of Kafka. The first worker commits its offsets anew, also those of
    partitions without further records. Afterwards, offsets without metadata are those of another tool."""
    answered = Answered(cluster)
    env = {"GUARANTEE": guarantee, "TABLE": "yes"}
    answered.ask(40)
    changelog = f"{cluster.id}-seen-changelog"
    cluster.create(changelog, config={"cleanup.policy": "compact"})
    for key in range(8):
        cluster.producer.produce(changelog, b"5", json.dumps(f"k{key}").encode(), key % PARTITIONS)
    cluster.producer.flush()
    ends = [
        TopicPartition(answered.input, number, end.result().offset)
        for number in range(PARTITIONS)
        for end in cluster.admin.list_offsets(
            {TopicPartition(answered.input, number): OffsetSpec.latest()}
        ).values()
    ]
    commit_offsets(cluster.bootstrap, cluster.id, ends)
    answered.ask(1, keys=1)
    first = answered.start(**env)
    answered.answered(1)
    assert first.terminate() == 0
    assert len(answered.answers()) == 1
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    wanted = [Partition(answered.input, number) for number in range(PARTITIONS)]
    assert not any(from_outside(text) for _, text in find_committed(config, wanted, 30.0).values())
    without_metadata(cluster, answered.input, 0, 1)
    second = answered.start("elsewhere", **env)
    second.wait_for(
        f"another tool than streamapp has set offsets of the group {cluster.id}: 0 of {answered.input}-1. "
    )
    assert second.wait() != 0
    assert len(answered.answers()) == 1


def test_records_that_an_agent_with_an_old_name_has_left_are_told(cluster: Cluster) -> None:
    """The name of an agent is in the name of its topic of ``group_by``, so the records of the old topic were lost."""
    answered = Answered(cluster)
    left = f"old-name-{answered.input}-user-repartition"
    cluster.create(left)
    cluster.producer.produce(left, b"first", b"k", 1)
    cluster.producer.produce(left, b"second", b"k", 1)
    cluster.producer.flush()
    commit_offsets(cluster.bootstrap, cluster.id, [TopicPartition(left, 1, 1)])
    answered.ask(20)
    worker = answered.start()
    worker.wait_for(
        f"the topic {left} of group_by has records of an earlier version, from offset 1 of partition 1 on"
    )
    answered.answered(20)
    assert worker.terminate() == 0


def test_rows_of_an_agent_that_reads_a_channel_need_no_offsets(cluster: Cluster) -> None:
    answered = Answered(cluster)
    for _ in range(2):
        worker = answered.start(TABLE="yes", CHANNEL="yes")
        worker.wait_for("noted in the table")
        assert worker.terminate() == 0


def test_records_that_were_gone_before_agents_read_them_are_told(cluster: Cluster) -> None:
    """aiokafka moves the position by itself, and neither a log line nor a metric told that records were missing."""
    answered = Answered(cluster)
    answered.ask(20, keys=1)
    first = answered.start()
    answered.answered(20)
    assert first.terminate() == 0
    answered.ask(20, keys=1)
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    wanted = [Partition(answered.input, number) for number in range(PARTITIONS)]
    ((tp, at),) = [(tp, at) for tp, (at, _) in find_committed(config, wanted, 30.0).items() if at >= 0]
    for future in cluster.admin.delete_records([TopicPartition(*tp, at + 5)]).values():
        future.result()
    port = free_port()
    second = answered.start(WEB_PORT=str(port))
    answered.answered(35)
    second.wait_for(f"{tp}: records {at} to {at + 4} are gone (retention)")

    def got(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
            return str(page.read().decode())

    labels = f'{{application="{cluster.id}",topic="{tp.topic}",partition="{tp.partition}"}}'
    assert f"streamapp_removed_records_total{labels} 5\n" in got("/metrics")
    (found,) = [each for each in json.loads(got("/status"))["findings"] if each["subject"] == str(tp)]
    assert f"offsets {at} to {at + 4}" in found["message"]
    assert second.terminate() == 0


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
    answered.answered(10, timeout=180)
    assert {value for _, value in answered.answers()} == {b"%s%s+%s" % (v, v, v) for v in answered.asked}


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
