"""The state of streaming tasks on an executor's disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.records import TopicPartition
from streamapp.runners.spark import executor_disk
from streamapp.runners.spark.executor_disk import ExecutorDisk
from streamapp.state.backend import WriteSet


def plan_in(folder: Path) -> Any:
    config = SimpleNamespace(state_dir=str(folder / "state"))
    sub = SimpleNamespace(changelog_topics={"s": SimpleNamespace(name="app-s-changelog")})
    return SimpleNamespace(config=config, application_id="app", fingerprint="f", subtopologies=[sub])


def test_a_state_beside_a_locked_one_is_deleted_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_disk, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(executor_disk.tempfile, "tempdir", str(tmp_path))
    disk = ExecutorDisk(plan_in(tmp_path), {})
    first = disk.open("0_0", ["s"])
    first.write(WriteSet(puts={"s": [(b"k", b"v")]}))
    second = disk.open("0_0", ["s"])
    assert second.table("s").get(b"k") is None
    beside = [name for name in os.listdir(tmp_path) if name.startswith("streamapp-")]
    assert len(beside) == 1
    second.close()
    assert not (tmp_path / beside[0]).exists()
    first.close()
    again = disk.open("0_0", ["s"])
    assert again.table("s").get(b"k") == b"v"
    again.close()


def test_a_copy_of_an_earlier_changelog_is_not_used(tmp_path: Path) -> None:
    """`streamapp reset` deletes the changelogs, and cannot delete the copies on the disks of executors."""

    def stored(changelog_id: str) -> bytes | None:
        state = ExecutorDisk(plan_in(tmp_path), {"app-s-changelog": changelog_id, "in": "I"}).open(
            "0_0", ["s"]
        )
        found = state.table("s").get(b"k")
        state.write(WriteSet(puts={"s": [(b"k", changelog_id.encode())]}))
        state.close()
        return found

    assert [stored("A"), stored("A"), stored("B")] == [None, b"A", None]


def test_rows_that_are_older_than_the_tombstones_of_their_changelog_are_deleted(tmp_path: Path) -> None:
    disk, changelog = ExecutorDisk(plan_in(tmp_path), {}), TopicPartition("app-s-changelog", 0)

    def found(days: int) -> bytes | None:
        """A row that was written so long ago, in a state whose changelog has gone on. Tombstones stay for two days."""
        state = disk.open("0_0", ["s"])
        state.write(WriteSet(puts={"s": [(b"k", b"v")]}, offsets={"s": 7}))
        state.close()
        then = time.time() - days * 86_400
        for note in (tmp_path / "state").rglob("written-at"):
            note.write_bytes(b"%013d" % int(then * 1000))
        disk.forget_aged_rows(
            "0_0", {"s": changelog}, {changelog.topic: 2 * 86_400}, lambda _: {changelog: 90}
        )
        state = disk.open("0_0", ["s"])
        row, offsets = state.table("s").get(b"k"), state.offsets()
        state.close()
        assert offsets == {"s": 7 if row else 0}
        return row

    assert [found(1), found(3)] == [b"v", None]
    disk.forget_aged_rows("0_1", {"s": changelog}, {changelog.topic: 1}, lambda _: {})  # a task without state
