"""The job of a Python peer, and its own measurements: from its first event until everything is flushed and committed.

Start-up is not measured, as in the Java program.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

__all__ = ["Job", "Meter"]


@dataclass(frozen=True)
class Job:
    """One run of one workload. Programs get it as ``name=value`` arguments."""

    workload: str
    bootstrap: str
    app: str
    """Application id, group and prefix of the topics that the run may create."""
    input: str
    output: str
    planes: str
    events: int
    folder: str
    """For state; empty before the run."""
    variant: str = ""
    partitions: int = 4
    limit: float = 120.0
    """The seconds after its first event at which an unfinished run ends."""
    memory: int = 0
    """``state_memory_bytes``; 0: streamapp's default."""

    def arguments(self) -> list[str]:
        return [f"{field.name}={getattr(self, field.name)}" for field in fields(self)]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Job:
        given = dict(argument.split("=", 1) for argument in arguments)
        types = {"events": int, "partitions": int, "limit": float, "memory": int}
        return cls(**{name: types.get(name, str)(value) for name, value in given.items()})  # type: ignore[arg-type]


def _largest_memory_mib() -> int:
    """The largest resident size since the program was started; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))


STAGES = {"w3": 2, "foreign-key": 3, "stream-join": 2, "table-join": 2}
"""The number of records that a workload processes for each event, if there are several.

Further records are those of repartition topics, subscriptions and their answers, and the other side of a join.
"""


class Meter:
    """Counts the processed records of all stages, and measures the CPU time (user and system) of all threads.

    Half of the work is done when half of the records are processed. The records of all stages count. Otherwise a peer
    whose first stage runs ahead would have less than half of its work left.
    """

    def __init__(self, job: Job) -> None:
        self._stages = STAGES.get(job.workload, 1)
        self._records = job.events * self._stages
        self._limit = job.limit
        self.seen = 0
        self._began: tuple[float, float] | None = None
        self._half: tuple[int, float, float] | None = None

    def begin(self) -> None:
        """Begins the measurement, at the first event. Later calls do nothing."""
        if self._began is None:
            self._began = time.perf_counter(), time.process_time()

    def add(self, count: int) -> None:
        self.seen += count
        if self._half is None and self.seen * 2 >= self._records:
            self._half = self.seen, time.perf_counter(), time.process_time()

    @property
    def done(self) -> bool:
        if self.seen >= self._records:
            return True
        return self._began is not None and time.perf_counter() - self._began[0] > self._limit

    def report(self) -> None:
        """Prints the measurement; call it once everything is flushed and committed."""
        wall, cpu = time.perf_counter(), time.process_time()
        assert self._began is not None, "no event came"
        result = {
            "events": self.seen // self._stages,
            "seconds": wall - self._began[0],
            "cpu_seconds": cpu - self._began[1],
            "memory_mib": _largest_memory_mib(),
        }
        if self._half is not None and self.seen > self._half[0]:
            seen, _, half_cpu = self._half
            result["second_half_cpu_us"] = (cpu - half_cpu) * 1e6 * self._stages / (self.seen - seen)
        print(json.dumps(result), file=sys.stdout, flush=True)
