"""CPU per event of a count (W2) over the number of keys, or of partitions: it must not grow beyond what the work demands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.table import Table

from benchmarks import data
from benchmarks.many_keys import even_topic
from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job
from benchmarks.throughput import Run, measure_process
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["VALUES", "measure", "table"]

VALUES = {"keys": (10_000, 1_000_000, 10_000_000), "partitions": (4, 40, 400)}
KEYS, PARTITIONS = 10_000, 4
"""Of the dimension that stays."""


def measure(
    kafka: KafkaSettings,
    folder: Path,
    dimension: str,
    values: list[int],
    events: int,
    tell: Callable[[str], None],
) -> Iterator[tuple[int, Run]]:
    """One run for each value; with more keys than events, each key comes once."""
    admin = KafkaAdmin(kafka)
    for at in values:
        keys, partitions = (at, PARTITIONS) if dimension == "keys" else (KEYS, at)
        count = max(events, keys)
        topic = even_topic(kafka, keys, partitions, count)
        app = f"bench-{dimension}-{folder.name}-{at}"
        place = folder / app
        place.mkdir()
        state = str(place / "state")
        job = Job(
            "w2", kafka.bootstrap_servers, app, topic, "", "", count, state, partitions=partitions, limit=900
        )
        process = PEERS["streamapp"].start(job, folder / "build", place / "log")
        run = Run("streamapp", "w2", correct=None, **measure_process(process, place / "log"))
        tell(f"{at:,} {dimension}: {run.cpu_us:.2f} µs")
        yield at, run
        admin.delete_topics([name for name in data.topics(kafka) if app in name])


def table(dimension: str, found: list[tuple[int, Run]]) -> Table:
    result = Table(dimension, title="A count as it grows", title_justify="left")
    for column in ("events", "events/s", "CPU µs/event", "MiB"):
        result.add_column(column, justify="right")
    for at, run in found:
        result.add_row(
            f"{at:,}",
            f"{run.events:,}",
            f"{run.events_per_second:,.0f}",
            f"{run.cpu_us:.2f}",
            f"{run.memory_mib:,}",
        )
    return result
