"""A long run at a fixed rate with kills. The needs of a worker must not grow, and every result must be right.

One application of two workers counts by key (W2) and by session. The events of the two counts come in phases, in turn.
Worker one lives as long as the run. Worker two is killed in each phase and started again at once.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks import data
from benchmarks.many_keys import counted
from benchmarks.programs.meter import Job
from benchmarks.reading import records
from benchmarks.soak_events import Counts, Sessions
from benchmarks.soak_workers import Taken, Workers
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["Sample", "Soak", "Soaked"]

PHASES = 20
"""Each tenth of the run has one phase of each workload."""
SAMPLE_SECONDS, TICK_SECONDS = 5.0, 0.005
MOST_WAITING = 200_000
"""The most events without result in the first pass. This pass is not measured: it goes as fast as the workers can."""
PATIENCE = 900.0
"""Seconds without a new result after which the run fails."""


@dataclass(frozen=True)
class Sample:
    """The workers at one moment, and the results since the sample before."""

    minute: float
    workload: str
    taken: Taken
    results: int
    p50: float | None
    """Milliseconds from the production of an event to the read of its result; None without results."""
    p99: float | None
    worst: float | None
    lag: int
    """Events without result."""


@dataclass
class Soaked:
    """The findings of a run."""

    keys: int
    rate: int
    first_pass_seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    """In minutes."""
    events: int = 0
    results_twice: int = 0
    """Results that came again after a kill, because at-least-once repeats the records since the last commit."""
    wrong: list[str] = field(default_factory=list)


class _Input:
    """The events of one workload, and their results so far."""

    def __init__(self, events: Counts | Sessions, app: str) -> None:
        self.events, self.topic, self.output = events, f"{app}-{events.name}-in", f"{app}-{events.name}-out"
        self.changelog = f"{app}-{events.name}-changelog"
        self.sent = array("d")
        """The times of production."""
        self.seen = bytearray()
        self.results = self.twice = 0
        self.wrong: list[str] = []

    @property
    def lag(self) -> int:
        return len(self.sent) - self.results

    def send(self, producer: Producer, value: bytes, count: int) -> None:
        for number in range(len(self.sent), len(self.sent) + count):
            key, at = self.events.key(number), self.events.at(number)
            self.seen.append(0)
            self.sent.append(time.time())
            while True:
                try:
                    producer.produce(self.topic, value, key, timestamp=at)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)

    def take(self, message: Message, now: float) -> float | None:
        """Checks a result, and returns its age in seconds, or None if the same result came before."""
        number = self.events.number(message.timestamp()[1])
        key, value = self.events.key(number).encode(), self.events.result(number)
        if (message.key(), message.value()) != (key, value) and len(self.wrong) < 10:
            self.wrong.append(
                f"{self.events.name} {number}: {message.key()!r} {message.value()!r}, not {key!r} {value!r}"
            )
        if self.seen[number]:
            self.twice += 1
            return None
        self.seen[number] = 1
        self.results += 1
        return now - self.sent[number]


class Soak:
    """One soak. ``out`` gets the logs of the workers, and each sample at once as a line of ``samples.jsonl``."""

    def __init__(
        self,
        kafka: KafkaSettings,
        folder: Path,
        out: Path,
        minutes: float,
        keys: int,
        rate: int,
        tell: Callable[[str], None],
    ) -> None:
        self._kafka, self._out, self._minutes, self._rate, self._tell = kafka, out, minutes, rate, tell
        self._app = f"bench-soak-{folder.name}"
        self._found = Soaked(keys, rate)
        # The last event is from about now: brokers refuse the future, and delete changelogs of sessions by time.
        span = Sessions(keys, 0).at(keys * 5 // 4 + int(rate * minutes * 30) + rate * 60)
        base = int(time.time() * 1000) - span
        self._inputs = _Input(Counts(keys, base), self._app), _Input(Sessions(keys, base), self._app)
        counts, sessions = self._inputs
        job = Job(
            "soak",
            kafka.bootstrap_servers,
            self._app,
            counts.topic,
            self._app,
            sessions.topic,
            0,
            str(folder / "state"),
        )
        self._workers = Workers(job, folder / "build", out)
        self._producer = Producer(
            {
                **kafka.librdkafka(),
                "partitioner": "murmur2_random",
                "linger.ms": 2,
                "compression.type": "lz4",
                "enable.idempotence": True,
                "log_level": 3,
            }
        )
        self._value = msgspec.json.encode(data.flights()[0][0])
        self._ages: list[float] = []
        self._reader = Future[None]()
        self._began = self._sampled = 0.0

    def run(self) -> Soaked:
        try:
            self._run()
        finally:
            admin = KafkaAdmin(self._kafka)
            admin.delete_topics([name for name in data.topics(self._kafka) if self._app in name])
        return self._found

    def _run(self) -> None:
        for each in self._inputs:
            data.create(KafkaAdmin(self._kafka), each.topic, each.output)
        with self._workers.running(), self._reading():
            self._first_pass()
            for number in range(PHASES):
                self._phase(self._inputs[number % 2])
            self._await_results(0)
        self._check()

    def _first_pass(self) -> None:
        began = time.monotonic()
        for each in self._inputs:
            while (left := each.events.first_pass - len(each.sent)) > 0:
                each.send(self._producer, self._value, min(1_000, left))
                self._await_results(MOST_WAITING)
        self._await_results(0)
        self._found.first_pass_seconds = time.monotonic() - began
        self._tell(f"first pass over all keys: {self._found.first_pass_seconds:,.0f} s")
        self._began = self._sampled = time.monotonic()

    def _await_results(self, most: int) -> None:
        """Waits until at most so many events have no result."""
        least, since = self._lag, time.monotonic()
        while (lag := self._lag) > most:
            if lag < least:
                least, since = lag, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise TimeoutError(
                    f"{lag:,} of the events have no result; the logs of the workers are in {self._out}"
                )
            self._producer.poll(0.05)

    @property
    def _lag(self) -> int:
        if self._reader.done():
            self._reader.result()  # raises what has ended the reader
        return sum(each.lag for each in self._inputs)

    @property
    def _minute(self) -> float:
        return (time.monotonic() - self._began) / 60

    def _phase(self, each: _Input) -> None:
        """Sends the events of one workload at the rate; worker two is killed after a third of the time."""
        seconds = self._minutes * 60 / PHASES
        began, sent, killed = time.monotonic(), 0, False
        while (passed := time.monotonic() - began) < seconds:
            if passed > seconds / 3 and not killed:
                killed = True
                self._found.kills.append(self._minute)
                self._workers.kill()
            if time.monotonic() - self._sampled > SAMPLE_SECONDS:
                self._sampled = time.monotonic()
                self._sample(each)
            due = int(passed * self._rate)
            each.send(self._producer, self._value, due - sent)
            sent = due
            time.sleep(TICK_SECONDS)
        self._tell(f"{self._minute:5.1f} min  {each.events.name:8}  lag {self._lag:,}")

    def _sample(self, each: _Input) -> None:
        count = len(self._ages)
        ages = sorted(self._ages[:count])
        del self._ages[:count]
        p50, p99, worst = (
            ages[min(count - 1, int(count * share))] * 1e3 if ages else None for share in (0.5, 0.99, 1.0)
        )
        found = Sample(
            self._minute, each.events.name, self._workers.taken(), count, p50, p99, worst, self._lag
        )
        self._found.samples.append(found)
        with (self._out / "samples.jsonl").open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            self._reader = pool.submit(self._read, stop)
            try:
                yield
            finally:
                stop.set()

    def _read(self, stop: threading.Event) -> None:
        of_topic: dict[str | None, _Input] = {each.output: each for each in self._inputs}
        consumer = Consumer({**self._kafka.librdkafka(), "group.id": f"{self._app}-reader"})
        consumer.assign([TopicPartition(str(topic), number, 0) for topic in of_topic for number in range(4)])
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                age = of_topic[message.topic()].take(message, time.time())
                if age is not None and self._began:
                    self._ages.append(age)
        consumer.close()

    def _check(self) -> None:
        """Checks that the tables have the rows of the model, byte for byte. Every event has its result by now."""
        found = self._found
        for each in self._inputs:
            found.events += len(each.sent)
            found.results_twice += each.twice
            found.wrong += each.wrong
            rows: dict[bytes, bytes] = {}
            for key, value in records(self._kafka, each.changelog):
                if not each.events.kept(key, len(each.sent)):
                    continue
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            here, right = counted(rows.items()), counted(each.events.rows(len(each.sent)))
            self._tell(
                f"{each.events.name}: rows: {len(rows):,}, counts sum up to {here.total:,}, digest {here.digest}"
            )
            if here != right:
                found.wrong.append(f"the table of {each.events.name}: {here}, not {right}")
