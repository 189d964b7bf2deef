"""``streamapp offsets`` beside Kafka's own tool: whatever one does to a group, the other sees."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp import App, StreamsConfig
from streamapp.engine.metadata import BACKFILL
from streamapp.records import TopicPartition

from ..group_offsets import commit_offsets
from ..processes import until
from ..worker.conftest import Cluster
from ..worker.counting import counting
from ..worker.rekeyed_app import departures
from . import kafka_tools
from .conftest import BEGAN_MS, commit, shown

Run = Callable[..., Result]


@pytest.fixture
def group() -> str:
    return f"plain-{uuid.uuid4().hex[:8]}"


def offsets(run: Run, *subject: str) -> dict[TopicPartition, int | None]:
    return {TopicPartition(*tp): each["committed"] for tp, each in shown(run, *subject).items()}


def test_a_group_is_shown_as_kafkas_tool_shows_it(cluster: Cluster, run: Run, topic: str, group: str) -> None:
    commit(cluster.bootstrap, group, topic, 12, None)
    ours = shown(run, "--group", group)
    theirs = kafka_tools.described(cluster.bootstrap, group)
    assert theirs == {TopicPartition(topic, 0): ("12", "30", "18")}
    assert {
        tp: (str(each["committed"]), str(each["log_end"]), str(each["lag"])) for tp, each in ours.items()
    } == {
        (topic, 0): ("12", "30", "18"),
        (topic, 1): ("None", "20", "None"),
    }
    assert ours[topic, 0]["log_start"] == 5
    assert f"{18 + 20:>15}  in all" in run("offsets", "lag", "--group", group).stdout
    run("offsets", "lag", "--group", group, "--max", "37", code=1)
    run("offsets", "lag", "--group", group, "--max", "38")
    said = run("offsets", "show", "--group", f"{group}-of-another-name", code=1)
    assert f"there is no group {group}-of-another-name: check the name" in said.output


TIME = datetime.fromtimestamp(BEGAN_MS / 1000 + 9.5, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
WAYS = {
    "earliest": (("--to-earliest",), ("--to-earliest",), (5, 0)),
    "latest": (("--to-latest",), ("--to-latest",), (30, 20)),
    "time": (("--to-time", TIME), ("--to-datetime", TIME + "Z"), (10, 10)),
    "time-after-all": (("--to-time", "2100-01-01"), ("--to-datetime", "2100-01-01T00:00:00.000Z"), (30, 20)),
    "shift": (("--shift-by", "3"), ("--shift-by", "3"), (15, 10)),
    "shift-beyond": (("--shift-by", "-100"), ("--shift-by", "-100"), (5, 0)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_reset_goes_where_kafkas_tool_goes(
    cluster: Cluster, run: Run, topic: str, group: str, way: str
) -> None:
    ours, theirs, expected = WAYS[way]
    twin = f"{group}-twin"
    for name in (group, twin):
        commit(cluster.bootstrap, name, topic, 12, 7)
    dry = run("offsets", "reset", "--group", group, *ours)
    assert "Nothing was committed; --execute does it." in dry.stdout
    assert offsets(run, "--group", group) == {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 7}
    run("offsets", "reset", "--group", group, *ours, "--execute")
    tool = kafka_tools.reset(cluster.bootstrap, twin, "--all-topics", *theirs)
    assert offsets(run, "--group", group) == offsets(run, "--group", twin) == tool
    assert tuple(tool[tp] for tp in sorted(tool)) == expected
    assert (
        "is there already"
        in run(
            "offsets", "reset", "--group", twin, *(() if "shift" in way else ours) or ("--shift-by", "0")
        ).stdout
    )


def test_files_go_both_ways(cluster: Cluster, run: Run, topic: str, group: str, tmp_path: Path) -> None:
    for name in (group, f"{group}-2", f"{group}-3"):
        commit(cluster.bootstrap, name, topic, 12, 7)
    file = tmp_path / "offsets.csv"
    run("offsets", "export", "--group", group, "-o", str(file))
    run("offsets", "reset", "--group", group, "--to-latest", "--execute")
    # Ours into Kafka's tool, onto the group that has gone on.
    assert kafka_tools.reset(cluster.bootstrap, group, "--from-file", str(file)) == offsets(
        run, "--group", group
    )
    assert offsets(run, "--group", group) == {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 7}
    # Kafka's into ours.
    moved = kafka_tools.consumer_groups(
        *(
            cluster.bootstrap,
            "--group",
            f"{group}-2",
            "--reset-offsets",
            "--to-offset",
            "9",
            "--topic",
            topic,
        ),
        *("--execute", "--export"),
    )
    file.write_text(moved)
    run("offsets", "reset", "--group", f"{group}-3", "--from-file", str(file), "--execute")
    assert offsets(run, "--group", f"{group}-3") == {TopicPartition(topic, 0): 9, TopicPartition(topic, 1): 9}


def test_deleted_offsets_are_seen(cluster: Cluster, run: Run, topic: str, group: str) -> None:
    commit(cluster.bootstrap, group, topic, 12, 7)
    kafka_tools.consumer_groups(
        cluster.bootstrap, "--group", group, "--delete-offsets", "--topic", f"{topic}:1"
    )
    assert offsets(run, "--group", group) == {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): None}


def test_only_some_partitions_move(cluster: Cluster, run: Run, topic: str, group: str) -> None:
    commit(cluster.bootstrap, group, topic, 12, 7)
    run("offsets", "reset", "--group", group, "--topic", f"{topic}:1", "--to-latest", "--execute")
    assert offsets(run, "--group", group) == {TopicPartition(topic, 0): 12, TopicPartition(topic, 1): 20}
    refused = run("offsets", "reset", "--group", group, "--topic", f"{topic}:7", "--to-latest", code=1)
    assert f"there is no {topic}:7" in refused.output


def test_a_backfill_that_writes_is_not_disturbed(cluster: Cluster, run: Run, topic: str, group: str) -> None:
    commit_offsets(cluster.bootstrap, group, [KafkaPartition(topic, 0, 7, f"{BACKFILL}{{}}")])
    refused = run("offsets", "reset", "--group", group, "--to-latest", "--execute", code=1)
    assert "repeat the same `streamapp backfill` command first" in refused.output


def test_a_group_with_members_is_left_alone(cluster: Cluster, run: Run, topic: str, group: str) -> None:
    commit(cluster.bootstrap, group, topic, 12, 7)
    member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "client.id": "reader-1"})
    member.subscribe([topic])
    until(lambda: (member.poll(0.2), member.assignment())[1] != [], 30, lambda: "no assignment")
    try:
        said = shown(run, "--group", group)
        assert said[topic, 0]["member"].startswith("reader-1 ")
        for execute in ((), ("--execute",)):
            refused = run("offsets", "reset", "--group", group, "--to-latest", *execute, code=1)
            assert f"the group {group} has 1 member (reader-1 on" in refused.output
        theirs = kafka_tools.consumer_groups(
            *(
                cluster.bootstrap,
                "--group",
                group,
                "--reset-offsets",
                "--to-latest",
                "--all-topics",
                "--execute",
            )
        )
        assert "inactive" in theirs
    finally:
        member.close()
    run("offsets", "reset", "--group", group, "--to-latest", "--execute")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,0\n", "line 1 of the file is 't,0'"),
        ("TOPIC,0,-1\n", "write lines topic,partition,offset"),
        ("", "the file has no offsets"),
        ("TOPIC,9,1\n", "which does not exist"),
        ("TOPIC,0,7\nTOPIC,0,8\n", "another offset of"),
    ],
)
def test_a_wrong_file_is_refused(
    cluster: Cluster, run: Run, topic: str, group: str, tmp_path: Path, text: str, message: str
) -> None:
    commit(cluster.bootstrap, group, topic, 12, 7)
    file = tmp_path / "offsets.csv"
    file.write_text(text.replace("TOPIC", topic))
    refused = run("offsets", "reset", "--group", group, "--from-file", str(file), "--execute", code=1)
    assert message in refused.output
    assert offsets(run, "--group", group)[TopicPartition(topic, 0)] == 12


def application(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    topology = counting(cluster.source, cluster.sink)
    app = App(cluster.id, topology=topology, config=config, datadir=cluster.folder / "data-a")
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))


def test_tables_that_contradict_new_offsets_are_named(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.feed(1_000)
    worker = cluster.start()
    cluster.counted()
    application(cluster, monkeypatch)
    refused = run("offsets", "reset", "it", "--to-earliest", code=1)
    assert f"the group {cluster.id} has 1 member" in refused.output
    assert worker.terminate() == 0
    assert "0  in all" in run("offsets", "lag", "it").stdout

    changelog = f"counts ({cluster.id}-counts-changelog)"
    dry = run("offsets", "reset", "it", "--to-earliest").stdout
    assert f"{changelog} has the records behind the new offsets in it: they would count twice" in dry
    assert "streamapp offsets copy it" in dry
    assert (
        f"{changelog} has the records"
        in run("offsets", "reset", "--group", cluster.id, "--to-earliest").stdout
    )
    before = offsets(run, "it")
    kept = run("offsets", "reset", "it", "--to-earliest", "--execute", code=1)
    assert "nothing was committed" in kept.output
    assert offsets(run, "it") == before
    # It is as said: the records count twice.
    run("offsets", "reset", "it", "--to-earliest", "--execute", "--keep-tables")
    again = cluster.start()
    until(lambda: cluster.totals()[1] == 2_000, 60, cluster.story)
    assert again.terminate() == 0
    # Forward, what is passed over is missing.
    cluster.feed(100)
    ahead = run("offsets", "reset", "it", "--to-latest").stdout
    assert f"{changelog} does not have the records that are passed over" in ahead
    run("offsets", "reset", "it", "--to-latest", "--execute", "--keep-tables")
    assert "0  in all" in run("offsets", "lag", "it").stdout


def test_offsets_of_kafkas_tool_beside_tables_with_rows(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker counted 420 records instead of 220, without a word."""
    cluster.feed(220)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    application(cluster, monkeypatch)
    kafka_tools.reset(cluster.bootstrap, cluster.id, "--all-topics", "--to-earliest")
    worker = cluster.start()
    until(lambda: not worker.alive, 60, cluster.story)
    assert "another tool than streamapp has set offsets" in worker.text()
    assert cluster.totals()[1] == 220
    assert "set by another tool" in run("offsets", "show", "it").stdout

    # The tables are kept: the records count twice.
    file = tmp_path / "offsets.csv"
    run("offsets", "export", "it", "--topic", cluster.source, "-o", str(file))
    run("offsets", "reset", "it", "--shift-by", "0", "--keep-tables", "--execute")
    assert "set by another tool" not in run("offsets", "show", "it").stdout
    worker = cluster.start()
    until(lambda: cluster.totals()[1] == 440, 60, cluster.story)
    assert worker.terminate() == 0

    # The tables are given up: they begin empty at the offsets of the tool.
    run("reset", "it", "--yes")
    run("offsets", "reset", "it", "--from-file", str(file), "--execute")
    worker = cluster.start("elsewhere")
    until(lambda: cluster.totals()[1] == 220, 60, cluster.story)
    assert worker.terminate() == 0


def test_the_offset_of_one_partition_is_deleted(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of the other partitions hid the loss, and a worker counted the records of the partition again."""
    cluster.feed(200)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    one = f"{cluster.source}:1"
    deleted = ("--group", cluster.id, "--delete-offsets", "--topic", one)
    assert "Successful" in kafka_tools.consumer_groups(cluster.bootstrap, *deleted)
    for folder in ("a", "elsewhere"):  # with the state on disk, and without
        worker = cluster.start(folder)
        until(lambda: not cluster.workers[-1].alive, 60, cluster.story)
        assert f"has rows, but the group {cluster.id} has no committed offsets in {one}." in worker.text()
    assert cluster.totals()[1] == 200
    application(cluster, monkeypatch)
    run("offsets", "reset", "it", "--topic", one, "--to-latest", "--keep-tables", "--execute")
    worker = cluster.start()
    cluster.feed(100)
    cluster.counted()
    assert cluster.totals()[1] == 300
    assert worker.terminate() == 0


def test_all_offsets_of_the_inputs_are_deleted_and_those_of_a_repartition_topic_are_left(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers delete the offsets of a topic with the topic. The command of the message was refused with this message."""
    planes = f"{cluster.source}-planes"
    cluster.create(planes, partitions=2)
    for number in range(50):
        cluster.producer.produce(planes, f"airport{number % 5}", f"k{number}")
    cluster.feed(100)
    worker = cluster.start(app="rekeyed_app")
    cluster.counted()
    cluster.feed(100)
    cluster.counted()
    assert worker.terminate() == 0
    deleted = ("--group", cluster.id, "--delete-offsets", "--topic", cluster.source)
    assert "Successful" in kafka_tools.consumer_groups(cluster.bootstrap, *deleted)
    worker = cluster.start(app="rekeyed_app")
    until(lambda: not worker.alive, 60, cluster.story)
    command = f"offsets reset APPLICATION --topic {cluster.source} --to-latest --keep-tables --execute"
    assert f"`streamapp {command}`" in worker.text()
    monkeypatch.setenv("SOURCE", cluster.source)
    monkeypatch.setenv("SINK", cluster.sink)
    config = StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap)
    app = App(cluster.id, topology=departures, config=config, datadir=cluster.folder / "data-a")
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    run(*command.replace("APPLICATION", "it").split())
    worker = cluster.start(app="rekeyed_app")
    cluster.feed(100)
    cluster.counted()
    assert cluster.totals()[1] == 300
    assert worker.terminate() == 0


def test_the_offset_of_one_partition_is_deleted_beside_another_topic(cluster: Cluster) -> None:
    """The task of the partition had an offset in the other topic, which hid the loss: the records counted again."""
    also = f"{cluster.id}-also"
    cluster.create(also)
    both = {"SOURCE": f"{cluster.source},{also}"}
    for topic in (
        cluster.source,
        also,
    ):  # the offsets of the first topic are idle when the second gets its offsets
        cluster.feed(100, topic=topic)
        cluster.produced += 100
        worker = cluster.start(**both)
        cluster.counted()
        assert worker.terminate() == 0
    deleted = ("--group", cluster.id, "--delete-offsets", "--topic", f"{also}:1")
    assert "Successful" in kafka_tools.consumer_groups(cluster.bootstrap, *deleted)
    worker = cluster.start(**both)
    until(lambda: not worker.alive, 60, cluster.story)
    assert (
        f"the table counts has rows, but the group {cluster.id} has no committed offsets in {also}:1."
        in worker.text()
    )
    assert cluster.totals()[1] == 200


def test_an_application_that_was_reset_begins_at_a_time(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers refuse offsets without changelogs, so the offsets come with empty changelogs."""
    cluster.feed(1_000)  # one in a millisecond
    application(cluster, monkeypatch)
    changelog = f"{cluster.id}-counts-changelog"
    assert (
        f"topic {changelog}, empty" in run("offsets", "reset", "it", "--to-time", str(BEGAN_MS + 400)).stdout
    )
    assert changelog not in cluster.admin.list_topics(timeout=10).topics, "only shown"
    run("offsets", "reset", "it", "--to-time", str(BEGAN_MS + 400), "--execute")
    assert changelog in cluster.admin.list_topics(timeout=10).topics
    worker = cluster.start()
    until(lambda: cluster.totals()[1] == 600, 60, cluster.story)
    assert worker.terminate() == 0


def test_a_copy_replays_a_range(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.feed(1_000)  # one in a millisecond
    worker = cluster.start(GUARANTEE="exactly_once_v2")  # a late heartbeat repeats no output
    cluster.counted()
    application(cluster, monkeypatch)
    copy, sink = f"{cluster.id}-replay", f"{cluster.id}-replayed"
    cluster.create(sink)
    since, end = str(BEGAN_MS + 400), str(BEGAN_MS + 900)
    dry = run("offsets", "copy", "it", copy, "--to-time", since)
    assert f"topic {copy}-counts-changelog, empty" in dry.stdout
    assert f"{copy}-counts-changelog" not in cluster.admin.list_topics(timeout=10).topics
    run("offsets", "copy", "it", copy, "--to-time", since, "--execute")  # the application goes on
    assert "already" in run("offsets", "copy", "it", copy, "--to-time", since, code=1).output
    behind = run("offsets", "lag", "--group", copy, "--until", end, "--max", "0", code=1)
    assert "500  in all" in behind.stdout
    copied = cluster.start("copy", APP_ID=copy, SINK=sink)
    until(lambda: cluster.totals(sink)[1] == 600, 60, cluster.story)
    until(
        lambda: (
            run("offsets", "lag", "--group", copy, "--until", end, "--max", "0", code=None).exit_code == 0
        ),
        60,
        cluster.story,
    )
    assert cluster.totals() == (1_000, 1_000)
    assert copied.terminate() == 0
    assert worker.terminate() == 0


def test_an_app_without_a_topology_has_the_group_of_its_agents(
    cluster: Cluster, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(cluster.id, config=StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap))

    @app.agent(app.topic(topic))
    async def count(records: Any) -> None:
        """Does nothing."""

    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    assert offsets(run, "it") == {TopicPartition(topic, 0): None, TopicPartition(topic, 1): None}
    run("offsets", "reset", "it", "--to-latest", "--execute")
    assert offsets(run, "it") == {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 20}
    copy = f"{cluster.id}-copy"
    run("offsets", "copy", "it", copy, "--execute")
    assert offsets(run, "--group", copy) == offsets(run, "it")
