"""End-to-end latency of W1 at a fixed rate: the key of an event is the time at which it was produced."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.table import Table

from benchmarks import data
from benchmarks.peers import PEERS as PROGRAMS
from benchmarks.peers import Peer
from benchmarks.programs.meter import Job
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["PEERS", "Latency", "measure", "table"]

PEERS = {"direct": "", "streamapp": "", "kafka-streams": "no-linger", "kafka-streams-default": ""}
"""Peer -> the variant of its program. ``direct`` has no program: the reader reads the events themselves."""
WARM_SECONDS = 6.0


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the production of an event to the read of its result."""

    peer: str
    results: int
    p50: float
    p99: float
    worst: float


def measure(
    kafka: KafkaSettings,
    folder: Path,
    peers: Iterable[str],
    rate: int,
    seconds: float,
    repetitions: int,
    tell: Callable[[str], None],
) -> list[Latency]:
    found = []
    names = list(peers)
    # The first round does not count, because a broker that has just started compiles its code for minutes. A run showed
    # a p50 of 64 ms, and then of 4 ms.
    for name in names:
        _Run(kafka, folder, name, -1).measure(rate, seconds)
        tell(f"{name:24} warm-up, not counted")
    for number in range(repetitions):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found.append(_Run(kafka, folder, name, number).measure(rate, seconds))
            tell(f"{found[-1].peer:24} p50 {found[-1].p50:6.1f}  p99 {found[-1].p99:6.1f} ms")
    return found


class _Run:
    def __init__(self, kafka: KafkaSettings, folder: Path, name: str, number: int) -> None:
        self._kafka, self._name = kafka, name
        self._tag = f"bench-latency-{name}-{folder.name}-{number}"
        self._place, self._build = folder / self._tag, folder / "build"
        self._place.mkdir()
        self._late = [msgspec.json.encode(f) for f, _ in data.flights()[:20_000] if (f.dep_delay or 0) > 15]
        self._latencies: list[tuple[int, float]] = []
        self._stop = threading.Event()

    def measure(self, rate: int, seconds: float) -> Latency:
        admin = KafkaAdmin(self._kafka)
        source, output = f"{self._tag}-in", f"{self._tag}-out"
        data.create(admin, source, output)
        process = None
        if self._name != "direct":
            program = PROGRAMS[self._name.removesuffix("-default")]
            peer = Peer(self._name, program.command, variant=PEERS[self._name])
            state = str(self._place / "state")
            job = Job(
                "latency",
                self._kafka.bootstrap_servers,
                self._tag,
                source,
                output,
                "",
                1,
                state,
                peer.variant,
            )
            process = peer.start(job, self._build, self._place / "log")
        reader = threading.Thread(target=self._read, args=(source if process is None else output,))
        reader.start()
        try:
            measured_from = self._produce(source, rate, seconds)
        finally:
            self._stop.set()
            reader.join()
            if process is not None:
                process.terminate()
                process.wait(30)
            admin.delete_topics([topic for topic in data.topics(self._kafka) if self._tag in topic])
        times = sorted(each for sent, each in self._latencies if sent > measured_from)
        at = [times[int(len(times) * share)] for share in (0.5, 0.99)]
        return Latency(self._name, len(times), at[0], at[1], times[-1])

    def _produce(self, topic: str, rate: int, seconds: float) -> int:
        """Produces events that all get through the filter. Returns the time (ns) from which on results count."""
        producer = Producer({**self._kafka.librdkafka(), "linger.ms": 0})
        deadline = time.monotonic() + 120
        while not self._latencies and time.monotonic() < deadline:  # until the peer is up
            producer.produce(topic, self._late[0], str(time.time_ns()))
            producer.poll(0.1)
        measured_from = time.time_ns() + int(WARM_SECONDS * 1e9)
        began, sent = time.perf_counter(), 0
        total = int((WARM_SECONDS + seconds) * rate)
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate))
            for number in range(sent, due):
                producer.produce(topic, self._late[number % len(self._late)], str(time.time_ns()))
            sent = due
            producer.poll(0)
            time.sleep(0.0005)
        producer.flush()
        time.sleep(1)  # the last results are still on their way
        return measured_from

    def _read(self, topic: str) -> None:
        consumer = Consumer({**self._kafka.librdkafka(), "group.id": self._tag + "-reader"})
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                sent = int(message.key())
                self._latencies.append((sent, (time.time_ns() - sent) / 1e6))
        consumer.close()


def table(found: list[Latency]) -> Table:
    result = Table("peer", title="Latency, ms (medians over the runs)", title_justify="left")
    for column in ("runs", "results", "p50", "p99", "worst"):
        result.add_column(column, justify="right")
    groups: dict[str, list[Latency]] = defaultdict(list)
    for each in found:
        groups[each.peer].append(each)
    for peer, group in groups.items():
        values = [f"{median(getattr(each, name) for each in group):.1f}" for name in ("p50", "p99", "worst")]
        result.add_row(peer, str(len(group)), str(group[0].results), *values)
    return result
