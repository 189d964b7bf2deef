"""Another tool than streamapp sets offsets of a group whose tables have rows."""

from __future__ import annotations

import signal
import struct
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.app import App
from streamapp.cli import main
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import from_outside
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import find_committed

from ..group_offsets import commit_offsets
from ..processes import Worker, until
from .conftest import PARTITIONS, Cluster
from .counting import counting

GUARANTEES = ["at_least_once", "exactly_once_v2"]


def move(cluster: Cluster, offset: int, *partitions: int, topic: str | None = None) -> None:
    """Sets offsets without metadata, as Kafka's own tools do."""
    numbers = partitions or range(PARTITIONS)
    at = [KafkaPartition(topic or cluster.source, number, offset) for number in numbers]
    commit_offsets(cluster.bootstrap, cluster.id, at)


def run_once(cluster: Cluster, records: int, **env: str) -> None:
    cluster.feed(records)
    worker = cluster.start(**env)
    cluster.counted()
    assert worker.terminate() == 0


def refused(cluster: Cluster, table: str, **env: str) -> Worker:
    worker = cluster.start(**env)
    until(lambda: not worker.alive, 60, cluster.story)
    assert worker.wait() != 0
    assert f"the table {table} has rows, but another tool than streamapp has set offsets" in worker.text()
    return worker


def offsets(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    app = App(cluster.id, topology=counting(cluster.source, cluster.sink), config=config)
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    done = CliRunner().invoke(main, ["offsets", arguments[0], "it", *arguments[1:]])
    assert done.exit_code == 0, done.output
    return done.output


def run_behind_repartition(cluster: Cluster) -> dict[str, str]:
    """Runs an application whose table is behind a repartition topic. Returns the arguments of its start."""
    planes = f"{cluster.source}-planes"
    cluster.create(planes, partitions=2)
    for number in range(50):
        cluster.producer.produce(planes, f"airport{number % 5}", f"k{number}")
    env = {"app": "rekeyed_app", "GUARANTEE": "exactly_once_v2"}
    run_once(cluster, 200, **env)
    return env


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_offsets_that_another_tool_has_set_are_refused(
    cluster: Cluster, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset of one partition goes back. A worker counted 319 records instead of 240, without a word."""
    run_once(cluster, 220, GUARANTEE=guarantee)
    move(cluster, 0, 1)
    for folder in ("a", "elsewhere"):  # with the state on disk, and without
        worker = refused(cluster, "counts", name=folder, GUARANTEE=guarantee)
        assert f"of the group {cluster.id}: 0 of {cluster.source}-1. " in worker.text()
    assert cluster.totals()[1] == 220
    assert "set by another tool" in offsets(cluster, monkeypatch, "show")

    taken = "1 offset of"
    said = offsets(cluster, monkeypatch, "reset", "--shift-by", "0", "--keep-tables", "--execute")
    assert taken in said
    assert "set by another tool" not in offsets(cluster, monkeypatch, "show")
    again = cluster.start(GUARANTEE=guarantee)
    again.wait_for("ready: ")
    until(lambda: cluster.totals()[1] > 220, 60, cluster.story)
    assert again.terminate() == 0


def test_records_that_another_tool_passes_over_are_not_left_out_in_silence(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_once(cluster, 200)
    cluster.feed(200)
    move(cluster, 90, 0)
    refused(cluster, "counts")
    assert cluster.totals()[1] == 200


def test_tables_behind_a_repartition_topic(cluster: Cluster) -> None:
    """The sub-topology that reads the moved offsets has no table itself."""
    env = run_behind_repartition(cluster)
    move(cluster, 0)
    refused(cluster, "departures", **env)
    assert cluster.totals()[1] == 200


def test_offsets_that_are_set_before_the_first_row_are_taken(cluster: Cluster) -> None:
    """The worker commits them anew before the first record, so a later start takes all of them, also those of a
    partition without records."""
    move(cluster, 0)
    cluster.feed(100, keys=1)
    first = cluster.start()
    cluster.counted()
    first.signal(signal.SIGKILL)
    first.wait()
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    wanted = [TopicPartition(cluster.source, number) for number in range(PARTITIONS)]
    found = find_committed(config, wanted, 30.0)
    assert not any(from_outside(metadata) for _, metadata in found.values())
    second = cluster.start("elsewhere")
    cluster.feed(100, keys=1)
    cluster.counted()
    assert cluster.totals()[1] == 200
    assert second.terminate() == 0


def test_offsets_that_are_set_while_a_worker_runs(cluster: Cluster) -> None:
    """Brokers take offsets of a transaction without a member, also while the group has members. The worker looks at
    its offsets again when it gets its tasks again."""
    cluster.feed(100)
    first = cluster.start("a", GUARANTEE="exactly_once_v2")
    cluster.counted()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{cluster.id}-beside"})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    at = [KafkaPartition(cluster.source, number, 0) for number in range(PARTITIONS)]
    producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 60)
    consumer.close()
    producer.commit_transaction(60)
    first.signal(signal.SIGSTOP)
    try:
        until(lambda: not members(cluster), 60, cluster.story)
    finally:
        first.signal(signal.SIGCONT)
    until(lambda: not first.alive, 60, cluster.story)
    assert "the table counts has rows, but another tool than streamapp has set offsets" in first.text()
    assert cluster.totals()[1] == 100


def members(cluster: Cluster) -> int:
    (answer,) = cluster.admin.describe_consumer_groups([cluster.id]).values()
    return len(answer.result().members)


def test_offsets_of_one_topic_are_lost(cluster: Cluster) -> None:
    """Offsets in another topic hid the loss, and a worker counted the records of the lost topic again. A topic that is
    new to the application has no offsets either, and is read."""
    also = f"{cluster.id}-also"
    cluster.create(also)
    run_once(cluster, 100)
    cluster.feed(100, topic=also)
    cluster.produced += 100
    both = {"SOURCE": f"{cluster.source},{also}"}
    run_once(cluster, 0, **both)
    run_once(cluster, 100, **both)  # each commit of this worker notes both topics
    cluster.recreate(also)  # brokers delete the offsets with the topic
    cluster.feed(100, topic=also)
    worker = cluster.start(**both)
    until(lambda: not worker.alive, 60, cluster.story)
    assert (
        f"the table counts has rows, but the group {cluster.id} has no committed offsets in {also}."
        in worker.text()
    )
    assert f"streamapp offsets reset APPLICATION --topic {also} --to-latest" in worker.text()
    assert cluster.totals()[1] == 300


@pytest.mark.parametrize("starts", [1, 2])
def test_offsets_are_lost_before_a_repartition_topic(cluster: Cluster, starts: int) -> None:
    """The offsets of the repartition topic hid the loss. The sub-topology that reads the topic has no table itself.
    Before the second start, no offset noted the topics of other tasks."""
    env = run_behind_repartition(cluster)
    if starts == 2:
        run_once(cluster, 200, **env)
    cluster.recreate(cluster.source)
    cluster.feed(200)
    worker = cluster.start(**env)
    until(lambda: not worker.alive, 60, cluster.story)
    lost = f"the table departures has rows, but the group {cluster.id} has no committed offsets in {cluster.source}."
    assert lost in worker.text()
    assert cluster.totals()[1] == 200 * starts


def test_a_repartition_topic_that_was_deleted(cluster: Cluster) -> None:
    """A worker made the topic anew, and the records that waited in the old topic were lost without a word."""
    env = run_behind_repartition(cluster)
    run_once(cluster, 200, **env)
    names = cluster.admin.list_topics(timeout=10).topics
    (topic,) = (name for name in names if name.startswith(cluster.id) and name.endswith("-repartition"))
    for future in cluster.admin.delete_topics([topic]).values():
        future.result()
    worker = cluster.start(**env)
    until(lambda: not worker.alive, 60, cluster.story)
    assert f"the repartition topic {topic} does not exist, but the group {cluster.id}" in worker.text()


def test_offsets_of_a_new_input_that_are_set_before_its_version_starts(cluster: Cluster) -> None:
    """An operator sets the offsets of a new input, and then deploys the version that reads it. Workers refused."""
    also = f"{cluster.id}-also"
    cluster.create(also)
    run_once(cluster, 100)
    cluster.feed(100, topic=also)
    ends = [KafkaPartition(also, tp.partition, records_in(cluster, tp)) for tp in partitions(also)]
    commit_offsets(cluster.bootstrap, cluster.id, ends)
    both = {"SOURCE": f"{cluster.source},{also}"}
    cluster.feed(100, topic=also)
    cluster.produced += 100
    run_once(cluster, 0, **both)
    assert cluster.totals()[1] == 200
    move(cluster, 0, 1, topic=also)  # now the group has offsets there
    refused(cluster, "counts", **both)
    assert cluster.totals()[1] == 200


def test_rows_of_punctuators_in_partitions_without_records(cluster: Cluster) -> None:
    """Kafka Streams commits no offset of an input that never had a record, but rows of punctuators. Workers refused to
    take over."""
    cluster.feed(100, keys=1)
    first = cluster.start()
    cluster.counted()
    assert first.terminate() == 0
    empty = [tp.partition for tp in partitions(cluster.source) if not records_in(cluster, tp)]
    assert len(empty) == PARTITIONS - 1
    for number in empty:
        cluster.producer.produce(
            f"{cluster.id}-counts-changelog", struct.pack(">q", 7), b"of-a-clock", number
        )
    cluster.producer.flush()
    for folder in ("a", "elsewhere"):
        cluster.feed(10, keys=1)
        worker = cluster.start(folder)
        cluster.counted()
        assert worker.terminate() == 0


def partitions(topic: str) -> list[KafkaPartition]:
    return [KafkaPartition(topic, number) for number in range(PARTITIONS)]


def records_in(cluster: Cluster, tp: KafkaPartition) -> int:
    return int(cluster.admin.list_offsets({tp: OffsetSpec.latest()})[tp].result().offset)
