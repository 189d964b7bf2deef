"""CPU per event over one number at a time. The CPU must not grow faster than the work of an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks import data
from benchmarks.many_keys import FLIGHTS_OF_A_YEAR, even_topic, noise_topic
from benchmarks.peers import PEERS
from benchmarks.programs.meter import Job
from benchmarks.throughput import Run, measure_process
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = ["CURVES", "KEYS", "measure", "table"]

KEYS, PARTITIONS = 10_000, 4
"""The values of the dimensions that a curve does not change."""
VALUE_BYTES = 5 * 10**8
"""The most bytes that the values of a topic take together."""


class Work(NamedTuple):
    """The settings of one point of a curve."""

    topic: str
    events: int
    workload: str = "w2"
    partitions: int = PARTITIONS
    variant: str = ""


def _keys(kafka: KafkaSettings, at: int, events: int) -> Work:
    count = max(events, at)  # with more keys than events, each key comes once
    return Work(even_topic(kafka, at, PARTITIONS, count), count)


def _partitions(kafka: KafkaSettings, at: int, events: int) -> Work:
    return Work(even_topic(kafka, KEYS, at, events), events, partitions=at)


def _value_bytes(kafka: KafkaSettings, at: int, events: int) -> Work:
    count = min(events, VALUE_BYTES // at)
    return Work(noise_topic(kafka, at, KEYS // 10, count), count, "values")


def _stores(kafka: KafkaSettings, at: int, events: int) -> Work:
    count = max(events // at, 10 * KEYS)
    return Work(even_topic(kafka, KEYS, PARTITIONS, count), count, "stores", variant=str(at))


def _retention(kafka: KafkaSettings, at: int, events: int) -> Work:
    return Work(even_topic(kafka, KEYS, PARTITIONS, events), events, "retention", variant=str(at))


def _sessions(kafka: KafkaSettings, at: int, events: int) -> Work:
    topic, _ = data.load(kafka, 3)
    return Work(topic, 3 * FLIGHTS_OF_A_YEAR, "sessions", variant=str(at))


@dataclass(frozen=True)
class Curve:
    values: tuple[int, ...]
    work: Callable[[KafkaSettings, int, int], Work]
    """The work at one value, with about so many events."""
    per: str = ""
    """The unit of one more column: each event has units in proportion to the value. Empty: no such column."""
    each: int = 1
    """The part of the value that makes one unit."""


CURVES = {
    "keys": Curve((10_000, 1_000_000, 10_000_000, 20_000_000), _keys),
    "partitions": Curve((4, 40, 400, 2_000), _partitions),
    "value-bytes": Curve((50, 1_000, 10_000, 100_000), _value_bytes, "KB", 1_000),
    "stores": Curve((1, 4, 16, 64), _stores, "store"),
    "retention": Curve((10, 100, 1_000, 10_000), _retention),
    "sessions": Curve((1, 10, 100, 1_500), _sessions),
}
"""Values of ``retention`` are seconds. A thousand windows, each of another key, come in each second of event time.

Values of ``sessions`` are days of grace, and nearly each flight of three years makes a new session.
"""


def measure(
    kafka: KafkaSettings,
    folder: Path,
    dimension: str,
    values: list[int],
    events: int,
    tell: Callable[[str], None],
) -> Iterator[tuple[int, Run]]:
    """One run for each value."""
    admin = KafkaAdmin(kafka)
    for at in values:
        work = CURVES[dimension].work(kafka, at, events)
        app = f"bench-{dimension}-{folder.name}-{at}"
        place = folder / app
        place.mkdir()
        job = Job(
            work.workload,
            kafka.bootstrap_servers,
            app,
            work.topic,
            "",
            "",
            work.events,
            str(place / "state"),
            work.variant,
            partitions=work.partitions,
            limit=900,
        )
        process = PEERS["streamapp"].start(job, folder / "build", place / "log")
        run = Run("streamapp", work.workload, correct=None, **measure_process(process, place / "log"))
        tell(f"{at:,} {dimension}: {run.cpu_us:.2f} µs")
        yield at, run
        admin.delete_topics([name for name in data.topics(kafka) if app in name])


def table(dimension: str, found: list[tuple[int, Run]]) -> Table:
    curve = CURVES[dimension]
    result = Table(dimension, title="The cost of an event as the work grows", title_justify="left")
    for column in (
        "events",
        "events/s",
        "CPU µs/event",
        *([f"CPU µs/{curve.per}"] if curve.per else []),
        "MiB",
    ):
        result.add_column(column, justify="right")
    for at, run in found:
        result.add_row(
            f"{at:,}",
            f"{run.events:,}",
            f"{run.events_per_second:,.0f}",
            f"{run.cpu_us:.2f}",
            *([f"{run.cpu_us * curve.each / at:.2f}"] if curve.per else []),
            f"{run.memory_mib:,}",
        )
    return result
