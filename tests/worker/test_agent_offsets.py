"""Agents whose offsets are lost, moved by another tool, or those of another topic."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec

from streamapp import StreamsConfig
from streamapp.broker.requests import NO_TIMEOUT
from streamapp.cli import main
from streamapp.engine.metadata import CHOSEN, from_outside, metadata_of, topic_ids_in
from streamapp.records import TopicPartition as Partition
from streamapp.runners.worker.clients import find_committed

from ..group_offsets import commit_offsets
from ..processes import free_port, until
from .answered import GUARANTEES, Answered
from .conftest import PARTITIONS, Cluster


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
def test_a_changelog_of_agents_that_was_created_anew_ends_the_worker(
    cluster: Cluster, guarantee: str
) -> None:
    """The agents silently went on with an empty table."""
    answered = Answered(cluster)
    answered.ask(20)
    first = answered.start(GUARANTEE=guarantee, TABLE="yes")
    answered.answered(20)
    assert first.terminate() == 0
    changelog = f"{cluster.id}-seen-changelog"
    cluster.recreate(changelog)
    second = answered.start("elsewhere", GUARANTEE=guarantee, TABLE="yes")
    second.wait_for(f"the changelog {changelog} was deleted and created anew since agents of the group")
    assert second.wait() != 0
    kept = ["offsets", "reset", "--group", cluster.id, "--shift-by", "0", "--keep-tables", "--execute"]
    moved = CliRunner().invoke(main, kept, env={"STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap})
    assert moved.exit_code == 0, moved.output
    third = answered.start("elsewhere", GUARANTEE=guarantee, TABLE="yes")
    answered.ask(10)
    answered.answered(30)
    assert third.terminate() == 0


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
