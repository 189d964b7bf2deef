"""Runs a workload with one peer after the other, again and again, and checks the results."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import data, many_keys
from benchmarks.peers import PEERS, Peer
from benchmarks.programs.meter import Job
from benchmarks.reading import records
from benchmarks.schema import Delays
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.records import TopicPartition as Partition

__all__ = ["Run", "RunFailed", "Throughput", "measure_process"]


@dataclass(frozen=True)
class Run:
    """The measurements of one run of one peer."""

    peer: str
    workload: str
    events: int
    seconds: float
    cpu_seconds: float
    second_half_cpu_us: float | None
    """CPU per event of the second half: the JVM is warm by then."""
    process_cpu_seconds: float
    """Start-up included."""
    memory_mib: int
    """The largest resident size."""
    correct: bool | None
    """None: the run was ended before its last event."""
    digest: str = ""
    """Stands for the result of a workload of `many_keys`."""

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds * 1e6 / self.events

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds


class RunFailed(Exception):
    """A peer ended without a measurement; the text is the end of its log."""


class Throughput:
    """Interleaved runs over inputs that are loaded once.

    ``years`` copies of the year for the fast peers, ``slow_rows`` events for the others.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        folder: Path,
        *,
        years: int = 3,
        rows: int | None = None,
        slow_rows: int = 30_000,
    ) -> None:
        self._kafka, self._folder, self._admin = kafka, folder, KafkaAdmin(kafka)
        self._rows = rows
        self._digests: dict[str, str] = {}
        self._inputs = {
            False: (data.load(kafka, years, rows), data.truth(years, rows)),
            True: (data.load(kafka, 1, slow_rows), data.truth(1, slow_rows)),
        }

    def runs(self, workloads: Iterable[str], peers: Iterable[str], repetitions: int) -> Iterator[Run | str]:
        """Each peer once in each repetition; a text for a run that failed."""
        chosen = [PEERS[name] for name in peers]
        for number in range(repetitions):
            for workload in workloads:
                for peer in chosen:
                    if workload in peer.workloads:
                        try:
                            yield self.run(peer, workload)
                        except RunFailed as failure:
                            yield f"{peer.name} {workload}, run {number}: {failure}"

    def run(self, peer: Peer, workload: str) -> Run:
        (flights, carriers), truth = self._inputs[peer.slow]
        many = many_keys.WORKLOADS.get(workload)
        if many is not None:
            inputs = many.prepare(self._kafka, self._rows)
        else:
            inputs = many_keys.Inputs(carriers if workload == "w2" else flights, data.PLANES, truth.events)
        tag = f"bench-{peer.name}-{workload}-{os.getpid()}-{time.monotonic_ns() % 10**9}"
        folder = self._folder / tag
        folder.mkdir(parents=True)
        output = f"{tag}-out"
        data.create(self._admin, output, f"{tag}-repartition", f"{tag}-changelog")
        job = Job(
            workload,
            self._kafka.bootstrap_servers,
            tag,
            inputs.first,
            output,
            inputs.second,
            inputs.events,
            str(folder / "state"),
            peer.variant,
        )
        try:
            measured = measure_process(
                peer.start(job, self._folder / "build", folder / "log"), folder / "log"
            )
            if measured["events"] < inputs.events:
                return Run(peer.name, workload, correct=None, **measured)
            if many is None:
                return Run(peer.name, workload, correct=CHECKS[workload](self._kafka, tag, truth), **measured)
            total, digest = many.result(self._kafka, tag)
            # The peers must agree: every run has the digest of the first one.
            same = self._digests.setdefault(workload, digest) == digest
            correct = same and (many.times is None or total == many.times * inputs.events)
            return Run(peer.name, workload, correct=correct, digest=digest, **measured)
        finally:
            self._admin.delete_topics([topic for topic in data.topics(self._kafka) if tag in topic])
            shutil.rmtree(folder)


def measure_process(process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """Waits for a program. Returns its own measurements, and its CPU time as the operating system knows it."""
    assert process.stdout is not None
    try:
        text = process.stdout.read()
    finally:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise RunFailed(f"exit code {process.returncode}\n{log.read_text(errors='replace')[-2000:]}")
    measured: dict[str, Any] = {"second_half_cpu_us": None} | json.loads(lines[-1])
    measured["process_cpu_seconds"] = usage.ru_utime + usage.ru_stime
    return measured


def _sizes(kafka: KafkaSettings, topic: str) -> int:
    admin = KafkaAdmin(kafka)
    count = admin.partition_counts([topic])[topic]
    return sum(admin.log_end_offsets([Partition(topic, number) for number in range(count)]).values())


def _check_w1(kafka: KafkaSettings, tag: str, truth: data.Truth) -> bool:
    return _sizes(kafka, f"{tag}-out") == truth.late


def _check_w4(kafka: KafkaSettings, tag: str, truth: data.Truth) -> bool:
    return _sizes(kafka, f"{tag}-out") == truth.with_plane


def _check_counts(kafka: KafkaSettings, tag: str, truth: data.Truth) -> bool:
    """Looks for the right sum of counts in the changelogs. Peers differ in their names, and in the form of numbers."""
    topics = [topic for topic in data.topics(kafka) if tag in topic and "changelog" in topic]
    totals = [sum(map(_number, dict(records(kafka, topic)).values())) for topic in topics]
    return truth.events in totals


def _check_w3(kafka: KafkaSettings, tag: str, truth: data.Truth) -> bool:
    windows: dict[object, Delays] = {}
    for key, value in records(kafka, f"{tag}-out"):
        start = msgspec.json.decode(value).get("start")  # Quix has the window in the value, not in the key
        windows[key, start] = msgspec.json.decode(value, type=Delays)
    count, delay = sum(w.count for w in windows.values()), sum(w.delay for w in windows.values())
    return (count, delay, len(windows)) == (truth.events, truth.delay, truth.windows)


def _number(value: bytes) -> int:
    if len(value) == 8 and value[0] == 0:
        return int(struct.unpack(">q", value)[0])
    decoded = msgspec.json.decode(value)
    return decoded if isinstance(decoded, int) else 0


CHECKS: dict[str, Callable[[KafkaSettings, str, data.Truth], bool]] = {
    "w1": _check_w1,
    "w2": _check_counts,
    "w3": _check_w3,
    "w4": _check_w4,
}
