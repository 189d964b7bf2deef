"""A backfill, then workers: together they leave what either would leave alone. Also when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from streamapp import StreamsBuilder
from streamapp._base import failpoints
from streamapp.broker.requests import ask
from streamapp.engine.runner_ports import Position
from streamapp.errors import ConfigError, StreamsError, TaskCorruptedError
from streamapp.records import TopicPartition
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.replay import Replay

from ...processes import until
from . import travels
from .cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVENTS = travels.events(flights=600)
CUT = travels.ms(12)
HISTORY = [event for event in EVENTS if event.time < CUT or event.topic == "weather"]
DECEMBER = [event for event in EVENTS if event.time >= CUT and event.topic != "weather"]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def live(cluster: Cluster, application: str) -> None:
    """December, while a worker runs: a week of flights, then what delayed them."""
    with cluster.worker(application) as settled:
        for _, week in groupby(DECEMBER, lambda event: event.time // (7 * 86_400_000)):
            events = list(week)
            for topic in ("flights", "delays"):
                cluster.send([event for event in events if event.topic == topic])
                settled()


def check_outputs(cluster: Cluster) -> None:
    """The outputs are those of a batch, also of join windows that were open at the cut.

    A worker sends results without a match only once a second, so the last of them may wait in its store. The windows
    of these records close 20 days and an hour later: they were open at the cut.
    """
    found, expected = cluster.outputs(), cluster.batch_outputs()
    without_match, expected_without = (
        [record for record in each["explained"] if record[1].endswith(b": None")]
        for each in (found, expected)
    )
    waiting = Counter(expected_without) - Counter(without_match)
    assert not Counter(without_match) - Counter(expected_without)
    assert all(time >= CUT - 21 * 86_400_000 for _, _, time in waiting)
    found["explained"] = sorted([*found["explained"], *waiting.elements()])
    assert found == expected


def test_january_to_november_on_spark_and_december_on_workers_is_the_whole_year(cluster: Cluster) -> None:
    """Killed at every step on the way: each time, the next attempt goes on."""
    cluster.send(HISTORY)
    for point in ("computed", "begun", "written"):
        failpoints.arm(f"backfill-{point}:raise")
        with pytest.raises(failpoints.FailpointError):
            cluster.backfill("travels", CUT).run()
    with pytest.raises(StreamsError, match="has not come to its end"), cluster.worker("travels"):
        pass
    with pytest.raises(StreamsError, match="has not come to its end"):
        cluster.live_tables("travels")
    with pytest.raises(StreamsError, match="has not come to its end"):
        Replay(cluster.topology(), cluster.config("travels"), "daily", spark=cluster.spark)
    last = cluster.backfill("travels")  # to the end of the topics, it seems; but it ends what has begun
    assert last.survey.note is not None
    report = last.run()
    assert report is not None
    assert report.rows > 0
    assert report.written == 0  # all of it had been written before the last interruption
    assert cluster.backfill("travels", CUT).run() is None

    live(cluster, "travels")
    expected = cluster.batch_tables()
    assert all(expected.values())
    assert cluster.live_tables("travels") == expected
    check_outputs(cluster)

    with cluster.worker("alone") as settled:
        settled()
    assert cluster.live_tables("alone") == expected


def test_a_year_in_three_backfills_is_the_year_in_one(cluster: Cluster) -> None:
    """As tables and as records: the state between them lies in changelogs."""
    cluster.send(HISTORY)
    for cut in (travels.ms(5), CUT):
        assert cluster.backfill("stepwise", cut).run() is not None
    cluster.send(DECEMBER)
    assert cluster.backfill("stepwise").run() is not None

    other = Cluster(cluster.servers, cluster.folder / "other", cluster.spark)
    other.send(EVENTS)
    assert other.backfill("at-once").run() is not None
    assert cluster.live_tables("stepwise") == other.live_tables("at-once")
    assert cluster.outputs() == other.outputs()


def test_nothing_is_done_while_workers_run(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    member = Consumer({"bootstrap.servers": cluster.servers, "group.id": cluster.application_id("busy")})
    member.subscribe([cluster.topic("flights")])
    while not member.assignment():
        member.poll(0.1)
    with pytest.raises(ConfigError, match="the group .*busy has [0-9]+ running member.*Stop all workers"):
        cluster.backfill("busy")
    member.close()


def test_nothing_is_handed_over_when_workers_ran_meanwhile(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    backfill = cluster.backfill("raced")
    tp = TopicPartition(cluster.topic("flights"), 0)
    Group(cluster.config("raced")).commit({tp: Position(0)})
    with pytest.raises(ConfigError, match="have run since this backfill began"):
        backfill.run()


def test_offsets_beyond_the_end_of_a_topic_are_refused(cluster: Cluster) -> None:
    """A log loses its last records if a broker without them becomes the leader."""
    cluster.send(HISTORY[:20])
    tp = TopicPartition(cluster.topic("flights"), 0)
    Group(cluster.config("short")).commit({tp: Position(1_000)})
    with pytest.raises(TaskCorruptedError, match=f"position in {tp} is 1000, but the topic ends at .*reset"):
        cluster.backfill("short")


def alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, cluster.topic(topic), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def test_results_that_kafka_would_delete_at_once_are_refused_before_anything_runs(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    alter(cluster, "seen", "retention.ms", "86400000")
    with pytest.raises(ConfigError, match=r"from 2013-01-01 on.*seen \(1 day.*--add-config retention.ms=-1"):
        cluster.backfill("old")


def test_state_without_offsets_is_refused(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    backfill = cluster.backfill("orphan")
    backfill.run()
    # In a variable: a client that is given up takes its unanswered requests with it, and nobody is told.
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    group = cluster.application_id("orphan")
    ask(admin.delete_consumer_groups, [group], seconds=60)[group].result()
    with pytest.raises(ConfigError, match="has state, but the group .*orphan has no offsets"):
        cluster.backfill("orphan")


def other_topology(cluster: Cluster, application: str) -> Backfill:
    config = cluster.config(application)
    builder = StreamsBuilder(config)
    flights = builder.stream(cluster.topic("flights"), key_serde=travels.TEXT, value_serde=travels.TEXT)
    flights.group_by_key().count(materialized=travels.table("latest"))
    return Backfill(builder.build(), config, spark=cluster.spark)


def test_the_state_of_another_topology_is_refused(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    assert cluster.backfill("changed").run() is not None
    with pytest.raises(
        ConfigError, match="made by a topology whose stores or internal topics were different"
    ):
        other_topology(cluster, "changed")


def test_a_backfill_that_is_killed_at_its_end_leaves_the_fingerprint_of_its_topology(
    cluster: Cluster,
) -> None:
    cluster.send(HISTORY[:60])
    command = [sys.executable, "-c", "from streamapp.cli import main; main()", "backfill", travels.__name__]
    killed = subprocess.run(
        [*command, "--master", "local[2]", "--conf", "spark.driver.memory=1g"],
        env={**os.environ, **cluster.environ("ending"), "STREAMAPP_FAILPOINT": "backfill-ending:kill"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    report = cluster.backfill("ending").run()
    assert report is not None
    assert report.written == 0
    cluster.send(HISTORY[60:80])
    with pytest.raises(
        ConfigError, match="made by a topology whose stores or internal topics were different"
    ):
        other_topology(cluster, "ending")


def test_a_second_run_sees_the_global_tables_of_the_first(cluster: Cluster) -> None:
    """Otherwise its results differ from those that the first run has written."""
    text = {"key_serde": travels.TEXT, "value_serde": travels.TEXT}
    config = cluster.config("global")
    builder = StreamsBuilder(config)
    weather = builder.global_table(cluster.topic("weather"), **text)
    flights = builder.stream(cluster.topic("flights"), **text)
    joined = flights.join(
        weather, lambda carrier, sky: f"{carrier} in {sky}", key_selector=lambda tail, carrier: tail
    )
    joined.to(cluster.topic("seen"), **text)
    topology = builder.build()
    cluster.send(HISTORY)
    failpoints.arm("backfill-written:raise")
    with pytest.raises(failpoints.FailpointError):
        Backfill(topology, config, spark=cluster.spark).run()
    before = cluster.outputs()["seen"]
    cluster.send([travels.Event("weather", f"N{number}", "hail", CUT) for number in range(40)])
    report = Backfill(topology, config, spark=cluster.spark).run()
    assert report is not None
    assert report.written == 0
    assert cluster.outputs()["seen"] == before
    assert before


def test_an_interrupted_backfill_whose_input_got_partitions_says_what_to_do(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    cluster.interrupted("wider")
    topic = cluster.topic("flights")
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    ((_, done),) = admin.create_partitions([NewPartitions(topic, travels.PARTITIONS + 1)]).items()
    done.result()
    said = rf"{topic} has more partitions than when .* began: {topic}-3 is new.*run `streamapp reset`"
    until(
        lambda: len(admin.list_topics(topic).topics[topic].partitions) > travels.PARTITIONS, 30, lambda: said
    )
    with pytest.raises(ConfigError, match=said):
        cluster.backfill("wider")


def test_a_cut_in_partitions_that_nobody_reads_is_refused(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    with pytest.raises(ConfigError, match=r"until names flights-9, fligths-0, which .* does not read"):
        cluster.backfill("typo", {TopicPartition("fligths", 0): 5, TopicPartition("flights", 9): 1})


def test_topics_that_take_the_time_of_the_broker_keep_old_results(cluster: Cluster) -> None:
    cluster.send(HISTORY[:20])
    alter(cluster, "seen", "retention.ms", "86400000")
    alter(cluster, "seen", "message.timestamp.type", "LogAppendTime")
    assert cluster.backfill("appended").survey.records
