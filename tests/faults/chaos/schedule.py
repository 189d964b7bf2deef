"""The kinds and lengths of faults, drawn from a seed, so that another run can have the same faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

__all__ = ["KINDS", "Fault", "names", "steps"]

KINDS = ("kill", "stop", "suspend", "broker", "quota")
_SECONDS = {"kill": (1, 12), "stop": (1, 8), "suspend": (9, 20), "broker": (1, 12), "quota": (8, 25)}
"""The shortest and the longest time until the fault is taken back. A suspension is longer than a session (6 s)."""
_NEVER_TOGETHER = {frozenset({"stop", "broker"}), frozenset({"stop", "quota"})}
"""A worker that cannot commit within its time to stop may end with another code than 0 (docs/worker.md)."""


class Fault(NamedTuple):
    kind: str
    worker: str
    """Empty if the fault is of the brokers."""
    seconds: int
    broker: int = 0
    """The number of the broker that is killed; 0: the fault is not of one broker."""


def names(workers: int) -> list[str]:
    return [f"w{number}" for number in range(1, workers + 1)]


def steps(seed: int, workers: int, brokers: int) -> Iterator[list[Fault]]:
    """Gives steps without end. The faults of a step come together.

    Five steps in a row begin with each of the five kinds once. About every third step has a second fault, of another
    kind and for another worker, if there are several workers.
    """
    draw = random.Random(seed)
    pairs = [set(pair) for pair in combinations(KINDS, 2) if frozenset(pair) not in _NEVER_TOGETHER]
    while True:
        for kind in draw.sample(KINDS, len(KINDS)):
            targets = draw.sample(names(workers), workers)
            kinds = [kind]
            if workers > 1 and draw.random() < 0.35:
                kinds += draw.choice([sorted(pair - {kind}) for pair in pairs if kind in pair])
            yield [_fault(draw, each, targets.pop(), brokers) for each in kinds]


def _fault(draw: random.Random, kind: str, worker: str, brokers: int) -> Fault:
    seconds = draw.randint(*_SECONDS[kind])
    if kind == "broker":
        return Fault(kind, "", seconds, draw.randint(1, brokers))
    return Fault(kind, "" if kind == "quota" else worker, seconds)
