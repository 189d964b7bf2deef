"""The input: two halves of a day of made-up flights, each of which a new owner of the application may begin with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamapp._base.partitioning import partition_for

from .flights import INPUTS

__all__ = ["PARTS", "Input", "make_parts"]

PARTS = 2
MINUTE = 60_000
LENGTH = 120 * MINUTE
TAILS = [f"N{number:03}" for number in range(24)]
AIRPORTS, CARRIERS, OWNERS, MODELS = (
    ["JFK", "LGA", "EWR"],
    ["UA", "DL", "B6"],
    ["Ann", "Bo", "Cy"],
    ["A320", "B738"],
)


class Input(NamedTuple):
    topic: str
    key: str
    value: str | None
    timestamp: int

    @property
    def partition(self) -> int:
        return partition_for(self.key.encode(), INPUTS[self.topic])


def make_parts(start_ms: int) -> list[list[Input]]:
    """The parts, each in the order in which it is written. No two records of a part have the same timestamp.

    Each part begins with a record of each kind for each partition that is later than all that came before. A
    restarted Kafka Streams has forgotten the stream times of its operators, and takes late records that it would
    have dropped; so it has none to take, and what comes out does not depend on where the parts begin.

    The last part ends with flights of planes without a fare, so that none with one waits for later ones in a join with a grace period.
    """
    rng = random.Random(20130101)
    parts = [_part(rng, start_ms + number * (LENGTH + 15 * MINUTE), number) for number in range(PARTS)]
    end = max(row.timestamp for row in parts[-1]) + 30 * MINUTE
    for partition, tail in enumerate(_one_of_each_partition(tail.replace("N", "M") for tail in TAILS)):
        parts[-1].append(Input("flights", tail, "JFK,BOS,UA,0", end + partition))
    return parts


def _part(rng: random.Random, start: int, number: int) -> list[Input]:
    rows = [*_first(start), *_undated(start, number), *_tables(rng, start), *_events(rng, start)]
    used: set[int] = set()
    return [row._replace(timestamp=_free(row.timestamp, used)) for row in rows]


def _free(timestamp: int, used: set[int]) -> int:
    """Equal timestamps of two topics could be processed either way around."""
    while timestamp in used:
        timestamp += 1
    used.add(timestamp)
    return timestamp


def _first(start: int) -> Iterator[Input]:
    for partition, tail in enumerate(_one_of_each_partition(TAILS)):
        yield Input("flights", tail, "JFK,BOS,UA,0", start + partition)
        yield Input("landings", tail, "BOS,0", start + 10 + partition)


def _one_of_each_partition(keys: Iterable[str]) -> list[str]:
    found: dict[int, str] = {}
    for key in keys:
        found.setdefault(partition_for(key.encode(), INPUTS["flights"]), key)
    return list(found.values())


def _undated(start: int, number: int) -> Iterator[Input]:
    """Ratings without a time, which the first owner of a partition has no time for, but each later one has."""
    if number:
        for tail in _one_of_each_partition(TAILS):
            yield Input("ratings", tail, "undated", start + 20)


def _tables(rng: random.Random, start: int) -> Iterator[Input]:
    at = start + 30
    for carrier in CARRIERS:
        yield Input("carriers", carrier, f"{carrier} Inc.", at)
    for topic, keys, values in (
        ("owners", OWNERS, ["Inc.", "Ltd.", None]),
        ("planes", TAILS, [f"{model},{owner}" for model in MODELS for owner in OWNERS] + [None]),
        ("ratings", TAILS, ["good", "fair", None]),
        ("fares", TAILS, ["low", "high", None]),
    ):
        for key in keys:
            for _ in range(rng.randrange(4)):
                at += rng.randrange(1, 20_000)
                yield Input(topic, key, rng.choice(values), at)


def _events(rng: random.Random, start: int) -> Iterator[Input]:
    now, end = start + 1_000, start + LENGTH + 10 * MINUTE
    for _ in range(300):
        now = min(now + rng.randrange(LENGTH // 300 * 2), end)
        late = rng.choices((0, rng.randrange(8), rng.randrange(100)), (8, 3, 1))[0] * MINUTE
        at, tail = max(now - late, 1), rng.choice(TAILS)
        flight = f"{rng.choice(AIRPORTS)},{rng.choice(['BOS', 'ORD'])},{rng.choice(CARRIERS)},{rng.randrange(-5, 90)}"
        yield Input("flights", tail, flight, at)
        if rng.random() < 0.5:
            landed = min(at + rng.randrange(90 * MINUTE), end)
            yield Input("landings", tail, f"BOS,{rng.randrange(60)}", landed)
