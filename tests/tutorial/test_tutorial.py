"""The tutorial, as a newcomer types it: its files, its test, its commands with a real broker and two workers.

`page.py` reads the page. Ports are free ones: the page's stand in for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamapp.broker.ports import free_port
from tests.tutorial.page import PAGE, files, steps

_PATIENCE_S = 180


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in files():
        (tmp_path / name).write_text(code)
    return tmp_path


@pytest.fixture
def environ() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_page_has_no_block_that_no_test_runs() -> None:
    text = PAGE.read_text()
    assert text.count("\n```sh\n") == len(steps())
    assert text.count("\n```python\n") == len(files())
    assert [step.command for step in steps() if step.kind not in ("run", "background", "until", "skip")] == []


def test_the_test_of_the_page_passes_without_broker(folder: Path, environ: dict[str, str]) -> None:
    (command,) = (step.command for step in steps() if "pytest -q" in step.command)
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=environ, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


class Terminals:
    """Where the commands of the page run: one after the other, or in the background."""

    def __init__(self, folder: Path, environ: dict[str, str], ports: dict[str, str]) -> None:
        self._folder, self._environ, self._ports = folder, environ, ports
        self._opened: list[subprocess.Popen[bytes]] = []

    def _shell(self, command: str) -> list[str]:
        for of_page, ours in self._ports.items():
            command = command.replace(of_page, ours)
        return ["bash", "-ec", command]

    def run(self, command: str) -> None:
        done = subprocess.run(
            self._shell(command),
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}{done.stdout.decode()}"

    def background(self, command: str) -> None:
        log = (self._folder / f"terminal-{len(self._opened)}.log").open("wb")
        shell = self._shell(f"exec {command}")
        self._opened.append(
            subprocess.Popen(shell, cwd=self._folder, env=self._environ, stdout=log, stderr=subprocess.STDOUT)
        )

    def until(self, command: str, text: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        answer = ""
        while time.monotonic() < deadline:
            done = subprocess.run(
                self._shell(command), cwd=self._folder, env=self._environ, capture_output=True, text=True
            )
            answer = done.stdout + done.stderr
            if text in done.stdout:
                return
            time.sleep(0.5)
        logs = "\n".join(log.read_text()[-2000:] for log in sorted(self._folder.glob("terminal-*.log")))
        raise AssertionError(f"{command} never answered {text}, at last: {answer}\n{logs}")

    def close(self) -> None:
        for worker in self._opened:
            worker.terminate()
        for worker in self._opened:
            worker.wait(60)


@pytest.fixture
def terminals(folder: Path, environ: dict[str, str]) -> Iterator[Terminals]:
    kafka, first, second = free_port(), free_port(), free_port()
    environ |= {"STREAMAPP_BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}"}
    ports = {
        "broker start": f"broker start --port {kafka}",
        "worker shop --web-port 6067": f"worker shop --web-port {second}",
        "worker shop\n": f"worker shop --web-port {first}\n",
        "localhost:6066": f"127.0.0.1:{first}",
        "localhost:6067": f"127.0.0.1:{second}",
    }
    opened = Terminals(folder, environ, ports)
    try:
        yield opened
    finally:
        opened.close()
        subprocess.run(["bash", "-c", "streamapp broker stop"], cwd=folder, env=environ, check=False)


@pytest.mark.broker
def test_the_live_part_of_the_page(terminals: Terminals) -> None:
    for step in steps():
        if step.kind == "run":
            terminals.run(step.command)
        elif step.kind == "background":
            terminals.background(step.command)
        elif step.kind == "until":
            terminals.until(step.command, step.text)
