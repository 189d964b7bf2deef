"""The two workers of a soak: their starts and kills, their memory, files and disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job

__all__ = ["ONE", "TWO", "Taken", "Workers"]

ONE, TWO = "one", "two"
"""Worker one lives as long as the run; worker two is killed."""
MIB = 2**20


class Taken(NamedTuple):
    """The measurements of both workers: in each pair, first worker one, then worker two."""

    rss_mib: tuple[float, float]
    files: tuple[int, int]
    disk_mib: float
    """The size of both state folders."""


class Workers:
    """The two workers. ``job.folder`` gets a state folder for each worker, and ``logs`` a file for each start."""

    def __init__(self, job: Job, build: Path, logs: Path) -> None:
        self._job, self._build, self._logs = job, build, logs
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs both workers. At the end they stop with a commit, or after an error at once."""
        try:
            self._start(ONE)
            self._start(TWO)
            yield
            for process in self._processes.values():
                process.terminate()
                process.wait(120)
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def kill(self) -> None:
        """``kill -9`` of worker two, which starts again at once with the state that is on disk."""
        self._processes[TWO].kill()
        self._processes[TWO].wait()
        self._start(TWO)

    def taken(self) -> Taken:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"worker {name} has ended by itself; {self._logs} has its log")
        one, two = (psutil.Process(self._processes[name].pid) for name in (ONE, TWO))
        return Taken(
            (one.memory_info().rss / MIB, two.memory_info().rss / MIB),
            (one.num_fds(), two.num_fds()),
            _disk(Path(self._job.folder)) / MIB,
        )

    def _start(self, name: str) -> None:
        self._starts += 1
        job = replace(self._job, folder=f"{self._job.folder}/{name}", variant=name)
        log = self._logs / f"{self._starts:02}-{name}.log"
        self._processes[name] = PEERS["streamapp"].start(job, self._build, log)


def _disk(folder: Path) -> int:
    """Bytes that the files of a folder take. RocksDB deletes files meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total
