"""The largest resident size of a worker over ``state_memory_bytes``: with large values, and with many keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks import data
from benchmarks.many_keys import even_topic, noise_topic
from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job
from benchmarks.throughput import Run, measure_process
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["MIB", "Measured", "measure", "table"]

MIB = 1024 * 1024
VALUE_BYTES = 400_000
PARTITIONS = 4


@dataclass(frozen=True)
class Measured:
    workload: str
    """``values``: the last value of each key, of 400 kB. ``w2``: a count."""
    keys: int
    state_memory_mib: int
    run: Run


def measure(
    kafka: KafkaSettings,
    folder: Path,
    limits_mib: list[int],
    keys: int,
    large: int,
    tell: Callable[[str], None],
) -> Iterator[Measured]:
    """One run of each workload for each limit: a count of so many keys, and ``large`` keys with values of 400 kB.

    Each key comes twice.
    """
    admin = KafkaAdmin(kafka)
    for limit in limits_mib:
        for workload, number in (("values", large), ("w2", keys)):
            if not number:
                continue
            events = 2 * number
            topic = (
                noise_topic(kafka, VALUE_BYTES, number, events)
                if workload == "values"
                else even_topic(kafka, number, PARTITIONS, events)
            )
            app = f"bench-memory-{folder.name}-{workload}-{limit}"
            place = folder / app
            place.mkdir()
            job = Job(
                workload,
                kafka.bootstrap_servers,
                app,
                topic,
                "",
                "",
                events,
                str(place / "state"),
                limit=900,
                memory=limit * MIB,
            )
            process = PEERS["streamapp"].start(job, folder / "build", place / "log")
            run = Run("streamapp", workload, correct=None, **measure_process(process, place / "log"))
            tell(f"{workload} {limit} MiB: {run.memory_mib:,} MiB, {run.events_per_second:,.0f}/s")
            yield Measured(workload, number, limit, run)
            admin.delete_topics([name for name in data.topics(kafka) if app in name])


def table(found: list[Measured]) -> Table:
    result = Table("workload", title="Memory of a worker", title_justify="left")
    for column in (
        "keys",
        "state_memory_bytes, MiB",
        "MiB",
        "events/s",
        "CPU \u00b5s/event",
        "second half",
    ):
        result.add_column(column, justify="right")
    for each in found:
        half = each.run.second_half_cpu_us
        result.add_row(
            each.workload,
            f"{each.keys:,}",
            str(each.state_memory_mib),
            f"{each.run.memory_mib:,}",
            f"{each.run.events_per_second:,.0f}",
            f"{each.run.cpu_us:.2f}",
            "" if half is None else f"{half:.2f}",
        )
    return result
