"""Workers as processes of their own, for the tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from streamapp.broker.ports import free_port

from .stem import Fork, fork

__all__ = ["Worker", "free_port", "run_module", "run_streamapp", "start_module", "start_worker", "until"]

_ROOT = Path(__file__).parent.parent


@dataclass
class Worker:
    """A process, mostly of Faust, and the file that its output goes to."""

    process: subprocess.Popen[bytes] | Fork
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, timeout: float = 60.0) -> None:
        """Until the worker has logged this."""
        until(lambda: text in self.text() or not self.alive, timeout, self.text)
        assert text in self.text(), self.text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """Ends it however it is, stopped or not."""
        if self.alive:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


def start_worker(
    app: str,
    log: Path,
    env: Mapping[str, str],
    *,
    command: tuple[str, ...] = ("worker", "-l", "info"),
    wrapper: tuple[str, ...] = (),
) -> Worker:
    """``faust -A app``, run from the root of the project; ``wrapper`` is put in front of the command.

    Without a wrapper, the worker is a fork. Faust then ignores the options ``--datadir`` and ``--loop``, because Faust
    reads them while Python imports Faust.
    """
    line = [_script("faust"), "-A", app, *command]
    environ = {**os.environ, **env}
    with Path(os.devnull).open() as nothing, log.open("wb") as out:
        if wrapper:
            process: subprocess.Popen[bytes] | Fork = subprocess.Popen(
                [*wrapper, sys.executable, *line],
                cwd=_ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environ,
            )
        else:
            process = fork(line, environ, _ROOT, stdin=nothing, stdout=out, stderr=out)
    return Worker(process, log)


def start_module(module: str, *arguments: str, log: Path, failpoint: str = "") -> Worker:
    """``python -m module``, as a fork, run from the root of the project."""
    environ = {**os.environ, "STREAMAPP_FAILPOINT": failpoint}
    with Path(os.devnull).open() as nothing, log.open("wb") as out:
        process = fork(["-m", module, *arguments], environ, _ROOT, stdin=nothing, stdout=out, stderr=out)
    return Worker(process, log)


def run_streamapp(
    *arguments: str, env: Mapping[str, str] = os.environ, typed: bytes = b"", timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Runs a command of streamapp in this process's folder. ``env`` is the whole environment."""
    return _run([_script("streamapp"), *arguments], env, typed, timeout)


def run_module(module: str, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m module`` in this process's folder. ``env`` is the whole environment."""
    return _run(["-m", module, *arguments], env, b"", 120.0)


def _run(
    line: list[str], env: Mapping[str, str], typed: bytes, timeout: float
) -> subprocess.CompletedProcess[str]:
    with TemporaryFile() as into, TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        into.write(typed)
        into.seek(0)
        process = fork(line, env, Path.cwd(), stdin=into, stdout=out, stderr=errors)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(line, code, *texts)


def _script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def until(condition: Callable[[], bool], timeout: float, what: Callable[[], object]) -> None:
    """Waits for a condition; fails with ``what()`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
