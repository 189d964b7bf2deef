"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from streamapp.broker import LocalKafka

from .brokers import FreshKafka
from .java import make_java_light

# A busy machine makes examples slow, not wrong.
settings.register_profile("streamapp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamapp")

make_java_light(os.environ)


FIRST = (
    "spark",
    "worker/test_agent",
    "interop",
    "app/test_demo.py",
    "registry",
    "doctor",
    "operations",
    "worker",
    "broker",
    "producer",
    "consumer",
    "faults",
    "tutorial",
    "docs/test_site.py",
    "conformance/test_on",
    "app",
    "benchmarks",
    "web",
)
"""The beginnings of the paths of the longest tests, in the order in which they start. These tests mostly wait. All other
tests compute, and fill the gaps at the end."""
TOGETHER = {"spark", "doctor", "interop", "registry"}
"""The folders whose files share a broker, a registry or Spark, which take long to start. One process runs all tests of
such a folder. The folders inside ``spark`` have a second process."""
LIKE = {"conformance/test_on_spark.py": "spark"}
"""Files that the process of a folder runs, because the Java of Spark runs there already."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process a file, or a folder of those in `TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        path = _path(nodeid)
        folder, *inner = path.split("/")
        if path in LIKE:
            return LIKE[path]
        if folder not in TOGETHER:
            return nodeid.split("::", 1)[0]
        return folder if len(inner) == 1 else f"{folder}/*"


def _path(nodeid: str) -> str:
    """The file of a test, below ``tests``."""
    return nodeid.split("::", 1)[0].removeprefix("tests/")


def _place(item: pytest.Item) -> int:
    path = _path(item.nodeid)
    return min((n for n, first in enumerate(FIRST) if path.startswith(first)), default=len(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    return Sharing(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test failed that was tried again: the plugin that tries it says only that it did."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(scope="session")
def fresh_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshKafka]:
    kept = FreshKafka(tmp_path_factory.mktemp("kafka"))
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def kafka(fresh_kafka: FreshKafka) -> LocalKafka:
    """One real broker for all tests of a module, and mostly for the next modules too.

    Tests keep apart by the names of their topics and groups.
    """
    return fresh_kafka.get()
