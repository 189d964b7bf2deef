"""SA2xx and SA3xx, each provoked on real topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streamapp import (
    Materialized,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Topology,
)
from streamapp.windows import TimeWindows

from ..group_offsets import commit_offsets
from ..processes import until
from .patient import Patient, provokes

TEXT = StringSerde()
DAY_MS = 86_400_000


@provokes("SA201")
def test_short_retention(patient: Patient) -> None:
    patient.alter(patient.source, retention_ms=str(DAY_MS))
    assert patient.findings("--outage", "24") == set()
    assert patient.findings("--outage", "25") == {("SA201", patient.source)}
    patient.alter(patient.source, cleanup_policy="compact")  # retention.ms says nothing then
    assert patient.findings("--outage", "25") == {("SA213", patient.source)}


@provokes("SA202")
def test_retention_by_size(patient: Patient) -> None:
    patient.alter(patient.source, retention_bytes="1000000")
    assert patient.findings() == {("SA202", patient.source)}


@provokes("SA203")
def test_a_changelog_that_deletes(patient: Patient) -> None:
    patient.alter(patient.changelog, cleanup_policy="compact,delete", retention_ms=str(DAY_MS))
    assert patient.findings() == {("SA203", patient.changelog)}


@provokes("SA205")
def test_a_changelog_that_is_not_compacted(patient: Patient) -> None:
    patient.alter(patient.changelog, cleanup_policy="delete")
    assert patient.findings() == {("SA205", patient.changelog)}


def windows(patient: Patient) -> Topology:
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    stream = builder.stream(patient.source).select_key(lambda _, value: value)
    grouped = stream.group_by_key().windowed_by(TimeWindows.of_size_and_grace(60_000, 3_600_000))
    grouped.count(materialized=Materialized("by-minute"))
    return builder.build()


@provokes("SA204", "SA206")
def test_windows_and_what_is_repartitioned(patient: Patient) -> None:
    patient.configure(windows(patient))
    patient.prepare()
    assert patient.findings() == set()
    changelog, repartition = f"{patient.id}-by-minute-changelog", f"{patient.id}-by-minute-repartition"
    patient.alter(changelog, retention_ms="600000")
    patient.alter(repartition, retention_ms="3600000")
    assert patient.findings() == {("SA204", changelog), ("SA206", repartition)}


@provokes("SA211")
def test_a_changelog_of_versions_that_brokers_compact(patient: Patient) -> None:
    """A table that got a history went on with a changelog in which brokers compact versions away."""
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    kept = Materialized("versions", history_retention=DAY_MS)
    builder.stream(patient.source).group_by_key().count(materialized=kept)
    patient.configure(builder.build())
    patient.prepare()
    assert patient.findings() == set()
    changelog = f"{patient.id}-versions-changelog"
    patient.alter(changelog, min_compaction_lag_ms="0")
    assert patient.findings() == {("SA211", changelog)}


@provokes("SA210")
def test_internal_topics_with_the_time_of_brokers(patient: Patient) -> None:
    patient.configure(windows(patient))
    patient.prepare()
    changelog, repartition = f"{patient.id}-by-minute-changelog", f"{patient.id}-by-minute-repartition"
    patient.alter(changelog, message_timestamp_type="LogAppendTime")
    patient.alter(repartition, message_timestamp_type="LogAppendTime")
    patient.alter(patient.source, message_timestamp_type="LogAppendTime")  # an input may have these times
    assert patient.findings() == {("SA210", changelog), ("SA210", repartition)}


def with_global_table(patient: Patient) -> str:
    """Gives the application a global table, and returns the table's topic."""
    rows = f"{patient.id}-rows"
    patient.create(rows, config={"cleanup.policy": "compact"})
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    table = builder.global_table(rows)
    builder.stream(patient.source).join(table, lambda left, right: left, key_selector=lambda key, _: key).to(
        patient.sink
    )
    patient.configure(builder.build())
    patient.prepare()
    return rows


@provokes("SA207")
def test_the_topic_of_a_global_table(patient: Patient) -> None:
    rows = with_global_table(patient)
    assert patient.findings() == set()
    patient.alter(rows, cleanup_policy="delete", retention_ms=str(30 * DAY_MS))
    assert patient.findings() == {("SA207", rows)}


@provokes("SA209")
def test_a_topic_that_deletes_dead_letters(patient: Patient) -> None:
    dead = f"{patient.id}-dead"
    patient.configure(dead_letter_queue_topic=dead)
    assert patient.findings() == set()  # there is no such topic yet
    patient.create(dead, config={"retention.ms": "-1"})
    assert patient.findings() == set()
    for damage, repair in (
        ({"retention_ms": str(365 * DAY_MS)}, {"retention_ms": "-1"}),
        ({"retention_bytes": "1000000"}, {"retention_bytes": "-1"}),
        ({"cleanup_policy": "compact"}, {"cleanup_policy": "delete"}),
    ):
        # A broker hears of a setting after the answer: the first look may ask one that does not know it yet.
        patient.alter(dead, **damage)
        until(lambda: patient.findings() == {("SA209", dead)}, 60, patient.findings)
        patient.alter(dead, **repair)
        until(lambda: patient.findings() == set(), 60, patient.findings)


@provokes("SA301")
def test_skew(patient: Patient) -> None:
    patient.feed(300)
    assert patient.findings() == set()
    patient.feed(1_500, partition=1)
    assert patient.findings() == {("SA301", patient.source)}


@provokes("SA302")
def test_a_hot_key(patient: Patient) -> None:
    patient.feed(300)
    assert patient.findings() == set()
    patient.feed(400, key=lambda number: "ZZ")
    assert ("SA302", patient.source) in patient.findings()
    (seen,) = (each["seen"] for each in patient.report()["findings"] if each["code"] == "SA302")
    assert "have the key b'ZZ'" in seen


def test_a_hot_key_of_a_long_partition(patient: Patient) -> None:
    """A sample has at most 1,000 records of each partition. So the key was a small part of the sample."""
    patient.feed(6_000, partition=0, key=lambda number: "ZZ" if number % 10 else f"k{number}")
    for partition in (1, 2):
        patient.feed(900, partition=partition)
    (seen,) = (each["seen"] for each in patient.report()["findings"] if each["code"] == "SA302")
    assert seen.startswith("about 69% of its records have the key b'ZZ', by the last 2,8")


@provokes("SA303")
def test_a_clock_that_is_ahead(patient: Patient) -> None:
    now = int(time.time() * 1000)
    patient.feed(5, partition=0, timestamp=now + 10_000)
    assert patient.findings() == set()
    patient.feed(1, partition=2, timestamp=now + 3_600_000)
    assert patient.findings() == {("SA303", f"{patient.source}-2")}


@provokes("SA206")
def test_a_repartition_topic_that_is_compacted(patient: Patient) -> None:
    patient.configure(windows(patient))
    patient.prepare()
    repartition = f"{patient.id}-by-minute-repartition"
    patient.alter(repartition, cleanup_policy="compact")
    (found,) = patient.report()["findings"]
    assert (found["code"], found["subject"], found["seen"]) == (
        "SA206",
        repartition,
        "cleanup.policy=compact",
    )
    assert "cleanup.policy=delete,retention.ms=-1" in found["remedy"]
    patient.alter(repartition, cleanup_policy="compact,delete", retention_ms="3600000")
    until(
        lambda: [each["seen"] for each in patient.report()["findings"]] == ["cleanup.policy=compact,delete"],
        60,
        patient.findings,
    )


@provokes("SA303")
def test_records_of_global_topics_are_looked_at(patient: Patient) -> None:
    rows = with_global_table(patient)
    patient.feed(400, key=lambda number: "ZZ", topic=rows)
    assert patient.findings() == set()  # each worker reads the whole topic, so a hot key does no harm there
    patient.feed(1, partition=2, timestamp=int(time.time() * 1000) + 3_600_000, topic=rows)
    assert patient.findings() == {("SA303", f"{rows}-2")}


async def nothing(stream: Any) -> None:
    async for _ in stream:
        pass


@provokes("SA212")
def test_internal_topics_that_were_deleted(patient: Patient) -> None:
    """The doctor left topics out that do not exist, so it did not see the deleted changelog of a table."""
    patient.configure(windows(patient))
    patient.prepare()
    patient.app.agent(patient.app.topic(patient.sink), name="books")(nothing)
    patient.app.Table("balances", default=int, partitions=3)
    changelog, repartition = f"{patient.id}-by-minute-changelog", f"{patient.id}-by-minute-repartition"
    balances = f"{patient.id}-balances-changelog"
    assert patient.findings() == set(), "nothing was processed yet"
    patient.commit(5, 5, 5)
    assert patient.findings() == set(), "agents have processed nothing yet"
    patient.feed(10, topic=patient.sink)
    patient.feed(10, topic=repartition)
    topics = patient.sink, repartition
    commit_offsets(patient.bootstrap, patient.id, [TopicPartition(topic, 0, 1) for topic in topics])
    assert patient.findings() == {("SA212", balances)}
    patient.delete(changelog)
    assert patient.findings() == {("SA212", changelog), ("SA212", balances)}
    patient.delete(repartition)
    assert patient.findings() == {("SA212", topic) for topic in (repartition, changelog, balances)}


def test_topics_of_agents_and_consumers(patient: Patient) -> None:
    """The doctor looked only at the topics of the topology."""
    names = [f"{patient.id}-{name}" for name in ("charges", "statements", "balances-changelog", "cards")]
    charges, statements, _, cards = names
    for name in names:
        patient.create(name)
    app = patient.app
    app.agent(app.topic(charges), sink=[app.topic(statements)], name="books")(nothing)
    app.Table("balances", default=int, partitions=3)
    app.consume(cards, name="card")(lambda record: None)
    assert patient.findings() == set()
    for name in names:
        patient.alter(name, min_insync_replicas="1")
    assert patient.findings() == {("SA102", name) for name in names}
    for name in names:
        patient.alter(name, min_insync_replicas="2", retention_ms=str(DAY_MS))
    assert patient.findings("--outage", "25") == {("SA201", charges), ("SA201", cards)}


@provokes("SA213")
def test_a_compacted_input_of_a_stream_but_not_of_a_table(patient: Patient) -> None:
    rows = f"{patient.id}-rows"
    patient.create(rows, config={"cleanup.policy": "compact"})
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    table = builder.table(rows, materialized=Materialized("rows"))
    builder.stream(patient.source).join(table, lambda left, right: left).to(patient.sink)
    patient.configure(builder.build())
    patient.prepare()
    assert patient.findings() == set()
    patient.alter(patient.source, cleanup_policy="compact,delete")
    assert ("SA213", patient.source) in patient.findings()
    patient.alter(patient.source, cleanup_policy="delete")
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    builder.stream(rows).to(patient.sink)
    patient.configure(builder.build())
    assert patient.findings() == {("SA213", rows)}


@provokes("SA214")
def test_inputs_that_do_not_exist(patient: Patient) -> None:
    """The doctor found nothing, although no worker could start."""
    misspelled, airports = f"{patient.id}-flihgts", f"{patient.id}-airports"
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    builder.global_table(airports, materialized=Materialized("airports"))
    builder.stream(misspelled).group_by_key().count()
    patient.configure(builder.build())
    assert patient.findings() == {("SA214", misspelled), ("SA214", airports)}
    patient.create(airports, config={"cleanup.policy": "compact"})
    assert patient.findings() == {("SA214", misspelled)}
    patient.create(misspelled)
    assert patient.findings() == set()


class Keep(Processor):
    def process(self, record: Record) -> None:
        self.context.get_state_store("rows").put(record.key, record.value)


def expiring_table(builder: StreamsBuilder, topic: str) -> None:
    builder.table(topic, materialized=Materialized("rows", ttl=timedelta(days=1)))


def table_of_a_stream(builder: StreamsBuilder, topic: str) -> None:
    builder.stream(topic).to_table(materialized=Materialized("rows"))


def global_table(builder: StreamsBuilder, topic: str) -> None:
    builder.global_table(topic)


def read_only_store(builder: StreamsBuilder, topic: str) -> Topology:
    spec = Stores.key_value("rows", TEXT, TEXT)
    return builder.build().add_read_only_state_store(
        spec, "read", topic, "keep", Keep, key_serde=TEXT, value_serde=TEXT
    )


@pytest.mark.parametrize("describe", [expiring_table, table_of_a_stream, global_table, read_only_store])
def test_a_compacted_input_that_fills_a_store_is_no_danger(
    patient: Patient, describe: Callable[[StreamsBuilder, str], Topology | None]
) -> None:
    rows = f"{patient.id}-rows"
    patient.create(rows, config={"cleanup.policy": "compact"})
    builder = StreamsBuilder(StreamsConfig(patient.id, default_key_serde=TEXT, default_value_serde=TEXT))
    builder.stream(patient.source).to(patient.sink)
    topology = describe(builder, rows)
    patient.configure(topology or builder.build())
    patient.prepare()
    assert patient.findings() == set()
