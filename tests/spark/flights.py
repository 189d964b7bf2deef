"""The reference application as its user runs it: commands, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import agents
from agents.comparison import Comparison, batch_tables, compare, worker_tables
from streamapp.broker import KafkaSettings
from streamapp.testing import Backlog, WorkerProcess

from ..processes import free_port

__all__ = ["Flights"]

ROOT = Path(__file__).parents[2]
STREAMAPP = (sys.executable, "-c", "from streamapp.cli import main; main()")
DECEMBER = "2013-12-01T00:00-05:00"  # in New York


@dataclass
class Flights:
    """The application on a broker of its own; what its processes print goes into files of ``folder``."""

    servers: str
    folder: Path

    def ingest(self, *options: str) -> str:
        return self._run("ingest", sys.executable, "-m", "agents.ingest", *options)

    def streamapp(self, *arguments: str) -> str:
        """What a command prints; it has to succeed."""
        return self._run(arguments[0], *STREAMAPP, *arguments)

    def killed(self, failpoint: str, *arguments: str) -> str:
        """What a command prints until ``kill -9`` ends it at a failpoint, and Spark with it."""
        code, printed = self._process(arguments[0], [*STREAMAPP, *arguments], failpoint)
        assert code == -signal.SIGKILL, printed
        return printed

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        port = free_port()
        environ = {**self._environ, "FLIGHTS_WEB_PORT": str(port)}
        with WorkerProcess(
            "agents", web_port=port, log=self.folder / "worker.log", environ=environ
        ) as worker:
            worker.wait_until_ready(timeout=600)
            yield worker

    def comparisons(self, worker: WorkerProcess) -> list[Comparison]:
        """The worker's tables, when it has processed everything, and Spark's of everything."""
        streams, kafka = agents.app.streams, KafkaSettings(bootstrap_servers=self.servers)
        with Backlog(streams.plan, kafka) as backlog:
            while not backlog.empty():
                worker.check()
                time.sleep(0.5)
        spark = batch_tables(streams.topology, agents.app.config.replace(bootstrap_servers=self.servers))
        return compare(worker_tables(worker, spark), spark)

    @property
    def _environ(self) -> dict[str, str]:
        return {
            "STREAMAPP_BOOTSTRAP_SERVERS": self.servers,
            "FLIGHTS_DATADIR": str(self.folder / "worker"),
        }

    def _run(self, name: str, *command: str) -> str:
        code, printed = self._process(name, list(command))
        assert code == 0, printed
        return printed

    def _process(self, name: str, command: list[str], failpoint: str = "") -> tuple[int, str]:
        log = self.folder / f"{name}-{failpoint or 'whole'}.log".replace(":", "-")
        environ = {**os.environ, **self._environ, "STREAMAPP_FAILPOINT": failpoint, "COLUMNS": "200"}
        with log.open("wb") as file:
            running = subprocess.Popen(
                command, stdout=file, stderr=file, env=environ, cwd=ROOT, start_new_session=True
            )
        try:
            code = running.wait()
        finally:
            kill_session(running.pid)
        return code, log.read_text()


def kill_session(group: int) -> None:
    """Kills what a process has left of its session: Spark's JVM ends by itself, but not at once."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
