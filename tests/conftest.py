"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from streamapp.broker import LocalKafka

from .brokers import SteadyKafka

# A busy machine makes examples slow, not wrong.
settings.register_profile("streamapp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamapp")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test failed that was tried again: the plugin that tries it says only that it did."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One real broker for the whole session; tests keep apart by the names of their topics and groups."""
    with SteadyKafka(tmp_path_factory.mktemp("kafka"), brokers=1, port=0) as broker:
        yield broker
