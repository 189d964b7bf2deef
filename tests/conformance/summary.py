"""The table of families by levels: how many cases hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .compare import LEVELS
from .corpus import family

__all__ = ["summary"]


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
