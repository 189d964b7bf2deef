"""The cost of a record in a serde, beside Confluent's own serializers for Python: CPU microseconds, without brokers.

Both sides have the same registry, which is stopped before the measurement: no request is measured. Each round measures
the two sides of a case one after the other, and every second round begins with the other side. The ratio is the median
of the rounds' ratios.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from benchmarks.serde_cases import Case, Work, cases
from tests.unit.registry.scripted import ScriptedRegistry

__all__ = ["Cost", "costs", "serdes_table"]

SECONDS = 0.01
"""The time of one side in one round."""


@dataclass(frozen=True)
class Cost:
    """Medians of all rounds."""

    format: str
    record: str
    way: str
    ours_us: float
    theirs_us: float
    ratios: tuple[float, ...]
    """Confluent's time over ours, one for each round, in order of size."""


def costs(rounds: int = 21) -> list[Cost]:
    """The costs of all cases, on both sides."""
    registry = ScriptedRegistry()
    try:
        prepared = cases(registry.url)
    finally:
        registry.stop()
    return [_cost(case, rounds) for case in prepared]


def _cost(case: Case, rounds: int) -> Cost:
    times = {work: max(1, round(SECONDS / _measured(work, 20))) for work in (case.ours, case.theirs)}
    ours, theirs = [], []
    for turn in range(rounds):
        for work in (case.ours, case.theirs) if turn % 2 else (case.theirs, case.ours):
            (ours if work is case.ours else theirs).append(_measured(work, times[work]) * 1e6)
    ratios = sorted(their / own for own, their in zip(ours, theirs, strict=True))
    return Cost(case.format, case.record, case.way, median(ours), median(theirs), tuple(ratios))


def _measured(work: Work, times: int) -> float:
    """CPU seconds of one call."""
    started = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - started) / times


def serdes_table(measured: list[Cost]) -> Table:
    table = Table(
        "format", "record", "way", caption="CPU microseconds for a record; times: Confluent's over ours"
    )
    for column in ("streamapp", "Confluent", "times", "range"):
        table.add_column(column, justify="right", no_wrap=True)
    for cost in measured:
        table.add_row(
            cost.format,
            cost.record,
            cost.way,
            f"{cost.ours_us:.1f}",
            f"{cost.theirs_us:.1f}",
            f"{median(cost.ratios):.1f}",
            f"{cost.ratios[0]:.1f} to {cost.ratios[-1]:.1f}",
        )
    return table
