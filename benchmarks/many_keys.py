"""Workloads with many rows: inputs of their own, and results that every peer must agree upon.

A digest stands for the result of a run. Peers with equal digests have the same rows, or have written the same records.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from benchmarks import data
from benchmarks.reading import records
from benchmarks.schema import Flight
from streamapp.broker import KafkaAdmin, KafkaSettings

__all__ = [
    "FLIGHTS_OF_A_YEAR",
    "STEP",
    "WORKLOADS",
    "Inputs",
    "Workload",
    "counted",
    "even_topic",
    "noise_topic",
]

STEP = 7_368_787
"""A prime. ``number * STEP % keys`` visits the keys in an order in which caches help little."""
FLIGHTS_OF_A_YEAR = 336_776


class Inputs(NamedTuple):
    """The topics that a workload reads, and the number of events in the first one."""

    first: str
    second: str
    events: int


class Result(NamedTuple):
    total: int
    """The sum of all counts, or the number of records of an output."""
    digest: str


@dataclass(frozen=True)
class Workload:
    """``prepare`` makes the input once, for a largest number of events (None: the usual number). ``result`` reads
    the result of the run whose topics have ``tag`` in their names. Its total is ``times`` the number of events (None:
    no multiple of this number)."""

    prepare: Callable[[KafkaSettings, int | None], Inputs]
    result: Callable[[KafkaSettings, str], Result]
    times: int | None = 1


def even_topic(kafka: KafkaSettings, keys: int, partitions: int, count: int) -> str:
    """A topic with so many flights, whose keys and partitions come about equally often."""
    value = msgspec.json.encode(data.flights()[0][0])
    rows = ((f"key-{n * STEP % keys:08d}", value, data.BEFORE_ALL + n) for n in range(count))
    return _topic(kafka, f"bench-curve-{keys}-{partitions}-{count}", rows, partitions)


def noise_topic(kafka: KafkaSettings, size: int, keys: int, count: int) -> str:
    """A topic with so many values of ``size`` random bytes. A value alone cannot be compressed."""
    noise = os.urandom(2 * size)
    rows = ((f"key-{n % keys:08d}", noise[n % size :][:size], data.BEFORE_ALL + n) for n in range(count))
    return _topic(kafka, f"bench-values-{size}-{keys}-{count}", rows)


def _topic(kafka: KafkaSettings, topic: str, rows: Iterable[data.Event], partitions: int = 4) -> str:
    admin = KafkaAdmin(kafka)
    if topic not in admin.partition_counts([topic]):
        data.create(admin, topic, partitions=partitions)
        data.publish(kafka, topic, rows)
    return topic


def _keys(kafka: KafkaSettings, limit: int | None) -> Inputs:
    events = limit or 2_000_000
    return Inputs(even_topic(kafka, events // 2, 4, events), "", events)


def _sessions(kafka: KafkaSettings, limit: int | None) -> Inputs:
    years = 1 if limit else 3
    return Inputs(data.load(kafka, years, limit)[0], "", years * (limit or FLIGHTS_OF_A_YEAR))


def _year(kafka: KafkaSettings, limit: int | None) -> Inputs:
    """The flights of a year by tail number."""
    return Inputs(data.load(kafka, 1, limit)[0], "", limit or FLIGHTS_OF_A_YEAR)


def _carriers(kafka: KafkaSettings, limit: int | None) -> Inputs:
    return Inputs(data.load(kafka, 1, limit)[1], "", limit or FLIGHTS_OF_A_YEAR)


def _hopping(kafka: KafkaSettings, limit: int | None) -> Inputs:
    events = limit or 20_000
    return Inputs(data.load(kafka, 1, events)[1], "", events)


def _numbered(limit: int | None) -> Iterator[tuple[str, Flight, int]]:
    """The flights of known planes in the order of time, each with a number as its key."""
    known = {plane.tailnum for plane in data.planes()}
    flights = ((flight, at) for flight, at in data.flights() if flight.tailnum in known)
    for number, (flight, at) in enumerate(islice(flights, limit)):
        yield f"{number:07d}", flight, at


def _foreign_key(kafka: KafkaSettings, limit: int | None) -> Inputs:
    events = sum(1 for _ in _numbered(limit))
    rows = ((key, msgspec.json.encode(flight), at) for key, flight, at in _numbered(limit))
    data.load(kafka, 1, 1)  # the planes
    return Inputs(_topic(kafka, f"bench-numbered-{events}", rows), data.PLANES, events)


def _stream_join(kafka: KafkaSettings, limit: int | None) -> Inputs:
    first = _foreign_key(kafka, limit)
    landed = sorted(
        ((key, msgspec.json.encode(f), at + 60_000 * (f.air_time or 90)) for key, f, at in _numbered(limit)),
        key=lambda each: each[2],
    )
    return Inputs(first.first, _topic(kafka, f"bench-landed-{first.events}", landed), first.events)


def _table(kafka: KafkaSettings, tag: str) -> Result:
    """The counts that the changelog has at the end."""
    made_for_all = f"{tag}-changelog"  # for peers without a changelog of their own
    changelogs = [topic for topic in data.topics(kafka) if tag in topic and topic.endswith("-changelog")]
    (changelog,) = [topic for topic in changelogs if topic != made_for_all] or [made_for_all]
    rows: dict[bytes, bytes] = {}
    for key, value in records(kafka, changelog):
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return counted(rows.items())


def counted(rows: Iterable[tuple[bytes, bytes]]) -> Result:
    """The result that stands for the rows of a table of counts."""
    total = digest = 0
    for key, value in rows:
        total += int.from_bytes(value)
        digest += _hash(key + b"\0" + value)
    return Result(total, f"{digest % 2**64:016x}")


def _output(kafka: KafkaSettings, tag: str) -> Result:
    """The records of the output, without regard to the order of keys and of fields."""
    return _fields(records(kafka, f"{tag}-out"))


def _fields(found: Iterable[tuple[bytes, bytes]]) -> Result:
    rows = [
        key + b"\0" + msgspec.json.encode(sorted(msgspec.json.decode(value).items())) for key, value in found
    ]
    return Result(len(rows), _digest(rows))


def _numbers(kafka: KafkaSettings, tag: str) -> Result:
    """The records of an output of numbers."""
    rows = [key + b"\0" + value for key, value in records(kafka, f"{tag}-out")]
    return Result(len(rows), _digest(rows))


def _last_output(kafka: KafkaSettings, tag: str) -> Result:
    """The last record of each key in the output, without regard to the order of keys and of fields.

    A record cache decides how many results a key of a joined table has.
    """
    return _fields(dict(records(kafka, f"{tag}-out")).items())


def _last_numbers(kafka: KafkaSettings, tag: str) -> Result:
    """The last record of each key in an output of numbers. A record cache leaves out some records before the last."""
    return counted(dict(records(kafka, f"{tag}-out")).items())


def _digest(rows: Iterable[bytes]) -> str:
    return f"{sum(map(_hash, rows)) % 2**64:016x}"


def _hash(row: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(row, digest_size=8).digest())


WORKLOADS = {
    "sessions": Workload(_sessions, _table),
    "final-sessions": Workload(_sessions, _table),
    "keys": Workload(_keys, _table),
    "foreign-key": Workload(_foreign_key, _output),
    "hopping": Workload(_hopping, _table, times=288),
    "stream-join": Workload(_stream_join, _output),
    "sliding": Workload(_year, _last_numbers, times=None),
    "suppressed": Workload(_carriers, _numbers, times=None),
    "processor": Workload(_year, _numbers),
    "table-join": Workload(_stream_join, _last_output),
}
