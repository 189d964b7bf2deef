"""SA1xx, each provoked on real brokers."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp import App, StreamsConfig
from streamapp.broker import LocalKafka
from streamapp.broker.requests import LastingAdmin
from streamapp.cli import main
from streamapp.errors import TopologyError
from streamapp.runners.worker.topics import prepare_topics

from ..operations import kafka_tools
from ..processes import until
from ..worker.conftest import Cluster
from ..worker.counting import counting
from .patient import Patient, provokes


def test_an_application_that_is_well_has_no_findings(patient: Patient) -> None:
    report = patient.report("--outage", "168", code=0)
    assert report["findings"] == []
    assert report["unseen"] == []


@provokes("SA101")
def test_one_replica(patient: Patient) -> None:
    patient.create("once", replication_factor=1)
    patient.configure(dead_letter_queue_topic="once")
    assert patient.findings() == {("SA101", "once")}


@provokes("SA102")
def test_one_in_sync_replica_is_enough(patient: Patient) -> None:
    patient.alter(patient.source, min_insync_replicas="1")
    assert patient.findings() == {("SA102", patient.source)}


@provokes("SA103")
def test_all_replicas_are_needed(patient: Patient) -> None:
    patient.alter(patient.changelog, min_insync_replicas="3")
    assert patient.findings() == {("SA103", patient.changelog)}


@provokes("SA104")
def test_an_unclean_leader(patient: Patient) -> None:
    patient.alter(patient.sink, unclean_leader_election_enable="true")
    assert patient.findings() == {("SA104", patient.sink)}


@provokes("SA105", "SA106")
def test_a_broker_that_is_away(patient: Patient, three: LocalKafka) -> None:
    patient.create(f"{patient.id}-alone", num_partitions=1, replica_assignment=[[3]])
    patient.configure(dead_letter_queue_topic=f"{patient.id}-alone")
    three.stop_broker(3)
    try:
        found = patient.findings()
    finally:
        three.start_broker(3)
    assert ("SA106", f"{patient.id}-alone") in found
    assert ("SA105", patient.source) in found
    until(lambda: patient.findings() == {("SA101", f"{patient.id}-alone")}, 60, patient.findings)


def test_only_the_partition_without_a_leader_waits(three: LocalKafka, tmp_path: Path) -> None:
    """All tasks of the worker waited for the leader, and the worker ended after five minutes."""
    with closing(Cluster(three.bootstrap_servers, tmp_path)) as cluster:
        source, cluster.sink = f"{cluster.id}-led", f"{cluster.id}-counts"
        new = [
            NewTopic(source, 2, replica_assignment=[[1], [3]]),
            NewTopic(cluster.sink, num_partitions=1, replication_factor=3),
        ]
        for created in cluster.admin.create_topics(new).values():
            created.result()

        def feed(*partitions: int) -> None:
            for partition in partitions * 10:
                cluster.producer.produce(source, b"v", f"k{partition}", partition)
            cluster.producer.flush()
            cluster.produced += 10 * len(partitions)

        feed(0)
        three.stop_broker(3)
        try:
            worker = cluster.start(SOURCE=source, SINK=cluster.sink, GUARANTEE="exactly_once_v2")
            cluster.counted()
            worker.wait_for(f"task 0_1 waits for a leader of {source}-1. Other partitions go on")
        finally:
            three.start_broker(3)
        feed(0, 1)
        cluster.counted()
        assert cluster.totals() == (30, 30)
        assert worker.terminate() == 0


@provokes("SA108")
def test_replicas_in_one_rack(patient: Patient) -> None:
    name = f"{patient.id}-near"
    patient.create(
        name, num_partitions=2, replica_assignment=[[1, 2], [2, 3]], config={"min.insync.replicas": "1"}
    )
    patient.configure(dead_letter_queue_topic=name)
    assert patient.findings() == {("SA102", name), ("SA108", name)}
    (seen,) = (each["seen"] for each in patient.report()["findings"] if each["code"] == "SA108")
    assert seen == "partition 0"


@provokes("SA109")
def test_a_rack_that_there_is_not(patient: Patient) -> None:
    patient.configure(client_rack="b")
    assert patient.findings() == set()
    patient.configure(client_rack="z")
    assert patient.findings() == {("SA109", "client_rack")}


@provokes("SA107", "SA208", "SA405", "SA404")
def test_brokers_that_are_set_up_badly(sick_patient: Patient) -> None:
    found = sick_patient.findings()
    assert {("SA107", "brokers"), ("SA208", "brokers"), ("SA101", sick_patient.source)} <= found
    assert {("SA405", "transaction_timeout_ms"), ("SA404", "session_timeout_ms")} <= found
    sick_patient.configure(session_timeout_ms=20_000, transaction_timeout_ms=4_000)
    assert not {code for code, _ in sick_patient.findings("--outage", "1")} & {"SA404", "SA405", "SA208"}


@provokes("SA110")
def test_transactions_of_an_old_version(sick_patient: Patient) -> None:
    def level(way: str, to: int) -> None:
        kafka_tools.features(sick_patient.bootstrap, way, "--feature", f"transaction.version={to}")

    assert ("SA110", "cluster") not in sick_patient.findings()
    level("downgrade", 1)
    try:
        assert ("SA110", "cluster") in sick_patient.findings()
    finally:
        level("upgrade", 2)


def test_brokers_that_do_not_answer_are_no_finding(patient: Patient) -> None:
    patient.monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    result = CliRunner().invoke(main, ["doctor", "--group", "nobody"])
    assert result.exit_code == 2, result.output
    assert "Kafka cannot be reached at 127.0.0.1:1" in result.output


def test_a_group_that_there_is_not(patient: Patient) -> None:
    report = patient.report(subject=("--group", "nobody"), code=2)
    assert report["findings"] == []
    assert report["unseen"] == ["the group nobody: there is no such group; check the name"]


@pytest.mark.parametrize(
    ("settings", "replication_factor", "replicas"),
    [({}, -1, 3), ({"topic_replication_factor": 1}, -1, 1), ({}, 2, 2)],
    ids=["the-cluster-s", "faust-s-setting", "the-configuration-s"],
)
def test_tables_of_agents_have_the_replicas_of_internal_topics(
    patient: Patient, settings: dict[str, int], replication_factor: int, replicas: int
) -> None:
    """Faust's default is one replica: with one broker of three away, the tables of agents stood still."""
    config = StreamsConfig(f"{patient.id}-{replicas}", replication_factor=replication_factor)
    app = App(config.application_id, config=config, bootstrap_servers=patient.bootstrap, **settings)

    async def declare() -> None:
        await app.Table("numbers", default=int, partitions=1).changelog_topic.declare()
        await app.producer.stop()

    asyncio.run(declare())
    topic = f"{config.application_id}-numbers-changelog"
    found = AdminClient({"bootstrap.servers": patient.bootstrap}).list_topics(topic, timeout=30)
    assert len(found.topics[topic].partitions[0].replicas) == replicas


def test_a_missing_output_is_refused_where_there_are_several_brokers(patient: Patient) -> None:
    """They were asked for their settings in one request, which librdkafka refuses: nothing was ever missing."""
    patient.configure(counting(patient.source, f"{patient.id}-nowhere"))
    with pytest.raises(TopologyError, match="nowhere does not exist"):
        prepare_topics(patient.app.streams.plan, LastingAdmin({"bootstrap.servers": patient.bootstrap}))
