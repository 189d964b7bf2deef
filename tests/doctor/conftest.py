"""A cluster that is well, and one that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamapp.broker import LocalKafka

from .patient import Patient, SickKafka, ThreeRacks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"three", "sick", "patient"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="package")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with ThreeRacks(tmp_path_factory.mktemp("three"), brokers=3, port=0, heap_mb=256) as kafka:
        yield kafka


@pytest.fixture(scope="package")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with SickKafka(tmp_path_factory.mktemp("sick"), brokers=1, port=0, heap_mb=256) as kafka:
        yield kafka


@pytest.fixture
def patient(three: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    """Nothing is found with it, which each test can rely on."""
    patient = Patient(three.bootstrap_servers, tmp_path, monkeypatch)
    patient.feed(30)
    assert patient.report()["findings"] == []
    return patient


@pytest.fixture
def sick_patient(sick: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(sick.bootstrap_servers, tmp_path, monkeypatch, replicas=1)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    """Writes the settings of a client; the path."""

    def write(text: str) -> str:
        path = tmp_path / "client.properties"
        path.write_text(text)
        return str(path)

    return write
