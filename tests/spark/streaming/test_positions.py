"""The offsets at which a run begins, and topics that are not those of the run before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde, TimeWindows, Topology
from streamapp._base import failpoints
from streamapp.broker import KafkaAdmin
from streamapp.engine.metadata import from_outside, topic_ids_in
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, StreamsError, TaskCorruptedError, TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.spark import streaming
from streamapp.runners.spark.backfill import Backfill
from streamapp.runners.spark.batch_source import KafkaReader
from streamapp.runners.spark.changelogs import KafkaChangelogs
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.streaming import BatchMetrics, SparkStream

from ...processes import until
from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]
TEXTS: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}
PATIENCE_SECONDS = 240


class Copy:
    """An application that copies a topic to another."""

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        self.cluster = cluster
        self.batches: list[BatchMetrics] = []
        self.source, self.target = (f"{cluster.prefix}-{name}-{kind}" for kind in ("in", "out"))
        self.admin = KafkaAdmin(cluster.settings)
        self.admin.ensure_topics([(self.source, 1, {}), (self.target, 1, {})])
        self.config = StreamsConfig(
            f"{cluster.prefix}-{name}",
            bootstrap_servers=cluster.servers,
            state_dir=str(cluster.folder),
            **settings,
        )

    def topology(self) -> Topology:
        builder = StreamsBuilder(self.config)
        builder.stream(self.source, **TEXTS).to(self.target, **TEXTS)
        return builder.build()

    def send(self, values: Iterable[str]) -> None:
        # A producer that is opened anew knows the topics as they are now.
        producer = Producer({"bootstrap.servers": self.cluster.servers, "enable.idempotence": True})
        for value in values:
            producer.produce(self.source, value, "k", 0)
        assert producer.flush(60) == 0

    def create_anew(self) -> None:
        clients = AdminClient({"bootstrap.servers": self.cluster.servers})
        for future in clients.delete_topics([self.source]).values():
            future.result()
        while self.source in self.admin.partition_counts([self.source]):
            time.sleep(0.1)
        self.admin.ensure_topics([(self.source, 1, {})])

    def delete_before(self, offset: int) -> None:
        """As retention would."""
        admin = AdminClient({"bootstrap.servers": self.cluster.servers})
        for future in admin.delete_records([KafkaPartition(self.source, 0, offset)]).values():
            future.result()

    def values(self) -> list[bytes | None]:
        return [value for _, value, _ in read(self.cluster.servers, self.target)]

    def stream(self) -> SparkStream:
        return SparkStream(
            self.topology(),
            self.config,
            self.cluster.spark,
            checkpoint=str(self.cluster.folder / "checkpoint"),
            interval_ms=100,
            on_batch=self.batches.append,
        )

    def run(self, wanted: list[bytes], then: Callable[[], object] = lambda: None) -> None:
        """Runs until the target has these values. ``then`` is called when the run has begun."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.stream() as running:
            then()
            while self.values() != wanted:
                assert time.monotonic() < deadline, self.values()
                assert not running.wait(0.2)


def offsets_of(reader: KafkaReader) -> list[int]:
    """The offsets of the records that are left."""
    found: list[int] = []
    while (batch := reader.read()) is not None:
        found += batch.offsets
    return found


def test_a_run_begins_where_the_configuration_says(cluster: Cluster) -> None:
    app = Copy(cluster, "latest", auto_offset_reset="latest")
    app.send(["old"])
    app.run([b"new"], lambda: app.send(["new"]))
    app.send(["newer"])
    app.run([b"new", b"newer"])


def test_the_begin_of_a_source_lasts_without_a_record(cluster: Cluster) -> None:
    """A run that ended before its first record left out the records that came before the next run."""
    app = Copy(cluster, "begin")
    builder = StreamsBuilder(app.config)
    builder.stream(app.source, **TEXTS, offset_reset="latest").to(app.target, **TEXTS)
    app.topology = builder.build  # type: ignore[method-assign]
    app.send(["old"])
    source, group = TopicPartition(app.source, 0), Group(app.config)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with app.stream() as running:
        while source not in (found := group.read([source])):
            assert time.monotonic() < deadline
            assert not running.wait(0.2)
    assert found[source].offset == 1
    app.send(["between"])
    app.run([b"between"])


def test_a_run_goes_on_behind_records_that_retention_has_removed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    app = Copy(cluster, "expired")
    app.send(["a"])
    app.run([b"a"])
    app.send("bcd")
    app.delete_before(3)
    app.run([b"a", b"d"])
    assert f"{app.source}-0: records 1 to 2 are gone (retention)" in caplog.text


def test_a_run_refuses_a_topic_that_was_created_anew(cluster: Cluster) -> None:
    app = Copy(cluster, "anew")
    source = TopicPartition(app.source, 0)
    app.send("abc")
    app.run([b"a", b"b", b"c"])
    group = Group(app.config)
    position = group.read([source])[source]
    assert len(topic_ids_in(position.metadata)) == 1
    app.create_anew()
    app.send("defgh")
    # Brokers delete the offsets together with the topic, but a member that still runs may commit them again.
    group.commit({source: position})
    with pytest.raises(TopologyError, match="was deleted and created anew"), app.stream():
        pass
    # Kafka Streams, for example, writes no ids.
    group.commit({source: position._replace(offset=9, metadata="")})
    with pytest.raises(TaskCorruptedError, match="is 9, but the topic ends at 5"), app.stream():
        pass


def test_a_run_refuses_tables_whose_offsets_are_lost(cluster: Cluster) -> None:
    """A run counted all records a second time in its tables."""
    app = Copy(cluster, "lost")
    builder = StreamsBuilder(app.config)
    counted = builder.stream(app.source, **TEXTS).group_by_key()
    counted.count(materialized=Materialized("counts", key_serde=StringSerde()))
    changelog = f"{app.config.application_id}-counts-changelog"
    app.admin.ensure_topics([(changelog, 1, {"cleanup.policy": "compact"})])
    producer = Producer({"bootstrap.servers": cluster.servers})
    producer.produce(changelog, (0).to_bytes(8, "big") + (3).to_bytes(8, "big"), "k")
    assert producer.flush(60) == 0
    app.topology = builder.build  # type: ignore[method-assign]
    lost = f"task 0_0: the table counts has rows, but the group {app.config.application_id} has no committed offsets"
    with pytest.raises(TopologyError, match=lost), app.stream():
        pass


def test_a_run_refuses_offsets_that_another_tool_has_set_although_tables_have_rows(cluster: Cluster) -> None:
    """A run counted records twice. Offsets that are set before the first row are taken, and committed anew."""
    app = Copy(cluster, "moved")
    builder = StreamsBuilder(app.config)
    counted = builder.stream(app.source, **TEXTS).group_by_key()
    counted.count(materialized=Materialized("counts", key_serde=StringSerde()))
    app.topology = builder.build  # type: ignore[method-assign]
    changelog = f"{app.config.application_id}-counts-changelog"
    app.admin.ensure_topics([(changelog, 1, {"cleanup.policy": "compact"})])
    source, group = TopicPartition(app.source, 0), Group(app.config)
    group.commit({source: Position(0)})
    with app.stream():
        until(
            lambda: not from_outside(group.read([source])[source].metadata), 60, lambda: group.read([source])
        )
    producer = Producer({"bootstrap.servers": cluster.servers})
    producer.produce(changelog, (0).to_bytes(8, "big") + (3).to_bytes(8, "big"), "k")
    assert producer.flush(60) == 0
    with app.stream():
        pass
    group.commit({source: Position(0)})
    moved = f"the table counts has rows, but another tool than streamapp has set offsets .*: 0 of {source}"
    with pytest.raises(TopologyError, match=moved), app.stream():
        pass
    with pytest.raises(TopologyError, match=moved):
        Backfill(app.topology(), app.config, spark=cluster.spark).run()


def test_a_run_refuses_an_unfinished_backfill_at_once(cluster: Cluster) -> None:
    app = Copy(cluster, "unfinished")
    app.send("abc")
    failpoints.arm("backfill-written:raise")
    with pytest.raises(failpoints.FailpointError):
        Backfill(app.topology(), app.config, spark=cluster.spark).run()
    unfinished = "a backfill of this application has not come to its end"
    with pytest.raises(StreamsError, match=unfinished), app.stream():
        pass
    Backfill(app.topology(), app.config, spark=cluster.spark).run()
    app.send("d")
    app.run([b"a", b"b", b"c", b"d"])


def test_offsets_of_a_backfill_know_their_topics(cluster: Cluster) -> None:
    app = Copy(cluster, "handed")
    app.send("abc")
    Backfill(app.topology(), app.config, spark=cluster.spark).run()
    source = TopicPartition(app.source, 0)
    position = Group(app.config).read([source])[source]
    assert position.offset == 3
    assert len(topic_ids_in(position.metadata)) == 1


def test_a_run_ends_if_a_topic_is_created_anew(cluster: Cluster) -> None:
    app = Copy(cluster, "lost")
    app.send("abc")

    def create_anew() -> None:
        while app.values() != [b"a", b"b", b"c"]:
            time.sleep(0.2)
        app.create_anew()
        app.send("defgh")

    with pytest.raises(TopologyError, match=f"{app.source} was deleted and created anew during this run"):
        app.run([b"never"], create_anew)
    assert app.values() == [b"a", b"b", b"c"]


def commit_beside(config: StreamsConfig, position: KafkaPartition) -> None:
    """Commits as a producer that is in no group: brokers take such an offset also while the group has members."""
    client = {"bootstrap.servers": config.bootstrap_servers}
    producer = Producer({**client, "transactional.id": f"{config.application_id}-beside"})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = Consumer({**client, "group.id": config.application_id})
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 60)
    consumer.close()
    producer.commit_transaction(60)


def test_a_run_ends_if_a_topic_has_lost_records(cluster: Cluster) -> None:
    """An offset beyond the end of a log stands for a log that has lost its last records (unclean leader election)."""
    app = Copy(cluster, "short")
    app.send("abc")

    def lose_records() -> None:
        while app.values() != [b"a", b"b", b"c"]:
            time.sleep(0.2)
        commit_beside(app.config, KafkaPartition(app.source, 0, 9))

    with pytest.raises(TaskCorruptedError, match="is 9, but the topic ends at 3.*streamapp reset"):
        app.run([b"never"], lose_records)
    assert app.values() == [b"a", b"b", b"c"]


def test_a_run_goes_on_if_records_are_removed_while_it_runs(cluster: Cluster) -> None:
    app = Copy(cluster, "expiring")
    app.send("abc")
    with app.stream() as running:
        while app.values() != [b"a", b"b", b"c"]:
            assert not running.wait(0.2)
        with running._one_batch:
            app.send("def")
            app.delete_before(5)
        while app.values() != [b"a", b"b", b"c", b"f"]:
            assert not running.wait(0.2)


def test_records_that_are_removed_before_a_task_reads_them(cluster: Cluster) -> None:
    app = Copy(cluster, "removed")
    app.send("abcde")
    source = TopicPartition(app.source, 0)
    client = {"bootstrap.servers": cluster.servers}
    app.delete_before(3)
    with (
        closing(KafkaReader(client, source, 0, 5)) as reader,
        pytest.raises(BrokerError, match="no record at offset 0 any more.*longer retention"),
    ):
        offsets_of(reader)
    with closing(KafkaReader(client, source, 0, 5, lambda offset: 3)) as reader:
        assert offsets_of(reader) == [3, 4]
    with closing(KafkaReader(client, source, 0, 2, lambda offset: 3)) as reader:
        assert offsets_of(reader) == []
    # Workers delete the changelog records of expired windows, also while Spark reads them as a table.
    for end, left in ((5, [3, 4]), (2, [])):
        changelogs = KafkaChangelogs(client, {source: (0, end)}, shortened=True)
        with closing(changelogs.open(source, 0, end)) as reader:
            assert offsets_of(reader) == left


def test_a_run_ends_if_an_input_is_deleted(cluster: Cluster) -> None:
    app = Copy(cluster, "deleted")
    app.send("abc")

    def delete() -> None:
        while app.values() != [b"a", b"b", b"c"]:
            time.sleep(0.2)
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.delete_topics([app.source]).values():
            future.result()

    with pytest.raises(TopologyError, match=f"has {app.source} no more: the topic was deleted.*Create"):
        app.run([b"never"], delete)


def test_a_run_ends_if_an_input_gets_partitions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_COUNT_SECONDS", 0.5)
    app = Copy(cluster, "grown")
    app.send("abc")

    def add_partitions() -> None:
        while app.values() != [b"a", b"b", b"c"]:
            time.sleep(0.2)
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.create_partitions([NewPartitions(app.source, 3)]).values():
            future.result()

    message = (
        f"the topic {app.source} had 1 partition when this run started, and now has 3. Start the run again"
    )
    with pytest.raises(TopologyError, match=message):
        app.run([b"never"], add_partitions)


def test_new_partitions_are_named_as_the_reason_for_a_lost_membership(cluster: Cluster) -> None:
    app = Copy(cluster, "rebalanced")
    app.send("abc")

    def lose_membership() -> None:
        while app.values() != [b"a", b"b", b"c"]:
            time.sleep(0.2)
        with running._one_batch:
            admin = AdminClient({"bootstrap.servers": cluster.servers})
            for future in admin.create_partitions([NewPartitions(app.source, 2)]).values():
                future.result()
            assert running._membership is not None
            running._membership.lost = "the group was rebalanced"

    with app.stream() as running, pytest.raises(TopologyError, match="had 1 partition .* now has 2"):
        lose_membership()
        running.wait(PATIENCE_SECONDS)


def test_a_run_waits_for_the_last_commit_of_a_worker(cluster: Cluster) -> None:
    """Brokers may still hold the offsets of a transaction when the worker has left the group."""
    app = Copy(cluster, "settled")
    app.send("abc")
    client = {"bootstrap.servers": cluster.servers, "transactional.id": f"{app.config.application_id}-worker"}
    worker = Producer(client)
    worker.init_transactions(60)
    worker.begin_transaction()
    for value in "abc":
        worker.produce(app.target, value, "k", 0)
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": app.config.application_id})
    offsets = [KafkaPartition(app.source, 0, 3)]
    worker.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
    consumer.close()
    app.send("d")

    def commit_later() -> None:
        deadline = time.monotonic() + 20
        while not any(batch.processed for batch in app.batches) and time.monotonic() < deadline:
            time.sleep(0.1)
        worker.commit_transaction(60)

    threading.Thread(target=commit_later).start()
    app.run([b"a", b"b", b"c", b"d"])


def test_a_run_with_another_topology_has_its_own_global_tables(cluster: Cluster) -> None:
    """Both runs use the same Python workers of Spark."""
    app = Copy(cluster, "globals")
    tables = {name: f"{cluster.prefix}-{name}" for name in ("people", "towns")}
    app.admin.ensure_topics([(topic, 1, {}) for topic in tables.values()])
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    for name, topic in tables.items():
        producer.produce(topic, name, "k", 0)
    assert producer.flush(60) == 0

    def joined(topic: str) -> SparkStream:
        builder = StreamsBuilder(app.config)
        table = builder.global_table(topic, **TEXTS)
        stream = builder.stream(app.source, **TEXTS)
        rows = stream.join(table, lambda value, row: f"{value} {row}", key_selector=lambda key, _: key)
        rows.to(app.target, **TEXTS)
        checkpoint = str(cluster.folder / "checkpoint")
        return SparkStream(builder.build(), app.config, cluster.spark, checkpoint=checkpoint, interval_ms=100)

    wanted: list[bytes] = []
    for name, topic in tables.items():
        app.send(["a"])
        wanted.append(f"a {name}".encode())
        deadline = time.monotonic() + PATIENCE_SECONDS
        with joined(topic) as running:
            while app.values() != wanted:
                assert time.monotonic() < deadline, app.values()
                assert not running.wait(0.2)


def test_a_run_deletes_the_records_of_repartition_topics_that_it_has_processed(cluster: Cluster) -> None:
    app = Copy(cluster, "purged", repartition_purge_interval_ms=1)
    builder = StreamsBuilder(app.config)
    renamed = builder.stream(app.source, **TEXTS).select_key(lambda key, value: value)
    renamed.repartition(name="renamed", **TEXTS).to(app.target, **TEXTS)
    between = TopicPartition(f"{app.config.application_id}-renamed-repartition", 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    checkpoint = str(cluster.folder / "checkpoint")
    app.send("abc")
    with SparkStream(
        builder.build(), app.config, cluster.spark, checkpoint=checkpoint, interval_ms=100
    ) as running:
        while app.values() != [b"a", b"b", b"c"] or app.admin.log_start_offsets([between])[between] < 3:
            assert time.monotonic() < deadline, app.values()
            assert not running.wait(0.2)
        app.send("d")
        while app.values() != [b"a", b"b", b"c", b"d"]:
            assert not running.wait(0.2)


def test_a_run_deletes_changelog_records_of_expired_windows(cluster: Cluster) -> None:
    app = Copy(cluster, "expired", repartition_purge_interval_ms=1)
    builder = StreamsBuilder(app.config)
    grouped = builder.stream(app.source, **TEXTS).group_by_key()
    counts = grouped.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=1))).count(
        materialized=Materialized("seconds")
    )
    counts.to_stream(lambda window, count: window.key).map_values(str).to(app.target, **TEXTS)
    changelog = TopicPartition(f"{app.config.application_id}-seconds-changelog", 0)
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    deadline = time.monotonic() + PATIENCE_SECONDS
    minutes: list[int] = []

    def feed() -> None:
        """One record of the next minute, in a micro-batch of its own."""
        minutes.append(len(minutes) + 1)
        producer.produce(app.source, "v", "k", 0, timestamp=minutes[-1] * 60_000)
        assert producer.flush(60) == 0
        while len(app.values()) < len(minutes):
            assert time.monotonic() < deadline, app.values()
            assert not running.wait(0.2)

    checkpoint = str(cluster.folder / "checkpoint")
    with SparkStream(
        builder.build(), app.config, cluster.spark, checkpoint=checkpoint, interval_ms=100
    ) as running:
        while len(minutes) < 12 or not app.admin.log_start_offsets([changelog])[changelog]:
            feed()
        first = app.admin.log_start_offsets([changelog])[changelog]
        assert 0 < first < app.admin.log_end_offsets([changelog])[changelog] - 1
    assert app.values() == [b"1"] * len(minutes)
