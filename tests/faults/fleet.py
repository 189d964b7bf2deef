"""The worker processes of one application on a cluster. Starts, faults, waits and ends go into the history."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from ..brokers import create_topics
from ..processes import Worker, free_port, start_worker
from .brokers import FaultyKafka
from .feed import PARTITIONS
from .history import History
from .watch import LogReader, get_json

__all__ = ["PATIENCE", "Fleet", "set_config"]

PATIENCE = 120.0
"""The longest time, in seconds, for something that has to happen, on a machine with other work."""


class Fleet:
    """Workers by name. A worker that is started again has the same state folder and port as before."""

    def __init__(self, kafka: FaultyKafka, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.id = f"f-{uuid.uuid4().hex[:8]}"
        self.history = History(folder / "history.jsonl")
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self._workers: dict[str, Worker] = {}
        self._ports: dict[str, int] = {}
        self._starts = 0
        self._ended: set[str] = set()
        """Workers whose end is in the history."""

    def create(self, *topics: str, partitions: int = PARTITIONS, **config: str) -> None:
        replicas = len(self.kafka.numbers)
        new = [NewTopic(t, partitions, replicas, config=config) for t in topics]
        create_topics(self.admin, new)

    def launch(self, name: str, module: str, env: Mapping[str, str], wrapper: tuple[str, ...] = ()) -> None:
        """Starts a worker of an application, with its port and its folder added to the environment."""
        self._starts += 1
        self._ended.discard(name)
        port = self._ports.setdefault(name, free_port())
        own = {"DATADIR": str(self.data(name)), "WEB_PORT": str(port)}
        log = self.folder / f"{self._starts:02}-{name}.log"
        self._workers[name] = start_worker(module, log, {**own, **env}, wrapper=wrapper)

    def data(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def ports(self) -> dict[str, int]:
        return {name: self._ports[name] for name, worker in list(self._workers.items()) if worker.alive}

    def ask(self, name: str, path: str) -> tuple[int | None, dict[str, Any]]:
        """The HTTP status and the body of a worker's answer."""
        return get_json(self._ports[name], path)

    def pid(self, name: str) -> int:
        return self._workers[name].process.pid

    def log(self, name: str) -> str:
        return self._workers[name].text()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.history.add("fault", what=f"{number.name} to {name}")
        self._workers[name].signal(number)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.killed(name)

    def killed(self, name: str) -> None:
        """Waits until the worker is killed (SIGKILL), by `kill` or by a failpoint."""
        code = self._end(name)
        self.history.add("exit", worker=name, code=code, wanted="killed", said=True)
        self.must(code == -signal.SIGKILL, f"{name} is killed")

    def stop(self, name: str, seconds: float = 60.0) -> None:
        """Sends SIGTERM to a worker, which has to end in time with exit code 0."""
        self.wait_until(lambda: "generation" in self.log(name), f"{name} is in the group")
        self.signal(name, signal.SIGTERM)
        code = self._end(name, seconds)
        self.history.add("exit", worker=name, code=code, wanted="clean", said=True)

    def ends(self, name: str, seconds: float = PATIENCE) -> None:
        """Waits until the worker has ended, with any exit code."""
        code = self._end(name, seconds)
        self.history.add("exit", worker=name, code=code, wanted="killed", said=True)
        self.must(code is not None, f"{name} ends")

    def fails(self, name: str, says: str, seconds: float = PATIENCE) -> None:
        """Waits until the worker has ended by itself, with the reason (a pattern) in its log."""
        code = self._end(name, seconds)
        said = re.search(says, re.sub(r"\s+", " ", self.log(name))) is not None
        self.history.add("exit", worker=name, code=code, wanted=says, said=said)

    def _end(self, name: str, seconds: float = PATIENCE) -> int | None:
        self._ended.add(name)
        try:
            return self._workers[name].wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def suspended(self, name: str) -> None:
        """Waits until a failpoint has stopped the worker as SIGSTOP does."""
        stat = Path(f"/proc/{self.pid(name)}/stat")
        self.wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{name} is stopped")

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        if any(not event["ok"] for event in self.history.of("wait")):
            seconds = min(seconds, 5.0)  # the run has failed already, so later waits are short
        deadline = time.monotonic() + seconds
        while not (ok := condition()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.history.add("wait", what=what, seconds=seconds, ok=ok)

    def must(self, ok: bool, what: str) -> None:
        """Writes into the history that ``what`` does not hold, unless ``ok``."""
        if not ok:
            self.history.add("wait", what=what, seconds=0, ok=False)

    def fallen(self) -> list[str]:
        """The workers that have ended by themselves."""
        return [
            name for name, worker in self._workers.items() if not worker.alive and name not in self._ended
        ]

    def read(self, topic: str) -> list[tuple[bytes, bytes]]:
        """The committed records of a topic."""
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        reader = LogReader(self.kafka.bootstrap_servers, partitions, read_committed=True)
        try:
            return [(message.key(), message.value()) for message in reader.rest()]
        finally:
            reader.close()

    def rows(self, table: str) -> list[dict[str, Any]] | None:
        """All entries of a table, from the views of one worker. None: no answer in time, which the history then has."""
        entries: list[dict[str, Any]] = []
        page: str | None = f"/tables/{table}/?limit=1000"
        port = next(iter(self.ports().values()))
        deadline = time.monotonic() + PATIENCE
        while page is not None:
            status, body = get_json(port, page, timeout=10)
            if status == 200:
                entries += body["entries"]
                page = body["next"]
            elif time.monotonic() > deadline:
                self.must(False, f"the views of {table} can be read, not {status} {body}")
                return None
            else:
                time.sleep(0.5)
        return entries

    def close_workers(self) -> None:
        """Ends all workers, and writes into the history which of them have ended by themselves before."""
        for name in self.fallen():
            worker = self._workers[name]
            self.history.add(
                "exit",
                worker=name,
                code=worker.process.returncode,
                wanted="to go on",
                said=False,
                log=worker.text()[-2_000:],
            )
        for worker in self._workers.values():
            worker.close()


def set_config(fleet: Fleet, topic: str, name: str, value: str) -> None:
    """Changes a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in fleet.admin.incremental_alter_configs([resource]).values():
        future.result()
    fleet.history.add("fault", what=f"{name}={value} of {topic}")
