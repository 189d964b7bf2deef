"""One run of one scenario: its topics, its input, its workers, its history."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    OffsetSpec,
)

from ..processes import run_streamapp
from .brokers import FaultyKafka
from .feed import KEYS, PARTITIONS, Feed
from .fleet import PATIENCE, Fleet, set_config
from .models import PARKS
from .watch import Prober, Reader, Watcher, text
from .workloads import WORKLOADS

__all__ = ["PARTITIONS", "Run", "set_config"]

EXACTLY_ONCE = "exactly_once_v2"
_ASSIGNMENT = re.compile(r"generation \d+: tasks ((?:\d+_\d+,? ?|none)+)")


class Run(Fleet):
    """The object that a scenario gets. Its methods send input, start and break workers, and wait.

    The history gets everything that the judge needs.
    """

    def __init__(
        self,
        kafka: FaultyKafka,
        folder: Path,
        scenario: str,
        workload: str,
        guarantee: str,
        dead_letters: bool,
    ) -> None:
        super().__init__(kafka, folder)
        self.workload, self.guarantee = workload, guarantee
        self.spec = WORKLOADS[workload]
        self.source, self.sink, self.dead_letters = f"{self.id}-in", f"{self.id}-out", f"{self.id}-dead"
        self.stages = [(self.id + source, model, self.id + sink) for source, model, sink in self.spec.stages]
        self.history.add(
            "run",
            scenario=scenario,
            workload=workload,
            guarantee=guarantee,
            brokers=len(kafka.numbers),
            stages=self.stages,
            dead_letters=dead_letters,
        )
        if workload in PARKS:
            self.trouble()
        self._feed = Feed(self.history, kafka.bootstrap_servers, self.source)
        self._feed.replays = workload == "desk"
        self._edited: dict[str, str] = {}
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

    # Input.

    def feed(
        self,
        count: int,
        value: Callable[[int], str] = str,
        *,
        ahead_ms: int | None = None,
        keys: int = KEYS,
    ) -> None:
        """Sends records of ``keys`` keys in turn, and waits until the brokers have them.

        With ``ahead_ms``, the poison that ``value`` gives is so far ahead of the clock, or all records without a
        ``value``.
        """
        self._feed.send(count, value, ahead_ms, keys)

    def feeding(self, per_second: int = 40) -> AbstractContextManager[None]:
        """Sends records as long as the context lasts."""
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
        """Starts a worker. A worker of the same name has the same state folder and port."""
        settings = self._settings(link) | {"STREAMAPP_FAILPOINT": failpoint}
        self.launch(name, "tests.faults.workloads", {**settings, **env}, wrapper)
        self.history.add("fault", what=f"start {name}" + (f" with {failpoint}" if failpoint else ""))
        return name

    def _settings(self, link: str | None = None) -> dict[str, str]:
        """The environment of the application."""
        where = self.kafka.links[link].bootstrap_servers if link else self.kafka.bootstrap_servers
        settings = {
            "APP_ID": self.id,
            "BOOTSTRAP": where,
            "WORKLOAD": self.workload,
            "GUARANTEE": self.guarantee,
            "SOURCE": self.source,
            "SINK": self.sink,
            "TROUBLE": str(self.trouble_file),
        }
        if self._with_dead_letters:
            settings |= {"DEAD_LETTERS": self.dead_letters, "ON_ERROR": "continue"}
        return settings

    def state(self, name: str) -> Path:
        """The state folder of a worker."""
        return self.data(name) / "state" / self.id

    def has_all(self, name: str) -> None:
        """Waits until the log of a worker has an assignment of every task of the first sub-topology."""
        every = ", ".join(f"0_{p}" for p in range(PARTITIONS))
        self.wait_until(lambda: f"tasks {every}" in self.log(name), f"{name} has all tasks")

    def assignments(self, name: str) -> int:
        """The number of assignments in the log of a worker. Assignments without a task count, too."""
        return len(_ASSIGNMENT.findall(self.log(name)))

    def has_every_task(self, name: str) -> bool:
        """True if the latest assignment of a worker has all tasks of all sub-topologies."""
        *_, latest = ["", *_ASSIGNMENT.findall(re.sub(r"\s+", " ", self.log(name)))]
        every = [f"{stage}_{p}" for stage in range(len(self.stages)) for p in range(PARTITIONS)]
        return all(task in latest for task in every)

    def purged(self, topic: str) -> None:
        """Waits until the brokers have deleted all records that a topic has now."""
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
        """Waits until a worker has started tasks so many times, or has started its agents."""
        says, times = ("Worker ready", 1) if self.workload == "agent" else ("is running", tasks)
        self.wait_until(lambda: self.log(name).count(says) >= times, f"{name} runs {tasks} tasks")

    # Waiting.

    @property
    def fed(self) -> dict[str, int]:
        """Partition of the input -> the offset behind the last record that brokers have acknowledged."""
        return dict(self._feed.ends)

    @property
    def behind(self) -> int:
        committed = self.watcher.committed
        return sum(max(0, end - committed.get(tp, 0)) for tp, end in self.fed.items())

    def _mark(self) -> int:
        return self.watcher.seen + sum(self.watcher.committed.values())

    def caught_up(self, seconds: float = PATIENCE) -> None:
        """Waits until the group has committed all sent records, in each stage."""
        self.wait_until(lambda: not self.behind and not self._behind_later(), "all is committed", seconds)

    @property
    def trouble_file(self) -> Path:
        """The file that tells the service of the workloads with retries for which keys to fail."""
        return self.folder / "trouble.json"

    def trouble(self, *keys: str, down: bool = False) -> None:
        """Makes the service fail for these keys from now on, or for all keys (``down``). Without arguments, the service
        works."""
        beside = self.trouble_file.with_suffix(".new")
        beside.write_text(json.dumps({"keys": keys, "down": down}))
        beside.rename(self.trouble_file)
        self.history.add("fault", what=f"trouble: {keys or 'none'}{', down' if down else ''}")

    def gives_up_order(self, *keys: str) -> None:
        """Tells the judge that some records of these keys go through retry topics."""
        self.history.add("unordered", keys=keys)

    @property
    def kept(self) -> int:
        """The number of records that wait for a retry: records that are committed, and neither out nor dead letters."""
        ended = {(e["key"], e["value"]) for kind in ("output", "dead") for e in self.history.of(kind)}
        committed = self.watcher.committed
        return sum(
            e["offset"] < committed.get(f"{e['topic']}-{e['partition']}", 0)
            and (e["key"], e["value"]) not in ended
            for e in self.history.of("sent")
        )

    # The desk.

    def dlq(self, command: str, *arguments: str, failpoint: str = "", code: int = 0) -> str:
        """Runs ``streamapp dlq`` on the application, as a user does. ``code`` is the exit code that has to come."""
        own = {"DATADIR": str(self.data("desk")), "WEB_PORT": "6066", "STREAMAPP_FAILPOINT": failpoint}
        done = run_streamapp(
            "dlq",
            command,
            "tests.faults.workloads",
            *arguments,
            env={**os.environ, **self._settings(), **own},
            timeout=300,
        )
        self.history.add("fault", what=f"dlq {command} {' '.join(arguments)} {failpoint}: {done.returncode}")
        self.must(
            done.returncode == code,
            f"dlq {command} ends with {code}: {done.stdout[-500:]}{done.stderr[-500:]}",
        )
        return done.stdout

    def edit(self, letter: str, value: str) -> None:
        """Gives a letter another value."""
        found = next(each for each in self.letters() if each["letter"] == letter)
        self._edited.setdefault(letter, text(base64.b64decode(found["value"])))
        self.dlq("edit", letter, "--value", value)

    @property
    def changed(self) -> list[str]:
        """The values that letters had before they were edited."""
        return list(self._edited.values())

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters as ``dlq export`` has them."""
        return [json.loads(line) for line in self.dlq("export").splitlines()]

    def became_letters(self, count: int) -> None:
        """Waits until there are at least so many dead letters."""
        self.wait_until(
            lambda: len(self.history.of("dead")) >= count, f"there are {count} letters", 4 * PATIENCE
        )

    def came_out(self, *but: str) -> None:
        """Waits until the output has each sent record. Records with the values ``but`` may be missing."""

        def done() -> bool:
            ended = {e["value"] for e in self.history.of("output")} | set(but)
            return all(e["value"] in ended for e in self.history.of("sent"))

        self.wait_until(done, "each record has come out", 2 * PATIENCE)

    def note_letters(self) -> None:
        """Writes the state of each letter into the history."""
        for each in self.letters():
            key, value = (text(base64.b64decode(each[part])) for part in ("key", "value"))
            was = self._edited.get(each["letter"], value)
            state = {name: each[name] for name in ("letter", "state", "replays")}
            self.history.add("letter", key=key, value=value, was=was, **state)

    def drained(self) -> None:
        """Waits until each input has come out or is a dead letter, so that none waits for a retry."""

        def done() -> bool:
            ended = {(e["key"], e["value"]) for kind in ("output", "dead") for e in self.history.of(kind)}
            return all((e["key"], e["value"]) in ended for e in self.history.of("sent"))

        self.wait_until(done, "nothing waits for a retry")

    def commits(self) -> None:
        """Waits until more is committed than now."""
        before = sum(self.watcher.committed.values())
        self.wait_until(lambda: sum(self.watcher.committed.values()) > before, "another commit")

    def _behind_later(self) -> bool:
        """True if the stages behind the first one still have records to process, as far as the driver knows."""
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

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Asks the workers in turn for the keys that were sent so far, as long as the context lasts."""
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
        """Waits until everything is committed, reads the tables, and stops the workers with SIGTERM."""
        self.caught_up()
        if self.spec.store == "counts" and self.ports():
            rows = self.rows(self.spec.store)
            if rows is not None:
                self.history.add(
                    "table", source="views", rows={entry["key"]: entry["value"] for entry in rows}
                )
        for name in self.ports():
            self.stop(name)
        if self.spec.store is not None:
            self._read_changelog()

    def close(self) -> None:
        self.close_workers()
        self._prober.close()
        self._feed.look()
        self.watcher.close()
        self.history.close()

    def _read_changelog(self) -> None:
        topic = f"{self.id}-{self.spec.store}-changelog"
        rows: dict[str, str] = {}
        for key, value in self.read(topic):
            rows[table_key(key, self.spec.store)] = text(value)
        self.history.add("table", source="changelog", rows=rows)


def table_key(key: bytes, store: str | None) -> str:
    if store != "windows":
        return text(key)
    return f"{text(key[:-12])}@{int.from_bytes(key[-12:-4], 'big')}"
