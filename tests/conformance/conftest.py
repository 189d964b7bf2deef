"""``pytest tests/conformance [--cases DIR]``: one test for each case, and a table of families by levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from .corpus import CASES, load
from .summary import summary


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=Path, default=CASES, help="folder of conformance cases (SPEC.md)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = load(metafunc.config.getoption("--cases", default=CASES))
        metafunc.parametrize("case", cases, ids=[case["name"] for case in cases])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    results = [dict(report.user_properties)["conformance"] for report in reports if _has_result(report)]
    if results:
        terminalreporter.section("conformance with Kafka Streams: cases that hold, by level")
        for line in summary((name, set(failed)) for name, failed in results):
            terminalreporter.write_line(line)


def _has_result(report: object) -> bool:
    of_call = getattr(report, "when", "") == "call"
    return of_call and "conformance" in dict(getattr(report, "user_properties", ()))
