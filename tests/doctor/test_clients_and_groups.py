"""SA4xx and SA5xx: groups on a real broker, and settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition

from streamapp import App, StreamsConfig
from streamapp.engine.metadata import TOPIC_ID, encode_metadata, metadata_of
from streamapp.engine.store_notes import changelog_numbers
from streamapp.engine.topic_notes import note_of_topics

from ..group_offsets import commit_offsets
from ..processes import until
from ..worker.counting import counting
from .patient import Patient, provokes

File = Callable[[str], str]
GOOD_PRODUCER = "acks=all\nenable.idempotence=true\n"
GOOD_CONSUMER = (
    "group.id=g\nisolation.level=read_committed\nenable.auto.commit=false\nauto.offset.reset=earliest\n"
)


@provokes("SA401")
def test_records_that_were_deleted_unread(patient: Patient) -> None:
    patient.feed(30, partition=0)
    patient.commit(5, 0, 0)
    assert patient.findings() == set()
    for future in patient.admin.delete_records([TopicPartition(patient.source, 0, 20)]).values():
        future.result()
    assert patient.findings() == {("SA401", f"{patient.source}-0")}


@provokes("SA402")
def test_a_group_beyond_the_end(patient: Patient) -> None:
    patient.commit(0, 0, 1_000)
    assert patient.findings() == {("SA402", f"{patient.source}-2")}


@provokes("SA406")
def test_offsets_of_an_earlier_topic(patient: Patient) -> None:
    ((_, described),) = patient.admin.describe_topics(TopicCollection([patient.source])).items()
    for topic_id, expected in (
        (str(described.result().topic_id), set()),
        ("BBBBBBBBBBBBBBBBBBBBBA", {("SA406", f"{patient.source}-1")}),
    ):
        metadata = encode_metadata(5, {f"{TOPIC_ID}{topic_id}": 0})
        at = TopicPartition(patient.source, 1, 2, metadata=metadata)
        commit_offsets(patient.bootstrap, patient.id, [at])
        assert patient.findings() == expected


@provokes("SA406")
def test_offsets_of_an_earlier_changelog(patient: Patient) -> None:
    plan = patient.app.streams.plan
    changelog = f"{patient.id}-counts-changelog"
    ((_, described),) = patient.admin.describe_topics(TopicCollection([changelog])).items()
    for topic_id, expected in (
        (str(described.result().topic_id), set()),
        ("BBBBBBBBBBBBBBBBBBBBBA", {("SA406", changelog)}),
    ):
        metadata = encode_metadata(5, changelog_numbers(plan, patient.source, {changelog: topic_id}))
        at = TopicPartition(patient.source, 1, 2, metadata=metadata)
        commit_offsets(patient.bootstrap, patient.id, [at])
        assert patient.findings() == expected


@provokes("SA408")
def test_tables_with_rows_whose_group_has_no_offsets(patient: Patient) -> None:
    assert patient.findings() == set()
    patient.feed(4, topic=patient.changelog)
    assert patient.findings() == {("SA408", patient.changelog)}
    (found,) = patient.report()["findings"]
    assert found["seen"] == "the log has 4 offsets"
    at = TopicPartition(patient.source, 0, 0, metadata=encode_metadata(5, {}))
    commit_offsets(patient.bootstrap, patient.id, [at])
    assert patient.findings() == set()


def test_offsets_of_one_topic_are_lost_beside_those_of_another(patient: Patient) -> None:
    also = f"{patient.id}-also"
    patient.create(also)
    patient.configure(counting([patient.source, also], patient.sink))
    patient.feed(4, topic=patient.changelog)
    noted = metadata_of(None, note_of_topics([patient.source, also], [patient.source, also]))
    at = TopicPartition(patient.source, 0, 0, metadata=noted)
    commit_offsets(patient.bootstrap, patient.id, [at])
    assert patient.findings() == {("SA408", patient.changelog)}
    (found,) = patient.report()["findings"]
    assert found["seen"] == f"no committed offset in {also}"
    commit_offsets(patient.bootstrap, patient.id, [TopicPartition(also, 0, 0, metadata=noted)])
    assert patient.findings() == set()


@provokes("SA409")
def test_offsets_that_another_tool_has_set(patient: Patient) -> None:
    patient.commit(0)
    assert patient.findings() == set()
    patient.feed(4, topic=patient.changelog)
    assert patient.findings() == {("SA409", f"{patient.source}-0")}
    (found,) = patient.report()["findings"]
    assert found["seen"] == "offset 0 has no metadata of streamapp"


def test_offsets_of_agents_that_another_tool_has_set(patient: Patient) -> None:
    """Offsets of plain Faust have no metadata either, and agents take these over."""

    async def nothing(stream: Any) -> None:
        async for _ in stream:
            pass

    charges, balances = f"{patient.id}-charges", f"{patient.id}-balances-changelog"
    for name in (charges, balances):
        patient.create(name)
    patient.app.agent(patient.app.topic(charges), name="books")(nothing)
    patient.app.Table("balances", default=int, partitions=3)
    patient.feed(4, topic=balances)
    commit_offsets(patient.bootstrap, patient.id, [TopicPartition(charges, 1, 0)])
    assert patient.findings() == set()
    noted = metadata_of(None, note_of_topics([charges], [charges]))
    commit_offsets(patient.bootstrap, patient.id, [TopicPartition(charges, 0, 0, metadata=noted)])
    assert patient.findings() == {("SA409", f"{charges}-1")}


def test_a_changelog_with_records_of_an_aborted_transaction_only_has_no_rows(patient: Patient) -> None:
    """Workers start then, because a restore does not read such records."""
    producer = Producer({"bootstrap.servers": patient.bootstrap, "transactional.id": patient.id})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(patient.changelog, b"v", b"k")
    producer.flush()
    producer.abort_transaction()
    assert patient.findings() == set()


@provokes("SA407")
def test_records_of_a_retry_that_is_gone(patient: Patient) -> None:
    parked, waiting = (f"{patient.id}-look-up-{kind}-changelog" for kind in ("parked", "retry-1-waiting"))
    topics = [parked, waiting, f"{patient.id}-look-up-retry-1", f"{patient.id}-look-up-retry-back"]
    for topic in topics:
        patient.create(topic)
    assert patient.findings() == set()
    for topic in topics:
        patient.feed(4, topic=topic, **({"partition": 1} if topic == topics[2] else {}))
    commit_offsets(patient.bootstrap, patient.id, [TopicPartition(topics[2], 1, 4)])
    producer = Producer({"bootstrap.servers": patient.bootstrap, "partitioner": "murmur2_random"})
    for number in range(4):
        producer.produce(waiting, None, f"k{number}")
    producer.flush()
    found = {("SA407", parked), ("SA407", topics[3])}
    assert patient.findings() == found
    seen = {each["subject"]: each["seen"] for each in patient.report()["findings"]}
    assert seen == {parked: "4 records", topics[3]: "4 records"}
    other = f"{patient.id}-look"  # another application, whose operator is called "up"
    commit_offsets(patient.bootstrap, other, [TopicPartition(patient.source, 0, 1)])
    assert patient.findings() == set()


@provokes("SA403")
def test_partitions_without_member(patient: Patient) -> None:
    other = f"{patient.id}-other"
    patient.create(other)
    group = f"{patient.id}-plain"
    settings = {"bootstrap.servers": patient.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    member = Consumer(settings)
    member.subscribe([patient.source, other])
    until(lambda: (member.poll(0.2), len(member.assignment()))[1] == 6, 30, lambda: "no assignment")
    member.commit(
        offsets=[TopicPartition(t, p, 0) for t in (patient.source, other) for p in range(3)],
        asynchronous=False,
    )
    try:
        assert patient.findings(subject=("--group", group)) == set()
        member.subscribe([patient.source])
        until(lambda: (member.poll(0.2), len(member.assignment()))[1] == 3, 30, lambda: "no assignment")
        assert patient.findings(subject=("--group", group)) == {("SA403", other)}
    finally:
        member.close()


CLIENTS = {
    "SA501": ("--producer", "acks=1\nenable.idempotence=true"),
    "SA502": ("--producer", "acks=all"),
    "SA503": ("--producer", GOOD_PRODUCER + "retries=0"),
    "SA504": ("--consumer", GOOD_CONSUMER + "isolation.level=read_uncommitted"),
    "SA505": ("--consumer", GOOD_CONSUMER.replace("enable.auto.commit=false\n", "")),
    "SA506": ("--consumer", GOOD_CONSUMER.replace("auto.offset.reset=earliest\n", "")),
}


@pytest.mark.parametrize("code", CLIENTS)
@provokes("SA501", "SA502", "SA503", "SA504", "SA505", "SA506")
def test_clients_beside_the_application(patient: Patient, file: File, code: str) -> None:
    role, text = CLIENTS[code]
    good = GOOD_PRODUCER if role == "--producer" else GOOD_CONSUMER
    assert patient.findings(role, file(good)) == set()
    assert patient.findings(role, file(text)) == {(code, "client.properties")}


def test_defaults_are_those_of_the_library(patient: Patient, file: File) -> None:
    java = "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    assert patient.findings("--producer", file(java)) == set()
    read = GOOD_CONSUMER.replace("isolation.level=read_committed\n", "")
    assert patient.findings("--consumer", file(read)) == set()
    deserializer = "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    assert patient.findings("--consumer", file(deserializer + read)) == {("SA504", "client.properties")}


def test_a_client_that_stores_offsets_after_the_processing_may_commit_automatically(
    patient: Patient, file: File
) -> None:
    stores = GOOD_CONSUMER.replace("auto.commit=false", "auto.commit=true\nenable.auto.offset.store=false")
    assert patient.findings("--consumer", file(stores)) == set()
    # Java's client has no such setting.
    deserializer = "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    assert patient.findings("--consumer", file(deserializer + stores)) == {("SA505", "client.properties")}


def test_a_file_that_cannot_be_read_shows_no_secret(patient: Patient, file: File) -> None:
    from click.testing import CliRunner

    from streamapp.cli import main

    path = file("sasl.password hidden")
    result = CliRunner().invoke(main, ["doctor", "it", "--producer", path])
    assert result.exit_code == 2
    assert "line 1 of client.properties is not NAME=VALUE" in result.output
    assert "hidden" not in result.output


@provokes("SA501", "SA506", "SA507", "SA508")
def test_settings_of_the_application(patient: Patient) -> None:
    patient.configure(
        faust={"producer_acks": 1},
        auto_offset_reset="latest",
        processing_exception_handler="continue",
        replication_factor=1,
    )
    assert patient.findings() == {
        ("SA501", "producer_acks"),
        ("SA506", "auto_offset_reset"),
        ("SA507", "processing_exception_handler"),
        ("SA508", "replication_factor"),
    }
    patient.configure(processing_exception_handler="continue", dead_letter_queue_topic=patient.sink)
    assert patient.findings() == set()


def test_accepted_findings_do_not_count(patient: Patient) -> None:
    patient.configure(auto_offset_reset="latest", replication_factor=1)
    baseline = patient.folder / "doctor.json"
    from click.testing import CliRunner

    from streamapp.cli import main

    accept = ["doctor", "it", "--baseline", str(baseline), "--accept"]
    assert CliRunner().invoke(main, accept).exit_code == 0
    report = patient.report("--baseline", str(baseline), code=0)
    assert (report["findings"], report["accepted"], report["accepted_but_gone"]) == ([], 2, [])
    # A reason that somebody wrote stays.
    baseline.write_text(baseline.read_text().replace('"why": ""', '"why": "a test"', 1))
    assert CliRunner().invoke(main, accept).exit_code == 0
    assert baseline.read_text().count("a test") == 1
    patient.configure(auto_offset_reset="latest", processing_exception_handler="continue")
    report = patient.report("--baseline", str(baseline), code=1)
    assert [each["code"] for each in report["findings"]] == ["SA507"]
    assert report["accepted_but_gone"] == [{"code": "SA508", "subject": "replication_factor"}]


@provokes("SA201")
def test_an_app_without_a_topology(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = f"{patient.id}-dead"
    patient.create(dead, config={"retention.ms": "-1"})
    config = StreamsConfig(
        patient.id, bootstrap_servers=patient.bootstrap, session_timeout_ms=10, dead_letter_queue_topic=dead
    )
    app = App(patient.id, config=config)

    @app.consume(patient.source, name="charge")
    async def charge(record: Any) -> None:
        """Does nothing."""

    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    patient.alter(patient.source, retention_ms="1000")
    patient.alter(dead, retention_ms="1000")
    expected = {("SA201", patient.source), ("SA209", dead), ("SA404", "session_timeout_ms")}
    until(lambda: patient.findings() == expected, 60, patient.findings)
    assert patient.report()["group"] == f"{patient.id}-charge"
