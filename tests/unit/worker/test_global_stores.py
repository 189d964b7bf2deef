"""The letters of a worker's global stores: which are kept, who writes them, and the bound. Without a broker."""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamapp import OutputRecord, Response, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.broker.consumer import ConsumerEvent
from streamapp.broker.lasting_consumer import LastingConsumer
from streamapp.broker.removed_records import RemovedRange
from streamapp.errors import BrokerError, ConfigError, TopologyError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners import topic_ids
from streamapp.runners.worker import global_stores
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.placement import TaskId
from streamapp.state.row_memory import RowMemory

TEXT = StringSerde()
RATES = TopicPartition("rates", 0)
FIRST, OTHER = TaskId(1, 0), TaskId(1, 1)


class Cluster:
    """The parts of brokers that global stores ask: a consumer, the ends of logs, the offsets of the group."""

    def __init__(self) -> None:
        self.ends = {RATES: 100}
        self.group: dict[TopicPartition, tuple[int, str]] = {RATES: (-1001, "")}
        self.arrived: list[tuple[TopicPartition, RecordBatch]] = []
        self.paused: set[TopicPartition] = set()
        self.asked = 0
        self.topic_id = "first"
        self.partitions = 1
        self.events: list[ConsumerEvent] = []
        self.removed = 0
        self.added: list[dict[TopicPartition, int]] = []

    def end(self, tp: TopicPartition) -> int:
        return -1

    def list_latest(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {tp: Future() for tp in wanted}
        for tp, future in futures.items():
            future.set_result(SimpleNamespace(offset=self.ends[TopicPartition(tp.topic, tp.partition)]))
        return futures

    def describe(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        described: Future[Any] = Future()
        described.set_result(SimpleNamespace(topic_id=self.topic_id, partitions=range(self.partitions)))
        return {"rates": described}

    def remove(self, partitions: list[TopicPartition]) -> None: ...

    def add(self, positions: dict[TopicPartition, int], epochs: object) -> None:
        self.added.append(positions)

    def committed(self, *_: Any) -> dict[TopicPartition, tuple[int, str]]:
        self.asked += 1
        return self.group

    def list_offsets(
        self, admin: Any, partitions: Any, *, latest: bool, leaderless: set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        unled = {tp for tp in partitions if self.ends[tp] < 0}
        leaderless |= unled
        return {tp: self.ends[tp] if latest else 0 for tp in partitions if tp not in unled}

    def assign(self, positions: Any, epochs: object) -> None: ...
    def close(self) -> None: ...

    def take_lost(self) -> bool:
        return False

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.paused.discard(tp)

    def poll(self, most: int, timeout: float) -> tuple[Any, list[Any]]:
        batches, self.arrived = self.arrived, []
        events, self.events = self.events, []
        return batches, events


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(
        global_stores, "open_consumer", lambda settings, ends: LastingConsumer(lambda: cluster, ends=ends)
    )  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(global_stores, "find_committed", cluster.committed)
    monkeypatch.setattr(global_stores, "list_offsets", cluster.list_offsets)
    return cluster


def opened(
    cluster: Cluster | None = None,
    listeners: ListenerCalls | None = None,
    with_tasks: bool = True,
    **config: Any,
) -> GlobalStores:
    settings = StreamsConfig(
        "app",
        **{"dead_letter_queue_topic": "dead", "deserialization_exception_handler": "continue", **config},
    )
    builder = StreamsBuilder(settings)
    builder.global_table("rates", key_serde=TEXT, value_serde=TEXT)
    if with_tasks:
        builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    topics: Any = SimpleNamespace(partitions={"rates": 1}, sources={1: ("in",)})
    cluster = cluster or Cluster()
    admin: Any = SimpleNamespace(
        list_offsets=cluster.list_latest, describe_topics=cluster.describe, list_topics=lambda *_, **__: None
    )
    return GlobalStores(
        builder.build().plan(), admin, topics, RowMemory(1_000_000), listeners or ListenerCalls()
    )


def read(stores: GlobalStores, cluster: Cluster, *bad: int, size: int = 1) -> None:
    values = [b"\xff" * size for _ in bad]
    cluster.arrived.append((RATES, RecordBatch([b"k"] * len(bad), values, [1] * len(bad), list(bad))))
    stores.poll(0)


def offsets(stores: GlobalStores) -> list[bytes]:
    letters = stores.letters({FIRST})
    return [dict(letter.headers)["__streams.errors.offset"] for letter in letters.waiting] if letters else []


def test_the_worker_with_the_first_task_goes_on_behind_the_position_of_the_group(cluster: Cluster) -> None:
    cluster.group = {RATES: (6, "")}
    stores = opened()
    read(stores, cluster, 3, 5, 6, 9)
    assert offsets(stores) == [b"6", b"9"]
    assert stores.letters({OTHER}) is None
    stores.letters_written()
    assert stores.letters({FIRST}) is None
    stores.close()


def test_a_letter_of_a_function_that_nobody_would_write_ends_the_worker(cluster: Cluster) -> None:
    """The letter would wait in memory for a first task, which no worker has."""
    answers = [Response.resume(), Response.resume(OutputRecord("own", None, b"x", 1))]
    stores = opened(
        with_tasks=False,
        dead_letter_queue_topic=None,
        deserialization_exception_handler=lambda context, error: answers.pop(0),
    )
    read(stores, cluster, 3)
    with pytest.raises(
        ConfigError, match="made a dead letter of the record of rates-0 at offset 5.*no worker"
    ):
        read(stores, cluster, 5)
    stores.close()


def test_the_start_waits_for_a_partition_without_a_leader(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    caplog.set_level("INFO")
    cluster.ends[RATES] = -1
    stores = opened(cluster)
    stores.poll(0)
    assert not stores.ready
    assert stores.leaderless == "the global tables wait for a leader of rates-0"
    assert "wait for a leader of rates-0. No task starts before" in caplog.text
    now += 300
    stores.poll(0)
    now += 6
    with pytest.raises(BrokerError, match="rates-0 has had no leader for 306 s"):
        stores.poll(0)
    cluster.ends[RATES] = 100
    for _ in range(2):
        now += 2
        with suppress(BrokerError):
            stores.poll(0)
    assert cluster.added == [{RATES: 0}]
    assert stores.leaderless is None
    assert not stores.ready
    read(stores, cluster, 99)
    assert stores.ready
    stores.close()


def test_a_table_goes_on_if_a_partition_loses_its_leader_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stores = opened(cluster)
    read(stores, cluster, 99)
    cluster.ends[RATES] = -1
    for _ in range(1_000):
        now += 1
        stores.poll(0)
    assert stores.ready
    assert stores.leaderless == "the global tables wait for a leader of rates-0"
    cluster.events = [ConsumerEvent(RATES, 100, KafkaError(KafkaError._AUTO_OFFSET_RESET))]
    stores.poll(0)
    assert cluster.added[-1] == {RATES: 100}
    stores.close()


def test_letters_that_others_have_written_meanwhile_are_forgotten(cluster: Cluster) -> None:
    stores = opened()
    read(stores, cluster, 3, 9)
    cluster.group = {RATES: (4, "")}
    stores.opened({OTHER})
    assert offsets(stores) == [b"3", b"9"]
    stores.opened({FIRST, OTHER})
    assert offsets(stores) == [b"9"]
    stores.close()


def test_the_position_of_a_topic_that_was_deleted_counts_for_nothing(cluster: Cluster) -> None:
    cluster.group = {RATES: (101, "")}
    stores = opened()
    read(stores, cluster, 3)
    assert offsets(stores) == [b"3"]
    stores.close()


def test_reading_waits_until_there_is_room_for_letters(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_stores, "_LOOK_SECONDS", 0)
    stores = opened()
    read(stores, cluster, 3, size=20_000_000)
    stores.poll(0)
    assert cluster.paused == {RATES}
    assert stores.presses({FIRST})
    assert not stores.presses({OTHER})
    cluster.group = {RATES: (4, "")}  # another worker has written it
    stores.poll(0)
    assert cluster.paused == set()
    assert not stores.presses({FIRST})
    stores.close()


def test_positions_are_committed_again_before_brokers_delete_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.group = {RATES: (4, "")}
    stores = opened()
    assert stores.letters({FIRST}) is None
    monkeypatch.setattr(global_stores, "_AGAIN_SECONDS", 0)
    letters = stores.letters({FIRST})
    assert letters is not None
    assert (letters.waiting, letters.positions) == ([], {RATES: 4})
    stores.close()


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"dead_letter_queue_topic": None}, 0),
        ({}, 1),
        (
            {
                "dead_letter_queue_topic": None,
                "deserialization_exception_handler": lambda context, error: "skip",
            },
            1,
        ),
    ],
)
def test_the_group_is_asked_only_if_there_can_be_letters(
    cluster: Cluster, config: dict[str, Any], asked: int
) -> None:
    opened(**config).close()
    assert cluster.asked == asked


def test_a_global_topic_of_which_nothing_arrives_is_fetched_anew_and_makes_the_worker_stuck(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stores = opened(cluster)
    read(stores, cluster, 3)
    for _ in range(60):
        now += 1
        stores.poll(0)
    assert (cluster.added, stores.stalled) == ([], None)
    for _ in range(20):
        now += 1
        stores.poll(0)
    assert cluster.added == [{RATES: 4}]
    assert stores.stalled is not None
    assert "the global topic rates-0 has stood at offset 4 of 100" in stores.stalled
    assert [(each.partition, each.position, each.end) for each in stores.inputs] == [(RATES, 4, 100)]
    read(stores, cluster, 99)
    assert stores.stalled is None
    stores.close()


GONE = KafkaError(KafkaError._AUTO_OFFSET_RESET)


def test_a_topic_with_new_partitions_ends_the_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the new partitions were missing in the table until the next start, without a word."""
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.0)
    stores = opened(cluster)
    for _ in range(3):
        stores.poll(0)
    cluster.partitions = 3
    with pytest.raises(TopologyError, match="rates had 1 partition when this worker started, and has 3 now"):
        for _ in range(3):
            stores.poll(0)
    stores.close()


def test_a_topic_that_was_created_anew_ends_the_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the old topic stayed in the table, and the first rows of the new topic were passed over."""
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.0)
    stores = opened(cluster)
    for _ in range(3):
        stores.poll(0)
    cluster.topic_id = "second"
    with pytest.raises(BrokerError, match="the global topic rates was deleted and created anew"):
        for _ in range(3):
            stores.poll(0)
    stores.close()


def test_a_position_that_the_new_topic_does_not_reach_ends_the_worker(cluster: Cluster) -> None:
    stores = opened(cluster)
    read(stores, cluster, 99)
    cluster.events = [ConsumerEvent(RATES, 100, GONE)]
    with pytest.raises(BrokerError, match="Restart this worker"):
        stores.poll(0)
    stores.close()


def test_reading_goes_on_behind_rows_that_retention_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores = opened(cluster)
    monkeypatch.setattr(global_stores, "list_offsets", lambda *_, **__: {RATES: 40})
    cluster.events = [ConsumerEvent(RATES, 0, GONE)]
    stores.poll(0)
    assert cluster.added == [{RATES: 40}]
    assert f"{RATES}: records 0 to 39 are gone (retention)" in caplog.text
    assert stores.removed.found == {RATES: RemovedRange(40, 0, 39)}
    stores.close()
