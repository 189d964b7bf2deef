"""The writer of a task: each row once, however often it is interrupted, and no row that compaction would remove."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamapp import StreamsConfig
from streamapp._base import failpoints
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.engine.runner_ports import Position
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.spark import handover_write
from streamapp.runners.spark.handover_group import Group, Progress
from streamapp.runners.spark.handover_write import TaskWriter

from .support import read

pytestmark = [pytest.mark.broker]

Row = tuple[str, bytes | None, bytes | None]
"""``out`` or ``log``, key, value."""


class Task:
    """One task of an application whose backfill has begun."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.servers = kafka.bootstrap_servers
        self.id = f"writer-{uuid.uuid4().hex[:6]}"
        topics = [TopicSpec(f"{self.id}-{name}", 1, {"retention.ms": "-1"}) for name in ("in", "out", "log")]
        KafkaAdmin(KafkaSettings(bootstrap_servers=self.servers)).ensure_topics(topics)
        self.config = StreamsConfig(self.id, bootstrap_servers=self.servers)
        self.input = TopicPartition(f"{self.id}-in", 0)

    def begin(self, **logs: int) -> None:
        note = Progress("job", 7, 0, "was", logs=logs)
        Group(self.config).commit({self.input: Position(3, note.to_metadata())})

    def write(self, rows: list[Row], size: int = 3) -> tuple[int, int]:
        writer = TaskWriter(self.config, "job", 0, {0: self.input}, {f"{self.id}-log": "store"})
        return writer.write(0, self._batches(rows, size))

    def _batches(self, rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([f"{self.id}-{name}" for name, _, _ in part]),
                    pa.array([0] * len(part), pa.int32()),
                    pa.array([key for _, key, _ in part], pa.binary()),
                    pa.array([value for _, _, value in part], pa.binary()),
                    pa.array([1_000] * len(part), pa.int64()),
                    pa.nulls(len(part), headers),
                ],
                ["name", "task", "key", "value", "timestamp", "headers"],
            )

    def records(self, name: str) -> list[tuple[bytes | None, bytes | None]]:
        return [(key, value) for key, value, _ in read(self.servers, f"{self.id}-{name}")]


@pytest.fixture
def task(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    monkeypatch.setattr(handover_write, "ROWS_PER_TRANSACTION", 4)
    yield Task(kafka)
    failpoints.arm("")


ROWS: list[Row] = [("out", b"k%d" % i, b"%d" % i) for i in range(10)]


@pytest.mark.parametrize(("point", "left"), [("sent", 4), ("committed", 8)])
def test_a_second_run_writes_what_the_first_has_not(task: Task, point: str, left: int) -> None:
    task.begin()
    failpoints.arm(f"backfill-rows-{point}:raise:2")
    with pytest.raises(failpoints.FailpointError):
        task.write(ROWS)
    assert task.write(ROWS, size=5) == (10, 10 - left)
    assert task.records("out") == [(key, value) for _, key, value in ROWS]
    entry = Group(task.config).read([task.input])[task.input]
    note = Progress.of(entry.metadata)
    assert note is not None
    assert (entry.offset, note.cut, note.was, note.rows) == (3, 7, "was", 10)
    assert task.write(ROWS) == (10, 0)


def test_other_rows_than_before_are_refused(task: Task) -> None:
    task.begin()
    failpoints.arm("backfill-rows-committed:raise")
    with pytest.raises(failpoints.FailpointError):
        task.write(ROWS)
    with pytest.raises(
        StreamsError, match="results of task 0_0 up to result 4 are not those.*do not give the same"
    ):
        task.write([("out", b"k0", b"x"), *ROWS[1:]])


def test_fewer_rows_than_before_are_refused(task: Task) -> None:
    task.begin()
    failpoints.arm("backfill-rows-committed:raise")
    with pytest.raises(failpoints.FailpointError):
        task.write(ROWS)
    with pytest.raises(StreamsError, match="results of task 0_0 up to result 4 are not those"):
        task.write(ROWS[:3])


def test_a_group_that_is_not_in_a_backfill_is_not_written_for(task: Task) -> None:
    with pytest.raises(StreamsError, match="does not say any more that this backfill writes"):
        task.write(ROWS)


CHANGES: list[Row] = [
    ("log", b"a", b"1"),
    ("log", b"a", b"2"),
    ("log", b"b", b"1"),
    ("log", b"b", None),
    ("log", b"c", b"3"),
]


def test_a_compacted_changelog_gets_the_last_value_of_each_key(task: Task) -> None:
    task.begin()
    assert task.write([("out", b"a", b"x"), ("out", b"a", None), *CHANGES])[0] == 4
    assert task.records("out") == [(b"a", b"x"), (b"a", None)]
    assert task.records("log") == [(b"a", b"2"), (b"c", b"3")]


def test_a_deletion_is_written_where_there_was_state(task: Task) -> None:
    task.begin(store=12)
    task.write(CHANGES)
    assert task.records("log") == [(b"a", b"2"), (b"b", None), (b"c", b"3")]


def test_a_deletion_is_left_out_of_changelogs_only() -> None:
    """An output topic may have the name of a store."""
    writer = TaskWriter(StreamsConfig("app"), "job", 0, {}, {"app-counts-changelog": "counts"})
    rows = [
        (topic, 0, b"a", value, 1, ())
        for topic in ("counts", "app-counts-changelog")
        for value in (b"1", None)
    ]
    assert [*writer._wanted(iter(rows), logs=())] == rows[:2]
    assert [*writer._wanted(iter(rows), logs=("counts",))] == [*rows[:2], rows[3]]
