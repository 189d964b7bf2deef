"""A count (W2) by one application of several worker processes: how its throughput grows with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks import data
from benchmarks.curves import KEYS
from benchmarks.many_keys import even_topic
from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job
from benchmarks.throughput import RunFailed, measure_process
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["Shared", "measure", "table"]


@dataclass(frozen=True)
class Shared:
    """One run: all processes together."""

    processes: int
    events: int
    seconds: float
    """The time until the last process has committed its last record."""
    cpu_seconds: float
    memory_mib: int
    """The sum of the largest resident sizes."""

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds * 1e6 / self.events


def measure(
    kafka: KafkaSettings,
    folder: Path,
    counts: Iterable[int],
    events: int,
    repetitions: int,
    tell: Callable[[str], None],
) -> Iterator[Shared]:
    """Each number of processes once in each repetition. All processes have their tasks before a measurement begins."""
    counts = list(counts)
    partitions = 4 * max(counts)
    topic = even_topic(kafka, KEYS, partitions, events)
    for number in range(repetitions):
        for count in counts:
            found = _run(
                kafka, folder, f"bench-processes-{folder.name}-{number}-{count}", topic, partitions, count
            )
            if found.events != events:
                raise RunFailed(f"{count} processes counted {found.events:,} of {events:,}")
            tell(f"{count} processes  {found.events_per_second:10,.0f}/s  {found.cpu_us:6.2f} µs")
            yield found


def _run(kafka: KafkaSettings, folder: Path, app: str, topic: str, partitions: int, count: int) -> Shared:
    processes = []
    for number in range(count):
        place = folder / app / str(number)
        place.mkdir(parents=True)
        job = Job(
            "w2",
            kafka.bootstrap_servers,
            app,
            topic,
            "",
            "",
            partitions // count,
            str(place / "state"),
            variant=f"shared-{count}",
            partitions=partitions,
        )
        processes.append((PEERS["streamapp"].start(job, folder / "build", place / "log"), place / "log"))
    measured = [measure_process(process, log) for process, log in processes]
    admin = KafkaAdmin(kafka)
    admin.delete_topics([name for name in data.topics(kafka) if app in name])
    return Shared(
        count,
        sum(each["events"] for each in measured),
        max(each["seconds"] for each in measured),
        sum(each["cpu_seconds"] for each in measured),
        sum(each["memory_mib"] for each in measured),
    )


def table(runs: list[Shared]) -> Table:
    result = Table("processes", title="A count by several processes", title_justify="left")
    for column in ("runs", "events/s", "to one process", "CPU µs/event", "MiB"):
        result.add_column(column, justify="right")
    rates = {
        count: median(run.events_per_second for run in runs if run.processes == count)
        for count in sorted({run.processes for run in runs})
    }
    first = next(iter(rates.values()))
    for count, rate in rates.items():
        group = [run for run in runs if run.processes == count]
        result.add_row(
            str(count),
            str(len(group)),
            f"{rate:,.0f}",
            f"{rate / first:.2f}",
            f"{median(run.cpu_us for run in group):.2f}",
            f"{median(run.memory_mib for run in group):,.0f}",
        )
    return result
