"""SA6xx: real workers, and the limits of a process."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..processes import Worker, free_port, start_worker, until
from .patient import PARTITIONS, Patient, provokes

Start = Callable[..., tuple[Worker, str]]


@pytest.fixture
def start(patient: Patient) -> Iterator[Start]:
    workers: list[Worker] = []

    def run(name: str = "a", **env: str) -> tuple[Worker, str]:
        port = str(free_port())
        worker = start_worker(
            "tests.doctor.slow_app",
            patient.folder / f"{name}.log",
            {
                "APP_ID": patient.id,
                "BOOTSTRAP": patient.bootstrap,
                "SOURCE": patient.source,
                "SINK": patient.sink,
                "DATADIR": str(patient.folder / name),
                "WEB_PORT": port,
                "SLOW_SECONDS": "0",
                **env,
            },
        )
        workers.append(worker)
        url = f"http://127.0.0.1:{port}"
        until(lambda: _ready(url) or not worker.alive, 90, worker.text)
        return worker, url

    yield run
    for worker in workers:
        worker.close()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _codes(report: dict[str, Any]) -> set[str]:
    return {each["code"] for each in report["findings"]}


@provokes("SA603")
def test_records_that_take_nearly_too_long(patient: Patient, start: Start) -> None:
    patient.configure(max_poll_interval_ms=1_500)
    patient.feed(600)
    _, url = start(SLOW_SECONDS="1.2")
    until(
        lambda: ("SA603", url) in patient.findings("--worker", url),
        60,
        lambda: patient.report("--worker", url),
    )


@provokes("SA601", "SA602")
def test_a_worker_that_drops_and_one_that_does_not_answer(patient: Patient, start: Start) -> None:
    worker, url = start(REFUSES="1")
    until(lambda: ("SA602", f"{url} records") in patient.findings("--worker", url), 60, worker.text)
    assert worker.terminate() == 0
    assert patient.findings("--worker", url) == {("SA601", url)}


@provokes("SA604")
def test_a_worker_without_tasks(patient: Patient, start: Start) -> None:
    _, url = start()
    assert "SA604" not in _codes(patient.report("--worker", url))
    for number in range(PARTITIONS):
        start(f"more-{number}")
    # One worker is asked, and it names the others.
    until(
        lambda: "SA604" in _codes(patient.report("--worker", url)),
        180,
        lambda: patient.report("--worker", url),
    )


@provokes("SA605")
def test_too_few_files(patient: Patient) -> None:
    env = {
        **os.environ,
        "APP_ID": patient.id,
        "BOOTSTRAP": patient.bootstrap,
        "SOURCE": patient.source,
        "SINK": patient.sink,
        "DATADIR": str(patient.folder / "data"),
        "WEB_PORT": "6066",
    }
    app = "tests.worker.counting_app"
    assert "SA605" not in _codes(patient.doctor_process(app, wrapper="ulimit -Hn 1024", env=env))
    assert "SA605" in _codes(patient.doctor_process(app, wrapper="ulimit -n 200", env=env))


@provokes("SA606")
def test_too_little_memory(patient: Patient) -> None:
    patient.configure(state_memory_bytes=2**50)
    assert patient.findings() == {("SA606", "this machine")}
