"""The tables of families by levels and by runners: how many cases hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from .compare import LEVELS
from .corpus import family
from .meaning import left_out, left_out_of_batch

__all__ = ["runner_summary", "summary"]

RUNNERS = {"driver": lambda case: None, "workers": left_out, "spark": left_out_of_batch}
"""Runner -> why a case is left out of it."""


def summary(results: Iterable[tuple[str, set[int]]]) -> Iterator[str]:
    """Lines of a table, from (case name, the levels that do not hold)."""
    held: dict[str, dict[int, int]] = {}
    totals: dict[str, int] = {}
    for case, failed in results:
        for group in (family(case), "all"):
            totals[group] = totals.get(group, 0) + 1
            counts = held.setdefault(group, dict.fromkeys(LEVELS, 0))
            for level in LEVELS:
                counts[level] += level not in failed
    yield "family".ljust(26) + "".join(f"{level} {title}".rjust(13) for level, title in LEVELS.items())
    for group in [*sorted(g for g in held if g != "all"), "all"] if held else []:
        cells = (f"{held[group][level]}/{totals[group]}" for level in LEVELS)
        yield group.ljust(26) + "".join(cell.rjust(13) for cell in cells)


def runner_summary(
    results: Iterable[tuple[str, str, bool]], cases: Iterable[dict[str, Any]]
) -> Iterator[str]:
    """Lines of a table, from (case name, runner, whether it holds): cases that hold of those that were run, and in
    brackets how many have a meaning there. Below it, why the others are left out."""
    held, run, meant, reasons = (Counter[tuple[str, str]]() for _ in range(4))
    groups = set()
    for name, runner, holds in results:
        for group in (family(name), "all"):
            run[group, runner] += 1
            held[group, runner] += holds
    for case in cases:
        groups.add(family(case["name"]))
        for runner, left_out_of in RUNNERS.items():
            reason = left_out_of(case)
            if reason is not None:
                reasons[runner, reason] += 1
            for group in (family(case["name"]), "all"):
                meant[group, runner] += reason is None
    yield "family".ljust(26) + "".join(runner.rjust(18) for runner in RUNNERS)
    for group in [*sorted(groups), "all"]:
        cells = (f"{held[group, r]}/{run[group, r]} ({meant[group, r]})" for r in RUNNERS)
        yield group.ljust(26) + "".join(cell.rjust(18) for cell in cells)
    for (runner, reason), number in sorted(reasons.items()):
        yield f"left out of {runner}: {number} cases, each of which {reason}"
