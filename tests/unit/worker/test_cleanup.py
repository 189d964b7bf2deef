from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamapp import App, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.runners.worker.cleanup import StateCleaner
from streamapp.runners.worker.placement import TaskId
from streamapp.state.directory import StateDirectory

A, B = TaskId(0, 0), TaskId(1, 2)


def test_state_is_deleted_once_it_was_not_held_for_the_delay(tmp_path: Path) -> None:
    now = 0.0
    with StateDirectory(tmp_path, "app") as directory:
        for task in (A, B):
            (directory.task_path(str(task)) / "file").touch()
        cleaner = StateCleaner(directory, 10_000, lambda: now)
        assert cleaner.clean({A}) == []
        now = 9.0
        assert cleaner.clean({A, B}) == []  # it came back
        assert cleaner.clean({A}) == []
        now = 18.0
        assert cleaner.clean({A}) == []
        now = 19.0
        assert cleaner.clean({A}) == [B]
        assert directory.task_ids() == (str(A),)
        now = 100.0
        assert cleaner.clean({A}) == []


async def test_a_folder_that_cannot_be_deleted_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error went into the log of debugging, and the disk filled up in silence."""
    config = StreamsConfig("t", state_cleanup_delay_ms=1, bootstrap_servers="localhost:1")

    def passing(builder: StreamsBuilder) -> None:
        builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to("out")

    streams = App("t", topology=passing, config=config, datadir=tmp_path).streams

    def call(_: object) -> Future[None]:
        streams._stopping = True  # after this attempt
        failed: Future[None] = Future()
        failed.set_exception(PermissionError("0_1: read-only file system"))
        return failed

    await streams._clean_up(SimpleNamespace(call=call), None)  # type: ignore[arg-type]
    assert "could not be deleted: PermissionError('0_1: read-only file system')" in caplog.text
