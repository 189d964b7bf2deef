"""``pytest tests/conformance [--cases DIR] [--per-family N]``: one test for each case, N of each family on workers and on
Spark, and at the end tables of families by levels and by runners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .corpus import CASES, family, load
from .meaning import left_out, left_out_of_batch
from .summary import runner_summary, summary

LONG = 40
"""Records and other steps of a case."""

RUNNERS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "worker_case": left_out,
    "spark_case": left_out_of_batch,
}
"""Argument of a test -> why a case is left out of it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=Path, default=CASES, help="folder of conformance cases (SPEC.md)")
    parser.addoption(
        "--per-family", type=int, default=1, help="cases of each family on workers and on Spark; 0: all"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = load(metafunc.config.getoption("--cases", default=CASES))
        metafunc.parametrize("case", cases, ids=[case["name"] for case in cases])
    for argument, reason in RUNNERS.items():
        if argument in metafunc.fixturenames:
            number = metafunc.config.getoption("--per-family", default=1)
            cases = list(_some(load(metafunc.config.getoption("--cases", default=CASES)), reason, number))
            metafunc.parametrize(argument, cases, ids=[case["name"] for case in cases])


def _some(
    cases: list[dict[str, Any]], left_out: Callable[[dict[str, Any]], str | None], number: int
) -> Iterator[dict[str, Any]]:
    """The first so many cases of each family that have a meaning on a runner; long ones, whose every record waits for a commit
    there, only if there are no others."""
    taken: dict[str, int] = {}
    for case in sorted(cases, key=lambda case: len(case["input"]) > LONG):
        name = family(case["name"])
        if left_out(case) is None and (not number or taken.get(name, 0) < number):
            taken[name] = taken.get(name, 0) + 1
            yield case


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    results = _properties(reports, "conformance")
    if results:
        terminalreporter.section("conformance with Kafka Streams: cases that hold, by level")
        for line in summary((name, set(failed)) for name, failed in results):
            terminalreporter.write_line(line)
    on_runners = _properties(reports, "runner")
    if on_runners:
        terminalreporter.section("conformance with Kafka Streams: cases that hold, by runner")
        driver = ((name, "driver", 1 not in failed and 2 not in failed) for name, failed in results)
        cases = load(terminalreporter.config.getoption("--cases", default=CASES))
        for line in runner_summary([*driver, *on_runners], cases):
            terminalreporter.write_line(line)


def _properties(reports: list[Any], name: str) -> list[Any]:
    of_calls = [report for report in reports if getattr(report, "when", "") == "call"]
    properties = [dict(getattr(report, "user_properties", ())) for report in of_calls]
    return [each[name] for each in properties if name in each]
