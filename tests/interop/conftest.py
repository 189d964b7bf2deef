"""The Java program, compiled once; and what Java alone makes of the whole input, once for all tests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from streamapp.broker import LocalKafka
from streamapp.broker.distribution import find_java

from ..brokers import FreshKafka
from .handover import Application, Side
from .java_side import class_path
from .reading import Left, left_by
from .records import make_parts

HOUR = 3_600_000


@pytest.fixture(scope="package")
def kafka(fresh_kafka: FreshKafka) -> LocalKafka:
    """One broker for the folder, because Java alone runs once for all modules."""
    return fresh_kafka.get()


@pytest.fixture(scope="package")
def java_class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not Path(find_java()).with_name("javac").exists():
        pytest.skip("compiling the Java side needs a JDK (javac)")
    return class_path(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="package")
def start_ms() -> int:
    """Kafka Streams lets the broker delete old windows by the machine's clock, so the input is of today."""
    return int(time.time() * 1000) // HOUR * HOUR - 8 * HOUR


@pytest.fixture(scope="package")
def application(
    kafka: LocalKafka, java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Application]:
    """Makes an application with topics of its own, for a processing guarantee."""

    def make(guarantee: str = "at_least_once") -> Application:
        id, folder = f"interop-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("interop")
        return Application(id, kafka.bootstrap_servers, guarantee, java_class_path, folder)

    return make


@pytest.fixture(scope="package")
def run(application: Callable[[str], Application], start_ms: int) -> Callable[[str, tuple[Side, ...]], Left]:
    """Runs an application in turns, each with the next half of the input; a single turn gets all of it."""

    def in_turns(guarantee: str, sides: tuple[Side, ...]) -> Left:
        app, parts = application(guarantee), make_parts(start_ms)
        if len(sides) == 1:
            parts = [[row for part in parts for row in part]]
        for side, part in zip(sides, parts, strict=True):
            app.feed(part)
            app.turn(side)
        return left_by(app)

    return in_turns


@pytest.fixture(scope="package")
def java_alone(run: Callable[[str, tuple[Side, ...]], Left]) -> Left:
    return run("at_least_once", ("java",))
