"""One run of one scenario: its topics, its input, its workers, its history."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from ..processes import Worker, free_port, start_worker
from .brokers import FaultyKafka
from .feed import PARTITIONS, Feed
from .history import History
from .watch import LogReader, Prober, Reader, Watcher, get_json, text
from .workloads import WORKLOADS

__all__ = ["PARTITIONS", "Run", "set_config"]

EXACTLY_ONCE = "exactly_once_v2"
PATIENCE = 120.0
"""Seconds until something that has to happen on a busy machine has not happened."""
_ASSIGNMENT = re.compile(r"generation \d+: tasks ((?:\d+_\d+,? ?|none)+)")


class Run:
    """What a scenario is given: it feeds, starts, breaks and waits, and everything goes into the history."""

    def __init__(
        self,
        kafka: FaultyKafka,
        folder: Path,
        scenario: str,
        workload: str,
        guarantee: str,
        dead_letters: bool,
    ) -> None:
        self.kafka, self.folder, self.workload, self.guarantee = kafka, folder, workload, guarantee
        folder.mkdir(parents=True, exist_ok=True)
        self.id = f"f-{uuid.uuid4().hex[:8]}"
        self.spec = WORKLOADS[workload]
        self.source, self.sink, self.dead_letters = f"{self.id}-in", f"{self.id}-out", f"{self.id}-dead"
        self.stages = [(self.id + source, model, self.id + sink) for source, model, sink in self.spec.stages]
        self.history = History(folder / "history.jsonl")
        self.history.add(
            "run",
            scenario=scenario,
            workload=workload,
            guarantee=guarantee,
            brokers=len(kafka.numbers),
            stages=self.stages,
            dead_letters=dead_letters,
        )
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self._feed = Feed(self.history, kafka.bootstrap_servers, self.source)
        self._workers: dict[str, Worker] = {}
        self._ports: dict[str, int] = {}
        self._starts = 0
        self._ended: set[str] = set()
        """Workers whose end is in the history."""
        self._with_dead_letters = dead_letters
        sinks = [sink for _, _, sink in self.stages]
        rows = [f"{self.source}-rows"] if workload == "join" else []
        self.create(self.source, *sinks, self.dead_letters, *rows)
        if rows:
            self._feed.send_rows(rows[0])
        self.watcher = Watcher(
            self.history,
            kafka.bootstrap_servers,
            self.id,
            [source for source, _, _ in self.stages],
            [*sinks, self.dead_letters],
            self.dead_letters,
            PARTITIONS,
            read_committed=self.exactly_once,
        )
        self._prober = Prober(self.history, self.ports, lambda: (self.behind, self._mark()))
        self.watcher.start()
        self._prober.start()

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE

    def create(self, *topics: str, partitions: int = PARTITIONS, **config: str) -> None:
        replicas = len(self.kafka.numbers)
        new = [NewTopic(t, partitions, replicas, config=config) for t in topics]
        for future in self.admin.create_topics(new).values():
            future.result(60)

    # Input.

    def feed(self, count: int, value: Callable[[int], str] = str, *, ahead_ms: int | None = None) -> None:
        """Sends records and waits until the brokers have them. ``ahead_ms``: so far ahead of the clock are those that
        ``value`` poisons, or all without a ``value``."""
        self._feed.send(count, value, ahead_ms)

    def feeding(self, per_second: int = 40) -> AbstractContextManager[None]:
        """Sends records all the time."""
        return self._feed.sending(per_second)

    # Workers.

    def start(
        self,
        name: str = "a",
        *,
        failpoint: str = "",
        link: str | None = None,
        wrapper: tuple[str, ...] = (),
        **env: str,
    ) -> str:
        """Starts a worker; one of the same name has the same state folder and port."""
        self._starts += 1
        self._ended.discard(name)
        port = self._ports.setdefault(name, free_port())
        where = self.kafka.links[link].bootstrap_servers if link else self.kafka.bootstrap_servers
        settings = {
            "APP_ID": self.id,
            "BOOTSTRAP": where,
            "WORKLOAD": self.workload,
            "GUARANTEE": self.guarantee,
            "SOURCE": self.source,
            "SINK": self.sink,
            "DATADIR": str(self.data(name)),
            "WEB_PORT": str(port),
            "STREAMAPP_FAILPOINT": failpoint,
        }
        if self._with_dead_letters:
            settings |= {"DEAD_LETTERS": self.dead_letters, "ON_ERROR": "continue"}
        log = self.folder / f"{self._starts:02}-{name}.log"
        self._workers[name] = start_worker(
            "tests.faults.workloads", log, {**settings, **env}, wrapper=wrapper
        )
        self.history.add("fault", what=f"start {name}" + (f" with {failpoint}" if failpoint else ""))
        return name

    def data(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def state(self, name: str) -> Path:
        """The folder with the tasks' state of a worker."""
        return self.data(name) / "state" / self.id

    def ports(self) -> dict[str, int]:
        return {name: self._ports[name] for name, worker in list(self._workers.items()) if worker.alive}

    def ask(self, name: str, path: str) -> tuple[int | None, dict[str, Any]]:
        """(status, body) of what a worker answers."""
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
        """Waits until the worker has been killed, by a failpoint if not by `kill`."""
        code = self._end(name)
        self.history.add("exit", worker=name, code=code, wanted="killed", said=True)
        self.must(code == -signal.SIGKILL, f"{name} is killed")

    def stop(self, name: str, seconds: float = 60.0) -> None:
        """SIGTERM; has to end in order."""
        self.wait_until(lambda: "generation" in self.log(name), f"{name} is in the group")
        self.signal(name, signal.SIGTERM)
        code = self._end(name, seconds)
        self.history.add("exit", worker=name, code=code, wanted="clean", said=True)

    def ends(self, name: str, seconds: float = PATIENCE) -> None:
        """Waits until the worker has ended, in whichever way."""
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

    def has_all(self, name: str) -> None:
        """Waits until a worker was assigned every task of the first sub-topology."""
        every = ", ".join(f"0_{p}" for p in range(PARTITIONS))
        self.wait_until(lambda: f"tasks {every}" in self.log(name), f"{name} has all tasks")

    def assignments(self, name: str) -> int:
        """How often a worker was assigned tasks."""
        return len(_ASSIGNMENT.findall(self.log(name)))

    def has_every_task(self, name: str) -> bool:
        """Whether the latest assignment of a worker has all tasks of all sub-topologies."""
        *_, latest = ["", *_ASSIGNMENT.findall(re.sub(r"\s+", " ", self.log(name)))]
        every = [f"{stage}_{p}" for stage in range(len(self.stages)) for p in range(PARTITIONS)]
        return all(task in latest for task in every)

    def purged(self, topic: str) -> None:
        """Waits until the records are deleted that a topic has now."""
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        ends = self._offsets(partitions, OffsetSpec.latest())
        self.wait_until(
            lambda: all(
                first >= end
                for first, end in zip(self._offsets(partitions, OffsetSpec.earliest()), ends, strict=True)
            ),
            f"{topic} is purged",
        )

    def _offsets(self, partitions: list[TopicPartition], spec: OffsetSpec) -> list[int]:
        asked = self.admin.list_offsets(dict.fromkeys(partitions, spec)).values()
        return [future.result(60).offset for future in asked]

    def runs(self, name: str, tasks: int = 1) -> None:
        """Waits until a worker has started as many tasks."""
        self.wait_until(lambda: self.log(name).count("is running") >= tasks, f"{name} runs {tasks} tasks")

    # Waiting.

    @property
    def fed(self) -> dict[str, int]:
        """Partition of the input -> the offset behind the last record."""
        return dict(self._feed.ends)

    @property
    def behind(self) -> int:
        committed = self.watcher.committed
        return sum(max(0, end - committed.get(tp, 0)) for tp, end in self.fed.items())

    def _mark(self) -> int:
        return self.watcher.seen + sum(self.watcher.committed.values())

    def caught_up(self, seconds: float = PATIENCE) -> None:
        """Until everything that was sent is committed, through all stages."""
        self.wait_until(lambda: not self.behind and not self._behind_later(), "all is committed", seconds)

    def commits(self) -> None:
        """Until something is committed that was not."""
        before = sum(self.watcher.committed.values())
        self.wait_until(lambda: sum(self.watcher.committed.values()) > before, "another commit")

    def _behind_later(self) -> bool:
        """The stages behind the first have something to do, as far as one can tell."""
        sources = {source for source, _, _ in self.stages[1:]}
        if not sources:
            return False
        if not self.watcher.at_end:
            return True
        ends = {
            f"{e['topic']}-{e['partition']}": e["offset"] + 1
            for e in self.history.of("output")
            if e["topic"] in sources
        }
        return any(self.watcher.committed.get(tp, 0) < end for tp, end in ends.items())

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        if any(not event["ok"] for event in self.history.of("wait")):
            seconds = min(seconds, 5.0)  # the run has failed already: what else did not happen is soon seen
        deadline = time.monotonic() + seconds
        while not (ok := condition()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.history.add("wait", what=what, seconds=seconds, ok=ok)

    def must(self, ok: bool, what: str) -> None:
        """Writes down that something was not as it has to be."""
        if not ok:
            self.history.add("wait", what=what, seconds=0, ok=False)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Reads the keys that have been sent from every worker all the time."""
        assert self.spec.store is not None
        keys = sorted({e["key"] for e in self.history.of("sent")})
        reader = Reader(self.history, self.ports, self.spec.store, keys)
        reader.start()
        try:
            yield
        finally:
            reader.close()

    # The end.

    def finish(self) -> None:
        """Everything sent is worked off, tables are read, workers stop in order."""
        self.caught_up()
        if self.spec.store == "counts" and self.ports():
            self._read_views()
        for name in self.ports():
            self.stop(name)
        if self.spec.store is not None:
            self._read_changelog()

    def close(self) -> None:
        for name, worker in self._workers.items():
            if not worker.alive and name not in self._ended:
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
        self._prober.close()
        self._feed.look()
        self.watcher.close()
        self.history.close()

    def _read_views(self) -> None:
        rows: dict[str, str] = {}
        page: str | None = f"/tables/{self.spec.store}/?limit=1000"
        port = next(iter(self.ports().values()))
        deadline = time.monotonic() + PATIENCE
        while page is not None:
            status, body = get_json(port, page, timeout=10)
            if status == 200:
                rows |= {entry["key"]: entry["value"] for entry in body["entries"]}
                page = body["next"]
            elif time.monotonic() > deadline:
                self.must(False, f"the views of {self.spec.store} can be read, not {status} {body}")
                return
            else:
                time.sleep(0.5)
        self.history.add("table", source="views", rows=rows)

    def _read_changelog(self) -> None:
        topic = f"{self.id}-{self.spec.store}-changelog"
        rows: dict[str, str] = {}
        for key, value in self.read(topic):
            rows[table_key(key, self.spec.store)] = text(value)
        self.history.add("table", source="changelog", rows=rows)

    def read(self, topic: str) -> list[tuple[bytes, bytes]]:
        """What a restore would read of a topic."""
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        reader = LogReader(self.kafka.bootstrap_servers, partitions, read_committed=True)
        try:
            return [(message.key(), message.value()) for message in reader.rest()]
        finally:
            reader.close()


def table_key(key: bytes, store: str | None) -> str:
    if store != "windows":
        return text(key)
    return f"{text(key[:-12])}@{int.from_bytes(key[-12:-4], 'big')}"


def set_config(run: Run, topic: str, name: str, value: str) -> None:
    """Changes a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in run.admin.incremental_alter_configs([resource]).values():
        future.result()
    run.history.add("fault", what=f"{name}={value} of {topic}")
