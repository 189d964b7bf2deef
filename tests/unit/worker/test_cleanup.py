from __future__ import annotations

from pathlib import Path

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
