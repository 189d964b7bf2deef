"""Rows on disk that are older than the tombstones of their changelogs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.records import TopicPartition
from streamapp.runners import aged_state
from streamapp.runners.aged_state import forget_aged_rows, state_on_disk, tombstone_seconds
from streamapp.runners.worker.placement import TaskId
from streamapp.serdes import StringSerde
from streamapp.state.backend import StateDamagedError, WriteSet
from streamapp.state.directory import StateDirectory
from streamapp.state.rocks import RocksBackend
from streamapp.topology.plan import Plan

TEXT = StringSerde()
TASK = TaskId(0, 0)
DAY = 86_400
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY * 1000)}
ROWS = {"counts": [(b"a", b"1"), (b"z\xff\xff", b"2")], "lengths": [(b"b", b"3")]}


def plan() -> Plan:
    """One task with two stores."""
    builder = StreamsBuilder(StreamsConfig("app"))
    grouped = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    grouped.count(materialized=Materialized("counts", key_serde=TEXT))
    grouped.count(materialized=Materialized("lengths", key_serde=TEXT))
    return builder.build().plan()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    """State of both stores at offset 40 of their changelogs, written three days ago."""
    with StateDirectory(tmp_path, "app") as directory:
        path = directory.task_path(str(TASK))
        backend = RocksBackend(path)
        backend.write(
            WriteSet(puts={name: list(rows) for name, rows in ROWS.items()}, offsets=dict.fromkeys(ROWS, 40))
        )
        backend.close()
        (path / "written-at").write_bytes(b"%013d" % int((time.time() - 3 * DAY) * 1000))
        yield directory


def forget(
    directory: StateDirectory,
    ends: dict[str, int],
    settings: dict[str, str] | None = COMPACTED,  # None: the worker may not ask
) -> dict[str, int]:
    """Calls the functions with these ends of the changelogs, and returns the offsets that they say are left."""
    planned, task = plan(), str(TASK)
    admin: Any = SimpleNamespace(
        describe_configs=lambda asked, **_: {each: answer(settings) for each in asked}
    )
    changelogs = {(task, name): TopicPartition(f"app-{name}-changelog", 0) for name in ROWS}
    left = forget_aged_rows(
        {task: state_on_disk(directory.task_path(task))},
        changelogs,
        tombstone_seconds(planned, admin),
        lambda partitions: {tp: ends[tp.topic] for tp in partitions if tp.topic in ends},
    )
    return dict(left[task].offsets)


def answer(settings: dict[str, str] | None) -> Future[Any]:
    future: Future[Any] = Future()
    if settings is None:
        future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    else:
        future.set_result({name: SimpleNamespace(value=value) for name, value in settings.items()})
    return future


def on_disk(directory: StateDirectory) -> tuple[dict[str, list[tuple[bytes, bytes]]], dict[str, int]]:
    backend = RocksBackend(directory.task_path(str(TASK)))
    try:
        rows = {name: list(backend.table(name).range(None, None)) for name in ROWS}
        return rows, backend.offsets()
    finally:
        backend.close()


ENDS = {"app-counts-changelog": 60, "app-lengths-changelog": 41}
"""The changelog of counts has new records. That of lengths has only the marker of the last commit."""


@pytest.mark.parametrize("settings", [COMPACTED, {**COMPACTED, "cleanup.policy": "compact,delete"}, None])
def test_a_store_whose_changelog_may_lack_tombstones_begins_anew(directory, settings, caplog):
    assert forget(directory, ENDS, settings) == {"counts": 0, "lengths": 40}
    rows, offsets = on_disk(directory)
    assert rows == {"counts": [], "lengths": ROWS["lengths"]}
    assert offsets == {"counts": 0, "lengths": 40}
    assert "task 0_0: the rows of counts on disk are 3 days, 0:00:" in caplog.text


def test_a_store_whose_changelog_has_no_leader_begins_anew(directory):
    assert forget(directory, {"app-lengths-changelog": 41}) == {"counts": 0, "lengths": 40}


@pytest.mark.parametrize(
    ("ends", "settings"),
    [
        (dict.fromkeys(ENDS, 41), COMPACTED),
        (ENDS, {**COMPACTED, "delete.retention.ms": str(4 * DAY * 1000)}),
        (ENDS, {**COMPACTED, "cleanup.policy": "delete"}),
    ],
    ids=["nothing-new", "tombstones-are-there", "no-compaction"],
)
def test_other_stores_keep_their_rows(directory, ends, settings):
    assert forget(directory, ends, settings) == dict.fromkeys(ROWS, 40)
    assert on_disk(directory) == (ROWS, dict.fromkeys(ROWS, 40))


def test_a_store_that_was_written_lately_keeps_its_rows(directory):
    backend = RocksBackend(directory.task_path(str(TASK)))
    backend.write(WriteSet(offsets={"counts": 50}))
    backend.close()
    assert forget(directory, ENDS) == {"counts": 50, "lengths": 40}


def test_an_opening_makes_rows_no_younger(directory):
    """A worker that failed at each start opened its state every day, and kept rows without their tombstones."""
    RocksBackend(directory.task_path(str(TASK))).close()
    assert forget(directory, ENDS) == {"counts": 0, "lengths": 40}
    later = {**ENDS, "app-lengths-changelog": 70}
    assert forget(directory, later) == {"counts": 0, "lengths": 0}, (
        "to empty one store makes the others no younger"
    )


def test_the_files_tell_the_age_of_the_state_of_an_earlier_release(directory):
    path = directory.task_path(str(TASK))
    (path / "written-at").unlink()
    for file in path.iterdir():
        os.utime(file, (time.time() - 3 * DAY, time.time() - 3 * DAY))
    RocksBackend(path).close()
    assert state_on_disk(path).written < time.time() - 2 * DAY
    assert forget(directory, ENDS) == {"counts": 0, "lengths": 40}


def test_a_damaged_note_of_the_time_counts_as_old(directory, caplog):
    """The log said that the rows are 20,786 days old."""
    (directory.task_path(str(TASK)) / "written-at").write_bytes(b"")
    assert forget(directory, ENDS) == {"counts": 0, "lengths": 40}
    assert "the note of their last write is damaged" in caplog.text
    assert "days" not in caplog.text


def test_damaged_rows_are_left_to_the_task(directory, monkeypatch):
    """The worker ended at each start, although a task with damaged state is restored."""

    def damaged(folder: str, stores: Any) -> None:
        raise StateDamagedError("Corruption: block checksum mismatch")

    monkeypatch.setattr(aged_state, "_forget", damaged)
    left = forget_aged_rows(
        {str(TASK): state_on_disk(directory.task_path(str(TASK)))},
        {(str(TASK), "counts"): TopicPartition("app-counts-changelog", 0)},
        {"app-counts-changelog": DAY},
        lambda partitions: dict.fromkeys(partitions, 60),
    )
    assert left == {}
