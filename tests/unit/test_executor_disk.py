"""The state of streaming tasks on an executor's disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.runners.spark import executor_disk
from streamapp.runners.spark.executor_disk import ExecutorDisk
from streamapp.state.backend import WriteSet


def test_a_state_beside_a_locked_one_is_deleted_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_disk, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(executor_disk.tempfile, "tempdir", str(tmp_path))
    config = SimpleNamespace(state_dir=str(tmp_path / "state"))
    plan: Any = SimpleNamespace(config=config, application_id="app", fingerprint="f")
    disk = ExecutorDisk(plan)
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
