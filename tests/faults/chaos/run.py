"""One chaos run: workers, and steps with faults of the schedule. After each step, all workers must be ready again."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import TopicPartition

from streamapp import BytesSerde, StreamsBuilder
from streamapp.broker import KafkaSettings
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.testing.backlog import Backlog

from ..brokers import FaultyKafka
from ..driver import set_config
from ..feed import PARTITIONS
from ..fleet import PATIENCE, Fleet
from ..watch import LogReader, Prober, Watcher, text
from .application import INPUTS, READ_BY_AGENTS, SINKS, TABLES, describe
from .schedule import Fault, names, steps
from .traffic import Traffic

__all__ = ["Chaos", "Stopped"]

_QUOTA = 30_000
"""Bytes each second: less than the workers write."""
_NO_QUOTA = 10**12
_FOR_ANY_TIME = str(2**63 - 1)
_DRAIN_SECONDS = 240.0


class Stopped(Exception):
    """The run ends early, because a worker has ended by itself, or a wait was in vain. The history has the reason."""


class Chaos(Fleet):
    """A run by a seed. The history has everything that the verdicts need."""

    def __init__(self, kafka: FaultyKafka, folder: Path, seed: int, workers: int, forget: int | None) -> None:
        super().__init__(kafka, folder)
        self.seed, self.names, self._forget = seed, names(workers), forget
        self.faults: Counter[str] = Counter()
        self.to_ready: list[float] = []
        """Seconds from the end of each step's faults until all workers were ready."""
        self.to_commit: list[float] = []
        """Seconds from the same moment until all records that were sent by then were committed."""
        self.history.add(
            "run", prefix=self.id, seed=seed, workers=workers, guarantee="exactly_once_v2", stages=[]
        )
        self._inputs = [f"{self.id}-{name}" for name in INPUTS]
        self._outputs = [f"{self.id}-{name}" for name in SINKS]
        self.create(*self._inputs, *self._outputs, f"{self.id}-dead")
        set_config(self, f"{self.id}-copies", "message.timestamp.after.max.ms", _FOR_ANY_TIME)
        self.traffic = Traffic(kafka.bootstrap_servers, self.id, seed)
        # Outputs are read at the end, so this watcher follows only the group.
        self._watcher = Watcher(
            self.history,
            kafka.bootstrap_servers,
            self.id,
            self._inputs,
            [],
            "",
            PARTITIONS,
            read_committed=True,
        )
        self._prober = Prober(self.history, self.ports, lambda: (self._behind(), self._mark()))

    def run(self, minutes: float, per_second: int) -> None:
        """Takes the steps of the schedule until the time is over, waits until the workers are done, and reads the
        results."""
        try:
            self._watcher.start()
            self._prober.start()
            for name in self.names:
                self._start(name)
            self._all_ready()
            deadline = time.monotonic() + minutes * 60
            with self.traffic.flowing(per_second):
                for faults in steps(self.seed, len(self.names), len(self.kafka.numbers)):
                    self._step(faults)
                    if time.monotonic() > deadline:
                        break
            self._finish()
        except Stopped:
            pass
        finally:
            self._close()

    # Faults.

    def _step(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.faults[fault.kind] += 1
        # Each fault has its own time: one may be over while the other one lasts.
        together = [threading.Thread(target=self._suffer, args=(fault,)) for fault in faults]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        began = time.monotonic()
        self._all_ready()
        self.to_ready.append(time.monotonic() - began)
        # A worker may be ready before it notices the fault. So all records up to now must be committed, too.
        sent = dict(self.traffic.ends)
        self._until(
            lambda: all(self._watcher.committed.get(tp, 0) >= end for tp, end in sent.items()),
            "what was sent by now is committed",
        )
        self.to_commit.append(time.monotonic() - began)
        self._all_ready()

    def _suffer(self, fault: Fault) -> None:
        try:
            for _ in self._lasting(fault):
                time.sleep(fault.seconds)
        except Exception as exc:
            self.must(False, f"the harness can do {fault}: {exc!r}")

    def _lasting(self, fault: Fault) -> Iterator[None]:
        """Causes a fault before the ``yield``, and takes the fault back afterwards."""
        match fault.kind:
            case "kill":
                self.kill(fault.worker)
                yield
                self._start(fault.worker)
            case "stop":
                self.stop(fault.worker)
                yield
                self._start(fault.worker)
            case "suspend":
                self.signal(fault.worker, signal.SIGSTOP)
                yield
                self.signal(fault.worker, signal.SIGCONT)
            case "broker":
                self.history.add("fault", what=f"kill broker {fault.broker}")
                self.kafka.kill_broker(fault.broker)
                yield
                self.kafka.start_broker(fault.broker)
                self.history.add("fault", what=f"broker {fault.broker} is started again")
            case "quota":
                self._set_quota(_QUOTA)
                yield
                self._set_quota(_NO_QUOTA)

    def _set_quota(self, limit: int) -> None:
        self.kafka.set_quota(f"{self.id}-transactions", producer_byte_rate=limit)
        self.history.add("fault", what=f"producer_byte_rate={limit}")

    def _start(self, name: str) -> None:
        env = {"STREAMAPP_CHAOS": self.id, "BOOTSTRAP": self.kafka.bootstrap_servers}
        if self._forget is not None:
            env["FORGET_AT"] = str(self._forget)
        self.launch(name, "tests.faults.chaos.worker", env)
        self.history.add("fault", what=f"start {name}")

    # Waiting.

    def _all_ready(self) -> None:
        """Waits until every worker is ready."""
        self._until(
            lambda: all(self.ask(name, "/health/ready")[0] == 200 for name in self.names), "all are ready"
        )

    def _until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Waits as `wait_until` does. Raises `Stopped` if a worker has ended by itself, or after a wait in vain."""
        self.wait_until(lambda: bool(self.fallen()) or condition(), what, seconds)
        if self.fallen() or any(not e["ok"] for e in self.history.of("wait")):
            raise Stopped(what)

    def _behind(self) -> int:
        committed = self._watcher.committed
        return sum(max(0, end - committed.get(tp, 0)) for tp, end in dict(self.traffic.ends).items())

    def _mark(self) -> int:
        return sum(self._watcher.committed.values())

    def _drained(self) -> None:
        """Waits until all records are committed: of source and repartition topics, and of the topics of the agents."""
        builder = StreamsBuilder()
        describe(builder, self.id)
        for name in READ_BY_AGENTS:
            read = builder.stream(f"{self.id}-{name}", key_serde=BytesSerde(), value_serde=BytesSerde())
            read.foreach(lambda key, value: None)
        plan = builder.build().plan(StreamsConfig(self.id))
        with Backlog(plan, KafkaSettings(bootstrap_servers=self.kafka.bootstrap_servers)) as backlog:

            def empty() -> bool:
                try:
                    return backlog.empty()
                except BrokerError:
                    return False

            self._until(empty, "everything that was sent is committed", _DRAIN_SECONDS)

    # The end.

    def _finish(self) -> None:
        for turn in (1, 2):
            self._drained()
            self.traffic.close_windows(turn)
            time.sleep(2.0)  # results on window close come at most once a second
        self._drained()
        self.history.add("drained")
        for table in TABLES:
            rows = self.rows(table)
            if rows is not None:
                self.history.add("table", source=table, rows={_shown(row): row["value"] for row in rows})
        for name in self.names:
            self.stop(name)
        self._read_all()

    def _close(self) -> None:
        self.close_workers()
        self._prober.close()
        self._watcher.close()
        self.history.close()

    def _read_all(self) -> None:
        """Reads the logs at the end. A killed broker may have kept records that it has not acknowledged."""
        for topic in [*self._inputs, *self._outputs, f"{self.id}-dead"]:
            partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
            reader = LogReader(
                self.kafka.bootstrap_servers, partitions, read_committed=topic not in self._inputs
            )
            for message in reader.rest():
                where = {"topic": topic, "partition": message.partition(), "offset": message.offset()}
                record = {"key": text(message.key()), "value": text(message.value())}
                if topic in self._inputs:
                    self.history.add("sent", **where, **record, timestamp=message.timestamp()[1])
                elif topic in self._outputs:
                    self.history.add("output", **where, **record)
                else:
                    said = {
                        name.removeprefix("__streams.errors."): text(value)
                        for name, value in message.headers()
                    }
                    self.history.add(
                        "dead",
                        topic=said["topic"],
                        partition=int(said["partition"]),
                        offset=int(said["offset"]),
                        error=said["message"],
                        **record,
                    )
            reader.close()
        pending = dict(self.read(f"{self.id}-pending-changelog"))
        for key, value in pending.items():
            if value is not None:
                self.history.add("pending", key=text(key), value=text(value))


def _shown(row: dict[str, object]) -> str:
    return f"{row['key']}@{row['start']}-{row['end']}" if "start" in row else str(row["key"])
