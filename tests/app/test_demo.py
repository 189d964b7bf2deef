"""What `make run` does, from the first start to the comparison, with workers that come, go and are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Worker, free_port, until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SECONDS = 600.0  # a Spark session, and its jobs, on a busy machine


class Demo:
    """`python -m agents.demo`, on a data folder and ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka_port, self.web_port, self.second_web_port = free_port(), free_port(), free_port()
        self.registry_port = free_port()
        self._stack = ExitStack()
        self._runs = 0

    def close(self) -> None:
        self._stack.close()

    def start(self, *arguments: str) -> Worker:
        ports = ["--kafka-port", f"{self.kafka_port}", "--web-port", f"{self.web_port}"]
        ports += ["--registry-port", f"{self.registry_port}"]
        command = [sys.executable, "-m", "agents.demo", *ports, "--data", f"{self.folder}", *arguments]
        return self._start(command, {})

    def start_worker(self, web_port: int, datadir: str) -> Worker:
        """As the README and the demo itself say it."""
        command = [str(Path(sys.executable).with_name("streamapp")), "worker", "agents"]
        options = ["--web-port", f"{web_port}", "--datadir", f"{self.folder / datadir}"]
        return self._start([*command, *options], self._servers)

    def ingest(self, day: str) -> Worker:
        return self._start([sys.executable, "-m", "agents.ingest", "--until", day], self._servers)

    @property
    def _servers(self) -> dict[str, str]:
        return {
            "STREAMAPP_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.kafka_port}",
            "STREAMAPP_SCHEMA_REGISTRY_URL": f"http://127.0.0.1:{self.registry_port}/apis/ccompat/v7",
        }

    def get(self, port: int, path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as answer:
            return json.load(answer)

    def ready(self, port: int) -> bool:
        try:
            self.get(port, "/health/ready")
        except OSError:
            return False
        return True

    def owners(self, port: int) -> set[str]:
        """The ports of the workers that hold a partition of the table."""
        (table,) = (t for t in self.get(port, "/tables/")["tables"] if t["name"] == "carrier-flights")
        return {address.rpartition(":")[2] for address in table["partitions"]["owners"].values()}

    def _start(self, command: list[str], environ: dict[str, str]) -> Worker:
        self._runs += 1
        log = self.folder / f"run-{self._runs}.log"
        environ = {name: v for name, v in os.environ.items() if not name.startswith("STREAMAPP_")} | environ
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environ)
        started = Worker(process, log)
        self._stack.callback(started.close)
        return started


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.close()


def test_workers_are_added_and_killed_and_the_tables_are_still_those_of_spark(demo: Demo) -> None:
    running = demo.start("--until", "2013-01-03")
    running.wait_for("Ctrl-C stops everything", SECONDS)
    second = demo.start_worker(demo.second_web_port, "worker-2")
    both = {str(demo.web_port), str(demo.second_web_port)}
    until(lambda: demo.ready(demo.second_web_port), SECONDS, second.text)
    until(lambda: demo.owners(demo.web_port) == both, SECONDS, second.text)
    until(lambda: demo.ready(demo.web_port), SECONDS, running.text)
    either = [demo.get(int(port), "/tables/carrier-flights/UA")["value"] for port in both]
    assert either[0] == either[1] > 0

    # The first worker is killed while more flights arrive; the other one has all of them.
    more = demo.ingest("2013-01-04")
    os.kill(_pid_of_the_worker_at(demo.folder / "worker"), signal.SIGKILL)
    assert more.wait(SECONDS) == 0, more.text()
    running.wait_for("Kafka runs on until Ctrl-C", SECONDS)
    until(lambda: demo.ready(demo.second_web_port), SECONDS, second.text)
    assert demo.owners(demo.second_web_port) == {str(demo.second_web_port)}

    # It comes back as the demo has said, then the second one is killed.
    first = demo.start_worker(demo.web_port, "worker")
    until(lambda: demo.ready(demo.web_port), SECONDS, first.text)
    second.signal(signal.SIGKILL)
    until(lambda: demo.owners(demo.web_port) == {str(demo.web_port)}, SECONDS, first.text)
    assert first.terminate() == 0, first.text()
    running.signal(signal.SIGINT)
    assert running.wait(SECONDS) == 0, running.text()

    # The same folder again: nothing is published twice, and nothing was counted twice.
    compared = demo.start("--until", "2013-01-05", "--once")
    assert compared.wait(SECONDS) == 0, compared.text()
    text = compared.text()
    found = re.search(r"([\d,]+) new events in Kafka, ([\d,]+) were there", text)
    assert found, text
    published, there = (int(number.replace(",", "")) for number in found.groups())
    assert there > published > 0
    assert text.count(" equal") == 6  # without stores that operators have for themselves
    assert "differ" not in text
    # As many letters as the raw table has such flights in four days: none is lost or doubled by the kills.
    assert re.search(r"│ 17 +│ registration +│ ValueError ", text), text
    assert re.search(r"│ 5 +│ maintenance +│ LookupError ", text), text


def test_events_without_registry_are_refused(demo: Demo) -> None:
    (demo.folder / "kafka").mkdir()
    refused = demo.start("--once")
    assert refused.wait(SECONDS) == 1
    assert "were written without a schema registry" in refused.text()


def _pid_of_the_worker_at(datadir: Path) -> int:
    (lock,) = datadir.glob("state/*/.lock")
    return int(lock.read_text().split()[0])
