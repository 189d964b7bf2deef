"""Runs cases from the command line.

``python -m tests.conformance.run CASE`` prints what differs, level by level; with ``--summary [--family F]``
the table of families by levels and which cases do not hold.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from .compare import LEVELS, compare
from .corpus import CASES, family, load
from .outcome import execute
from .summary import summary

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run")
    parser.add_argument("names", nargs="*", metavar="CASE", help="cases by name: their differences in full")
    parser.add_argument("--summary", action="store_true", help="the table, and the cases that do not hold")
    parser.add_argument("--family", help="only this family")
    parser.add_argument("--level", type=int, choices=sorted(LEVELS), help="only this level")
    parser.add_argument("--cases", type=Path, default=CASES, help="a folder of case files")
    parser.add_argument("--trace", action="store_true", help="the traceback of an error")
    options = parser.parse_args(arguments)
    cases = [case for case in load(options.cases) if options.family in (None, family(case["name"]))]
    levels = [options.level] if options.level else list(LEVELS)
    if options.summary:
        return _summarise(cases, levels)
    chosen = [case for case in cases if case["name"] in options.names or not options.names]
    if missing := set(options.names) - {case["name"] for case in chosen}:
        parser.error(f"no such case: {', '.join(sorted(missing))}")
    return max([_report(case, levels, options.trace) for case in chosen], default=0)


def _report(case: dict[str, Any], levels: list[int], trace: bool) -> int:
    outcome = execute(case)
    differences = compare(case, outcome)
    print(f"{case['name']}: {case['about']}")
    for level in levels:
        print(f"  level {level} ({LEVELS[level]}): {'differs' if differences[level] else 'holds'}")
        for line in differences[level]:
            print(f"    {line}")
    if trace and outcome.error is not None:
        traceback.print_exception(outcome.error)
    return int(any(differences[level] for level in levels))


def _summarise(cases: list[dict[str, Any]], levels: list[int]) -> int:
    results: list[tuple[str, set[int]]] = []
    crashes: Counter[str] = Counter()
    failing: dict[int, list[str]] = {level: [] for level in levels}
    for case in cases:
        outcome = execute(case)
        differences = compare(case, outcome)
        results.append((case["name"], {level for level in LEVELS if differences[level]}))
        crash = ""
        if outcome.error is not None and "error" not in case["expected"]:
            crash = f"  crash at {outcome.actual['error_at']}: {outcome.actual['error'][:100]}"
            crashes[_kind(outcome.error)] += 1
        for level in levels:
            if differences[level]:
                failing[level].append(case["name"] + (crash if level == levels[0] else ""))
    for level in levels:
        print(f"level {level} ({LEVELS[level]}) does not hold: {len(failing[level])}")
        for name in failing[level]:
            print(f"  {name}")
    if crashes:
        print("crashes by kind and place:")
        for kind, count in crashes.most_common(25):
            print(f"  {count:4} {kind}")
    print("\n".join(summary(results)))
    return int(any(failing.values()))


def _kind(error: Exception) -> str:
    """What is common to crashes of one cause: class, start of the message, innermost place."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = traceback.extract_tb(cause.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{place} {type(cause).__name__}: {str(cause)[:110]}"


if __name__ == "__main__":
    sys.exit(main())
