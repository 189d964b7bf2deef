"""Forks of the stem behave as processes that Python starts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ..processes import run_streamapp, start_worker


def test_a_fork_has_its_own_arguments_environment_streams_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "forked_app.py").write_text(
        'import os; raise ValueError(os.environ["TOLD"] + os.getcwd() + input())'
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TOLD": "a-setting"}
    done = run_streamapp("describe", "forked_app", env=env, typed=b"typed\n")
    root = Path(__file__).parents[2]
    assert (done.returncode, f"a-setting{root}typed" in done.stderr) == (1, True), done.stderr
    done = run_streamapp("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: streamapp" in done.stdout


def test_a_fork_is_killed_by_a_signal(tmp_path: Path) -> None:
    (tmp_path / "waiting_app.py").write_text("import time; print('waits', flush=True); time.sleep(600)")
    worker = start_worker("waiting_app", tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    worker.wait_for("waits")
    assert worker.alive
    worker.signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert not worker.alive
