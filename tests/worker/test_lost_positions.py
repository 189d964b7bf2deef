"""Records are deleted that a worker was about to read: of inputs, and of changelogs."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.app import App
from streamapp.broker.removed_records import RemovedRange
from streamapp.broker.requests import NO_TIMEOUT
from streamapp.cli import main
from streamapp.config import StreamsConfig
from streamapp.engine.collector import NoWayOut
from streamapp.engine.metadata import TOPIC_ID, encode_metadata
from streamapp.engine.runner_ports import InMemory, TaskEnvironment
from streamapp.errors import TaskCorruptedError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners import topic_ids
from streamapp.runners.topic_ids import LostTopic, TopicIds
from streamapp.runners.worker.clients import admin_client, list_offsets
from streamapp.runners.worker.fetch import Fetcher
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.membership import StaleMemberError
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import ChangelogReader, RestoreProgress
from streamapp.serdes import StringSerde
from streamapp.stores import Stores
from streamapp.topology.plan import InternalTopic, Plan, Subtopology

from ..group_offsets import commit_offsets
from ..processes import until
from .conftest import PARTITIONS, Cluster
from .counting import counting


class Task:
    """Notes the offsets that it is given."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def enqueue(self, tp: TopicPartition, batch: RecordBatch) -> None:
        self.offsets += batch.offsets


class Copy(LiveTask):
    """A task with a store whose changelog is any log; notes the offsets that it restores."""

    def __init__(self, log: TopicPartition, policy: str) -> None:
        environment = TaskEnvironment(
            Plan(StreamsConfig("copy"), (), ()), NoWayOut("a copy"), wall_clock_ms=lambda: 0
        )
        spec = Stores.key_value("rows", StringSerde(), StringSerde(), store_type="in_memory")
        changelog = InternalTopic(log.topic, "changelog", None, {"cleanup.policy": policy})
        sub = Subtopology(0, (), (spec,), (), {"rows": changelog})
        super().__init__(environment, sub, TaskId(0, log.partition), InMemory(), ())
        self.offsets: list[int] = []

    def restore(self, store: str, batch: RecordBatch) -> None:
        super().restore(store, batch)
        self.offsets += batch.offsets


class Log:
    """A topic with one partition."""

    def __init__(self, cluster: Cluster, records: int) -> None:
        self.cluster = cluster
        self.partition = TopicPartition(f"{cluster.id}-log", 0)
        cluster.create(self.partition.topic, partitions=1)
        self.extend(records)

    def extend(self, records: int) -> None:
        self.cluster.feed(records, topic=self.partition.topic)

    def delete_before(self, offset: int) -> None:
        below = [KafkaPartition(*self.partition, offset)]
        for future in self.cluster.admin.delete_records(below).values():
            future.result()

    def recreate(self) -> None:
        self.cluster.recreate(self.partition.topic, partitions=1)


def config_of(cluster: Cluster, reset: Any) -> StreamsConfig:
    return StreamsConfig(cluster.id, bootstrap_servers=cluster.bootstrap, auto_offset_reset=reset)


def no_doubt() -> None:
    """The group has this member."""


def replaced() -> None:
    raise StaleMemberError("the group has gone on")


class Input:
    """A fetcher that reads a log from an offset that the log does not have any more."""

    def __init__(self, log: Log, position: int, reset: Any, confirm: Any) -> None:
        config = config_of(log.cluster, reset)
        self.task = Task()
        self.fetcher = Fetcher(
            config,
            admin_client(config),
            confirm,
            lambda topic: config.auto_offset_reset,
            {},
            lambda found: (),
        )
        live: Any = SimpleNamespace(inputs=(log.partition,), starts={log.partition: position}, task=self.task)
        self.fetcher.assign([live])

    def reads(self, offset: int) -> bool:
        self.fetcher.poll(0.1)
        return offset in self.task.offsets


@pytest.mark.parametrize(("reset", "first"), [("earliest", 30), ("latest", 50)])
def test_reading_goes_on_behind_records_that_retention_removed(
    cluster: Cluster, reset: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(cluster, 50)
    log.delete_before(30)
    given = Input(log, 10, reset, no_doubt)
    until(
        lambda: given.reads(first) or given.fetcher.read_up_to(log.partition) == 50, 60, lambda: caplog.text
    )
    log.extend(1)
    until(lambda: given.reads(50), 60, lambda: caplog.text)
    given.fetcher.close()
    assert given.task.offsets == list(range(first, 51))
    assert f"{log.partition}: records 10 to 29 are gone (retention) before they were processed" in caplog.text
    assert given.fetcher.removed.found == {log.partition: RemovedRange(first - 10, 10, first - 1)}


def test_records_that_others_have_purged_are_not_missed_by_a_worker_that_was_replaced(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(cluster, 50)
    log.delete_before(30)
    given = Input(log, 10, "earliest", replaced)
    with pytest.raises(StaleMemberError):
        until(lambda: given.reads(30), 60, lambda: caplog.text)
    given.fetcher.close()
    assert given.task.offsets == []
    assert "are gone" not in caplog.text


def test_a_position_beyond_the_end_of_a_log_that_was_made_anew_is_refused(cluster: Cluster) -> None:
    log = Log(cluster, 50)
    log.recreate()
    log.extend(5)
    given = Input(log, 50, "earliest", no_doubt)
    with pytest.raises(
        TaskCorruptedError, match="position in .* is 50, but the topic ends at 5: .*streamapp reset"
    ):
        until(lambda: given.reads(0), 60, lambda: given.task.offsets)
    given.fetcher.close()


class Changelog:
    """A reader of a changelog from an offset that the log does not have any more."""

    def __init__(self, log: Log, position: int, policy: str) -> None:
        config = config_of(log.cluster, "earliest")
        self.task = Copy(log.partition, policy)
        self.reader = ChangelogReader(config, admin_client(config), ListenerCalls())
        self.progress = RestoreProgress(self.task, "rows", log.partition, position, 50, position)
        self.reader._begin([self.progress])

    def done(self) -> bool:
        self.reader._read(0.1, 1_000)
        return self.progress.done


def test_a_changelog_of_windows_is_read_on_behind_rows_that_have_expired(cluster: Cluster) -> None:
    log = Log(cluster, 50)
    log.delete_before(30)
    given = Changelog(log, 10, "compact,delete")
    until(given.done, 60, lambda: given.progress)
    given.reader.close()
    assert given.task.offsets == list(range(30, 50))


def test_a_changelog_of_a_table_that_has_lost_rows_is_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    log = Log(cluster, 50)
    log.delete_before(30)
    given = Changelog(log, 10, "compact")
    with pytest.raises(TaskCorruptedError, match="begins at offset 30, and the local state of rows is at 10"):
        until(given.done, 60, lambda: given.progress)
    given.reader.close()


def test_topics_that_are_deleted_and_created_anew_are_noticed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.0)
    log = Log(cluster, 1)
    admin = admin_client(config_of(cluster, "earliest"))
    ids = TopicIds(admin, [log.partition.topic, cluster.source])
    until(lambda: ids.lost() is None and len(ids._ids) == 2, 30, lambda: ids._ids)
    log.recreate()
    found: list[LostTopic] = []
    until(lambda: found.extend(filter(None, [ids.lost()])) or bool(found), 30, lambda: found)
    assert found[0] == (log.partition.topic, True)
    ids = TopicIds(admin, [log.partition.topic, cluster.source])
    until(lambda: ids.lost() is None and len(ids._ids) == 2, 30, lambda: ids._ids)
    for future in cluster.admin.delete_topics([cluster.source]).values():
        future.result()
    found.clear()
    until(lambda: found.extend(filter(None, [ids.lost()])) or bool(found), 30, lambda: found)
    assert found[0] == (cluster.source, False)


def test_a_worker_refuses_offsets_that_belong_to_an_earlier_topic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic is as long as the old one, so the offsets are inside the log, and would pass over its records."""
    cluster.feed(1_000)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    metadata = encode_metadata(5, {f"{TOPIC_ID}{cluster.topic_id(cluster.source)}": 0})
    cluster.recreate(cluster.source)
    cluster.feed(1_000)
    # Brokers delete the offsets together with the topic. A worker that runs goes on in the new topic, and commits again.
    config = config_of(cluster, "earliest")
    parts = [TopicPartition(cluster.source, number) for number in range(PARTITIONS)]
    ends = list_offsets(admin_client(config), parts, latest=True)
    at = [KafkaPartition(*tp, end, metadata=metadata) for tp, end in ends.items()]
    commit_offsets(cluster.bootstrap, cluster.id, at)
    refused = cluster.start()
    until(lambda: not refused.alive, 60, cluster.story)
    assert f"the topic {cluster.source} was deleted and created anew since the group" in refused.text()
    assert cluster.totals()[1] == 1_000

    app = App(cluster.id, topology=counting(cluster.source, cluster.sink), config=config)
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    shown = CliRunner().invoke(main, ["offsets", "show", "it", "--json"])
    assert "committed before the topic was deleted and created anew" in shown.output
    # These are the offsets of the group already. They are committed all the same, without the id of the old topic.
    moved = CliRunner().invoke(main, ["offsets", "reset", "it", "--to-latest", "--execute"])
    assert moved.exit_code == 0, moved.output
    again = cluster.start()
    again.wait_for("ready: ")
    cluster.feed(100)
    until(lambda: cluster.totals()[1] == 1_100, 60, cluster.story)
    assert again.terminate() == 0


def test_a_worker_refuses_tables_whose_offsets_are_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the offsets of a stopped group had expired, the worker silently counted all records a second time."""
    cluster.feed(400)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    (deleted,) = cluster.admin.delete_consumer_groups([cluster.id], request_timeout=NO_TIMEOUT).values()
    deleted.result()
    for folder in ("a", "elsewhere"):  # with the state on disk, and without
        refused = cluster.start(folder)
        until(lambda: not cluster.workers[-1].alive, 120, cluster.story)
        assert refused.wait() != 0
        assert f"has rows, but the group {cluster.id} has no committed offsets of any input" in refused.text()
    assert cluster.totals()[1] == 400

    config = config_of(cluster, "earliest")
    app = App(cluster.id, topology=counting(cluster.source, cluster.sink), config=config)
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    moved = CliRunner().invoke(main, ["offsets", "reset", "it", "--to-latest", "--keep-tables", "--execute"])
    assert moved.exit_code == 0, moved.output
    again = cluster.start("elsewhere")
    again.wait_for("ready: ")
    cluster.feed(100)
    until(lambda: cluster.totals()[1] == 500, 60, cluster.story)
    assert again.terminate() == 0


def test_a_worker_refuses_a_changelog_that_was_created_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the state on disk, the worker silently went on with an empty table in the middle of its input."""
    cluster.feed(400)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    changelog = f"{cluster.id}-counts-changelog"
    cluster.recreate(changelog)
    refused = cluster.start("elsewhere")
    until(lambda: not refused.alive, 120, cluster.story)
    assert f"the changelog {changelog} was deleted and created anew since the group" in refused.text()

    app = App(
        cluster.id, topology=counting(cluster.source, cluster.sink), config=config_of(cluster, "earliest")
    )
    monkeypatch.setitem(sys.modules, "it", SimpleNamespace(app=app))
    shown = CliRunner().invoke(main, ["offsets", "show", "it", "--json"])
    assert f"committed before {changelog} was deleted and created anew" in shown.output
    kept = ["offsets", "reset", "it", "--shift-by", "0", "--keep-tables", "--execute"]
    moved = CliRunner().invoke(main, kept)
    assert moved.exit_code == 0, moved.output
    again = cluster.start("elsewhere")
    again.wait_for("ready: ")
    cluster.feed(100)
    until(lambda: cluster.totals(changelog)[1] == 100, 60, cluster.story)
    assert again.terminate() == 0
