"""The terminal of a worker: each line at the default log level says something that its user needs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamapp.state.directory import StateDirectory

from ..processes import Worker, free_port, until
from .conftest import Cluster

STREAMAPP = Path(sys.executable).with_name("streamapp")
PREFIX = r"\[[^\]]+\] \[\d+\] "

Start = Callable[..., Worker]


@pytest.fixture
def start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Start:
    """``streamapp worker`` with options and variables."""

    def start(*options: str, limit: int | None = None, **env: str) -> Worker:
        given = {
            "UNADDRESSED": "1",
            "APP_ID": cluster.id,
            "STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap,
            "SOURCE": cluster.source,
            "SINK": cluster.sink,
            "DATADIR": str(cluster.folder / "data"),
            "WEB_PORT": "1",  # the command line has another one
            **env,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        log = cluster.folder / "worker.log"
        arguments = ["worker", "tests.worker.unaddressed_app", "--web-port", str(free_port()), *options]
        shell = f'ulimit -n {limit}; exec "$0" "$@"' if limit else 'exec "$0" "$@"'
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", shell, STREAMAPP, *arguments], stdout=out, stderr=subprocess.STDOUT
            )
        cluster.workers.append(Worker(process, log))
        return cluster.workers[-1]

    return start


def lines(worker: Worker) -> list[str]:
    """The logged lines, without the lines that the timer prints."""
    return [line.rstrip() for line in worker.text().splitlines() if line != "a timer prints 42"]


def test_a_start_and_a_stop_are_a_handful_of_lines(cluster: Cluster, start: Start) -> None:
    worker = start()
    cluster.feed(20)
    cluster.counted()
    until(lambda: "a timer prints 42\n" in worker.text(), 30, worker.text)
    assert worker.terminate() == 0
    said = lines(worker)
    expected = [
        rf"{cluster.id} starts: Kafka at {cluster.bootstrap}, state in .*{cluster.id}, page and tables at http://localhost:\d+/",
        rf"created topic {cluster.id}-counts-changelog with 4 partitions",
        r"generation \d+: tasks 0_0, 0_1, 0_2, 0_3",
        r"ready: 4 tasks run here",
        r"stopping: commits what was processed, and gives the tasks up",
        r"stopped: everything that was processed is committed",
    ]
    assert len(said) == len(expected), said
    for line, pattern in zip(said, expected, strict=True):
        assert re.fullmatch(PREFIX + r"\[INFO\] " + pattern, line), line


def test_a_bad_record_is_said_when_it_comes_and_at_the_end(cluster: Cluster, start: Start) -> None:
    worker = start()
    worker.wait_for("ready:")
    cluster.producer.produce(cluster.source, b"poison", b"k")
    cluster.producer.flush()
    assert worker.wait() == 1
    said = lines(worker)
    assert said[-1].startswith("Error: check (task 0_")
    assert sum("this record cannot be counted" in line for line in said) == 2, said
    assert not [line for line in said if re.search("NoneType|Crashed|crash|Traceback|Warning", line)], said


def test_a_fault_of_the_program_has_its_traceback(cluster: Cluster, start: Start) -> None:
    worker = start(FAULT="1")
    assert worker.wait() == 1
    assert "ZeroDivisionError: division by zero" in worker.text()
    assert 'unaddressed_app.py", line' in worker.text()
    assert "NoneType" not in worker.text()


def test_a_level_shows_all_that_there_is(start: Start) -> None:
    worker = start("-l", "info")
    worker.wait_for("task 0_3 is running")
    assert worker.terminate() == 0
    for part in ("[^---AgentConductor]", "Joined group", "ready: 4 tasks"):
        assert part in worker.text()
    assert "AlreadyConfiguredWarning" not in worker.text()


def test_warnings_alone(start: Start) -> None:
    worker = start("-l", "warn")
    until(lambda: "a timer prints 42\n" in worker.text(), 60, worker.text)
    assert worker.terminate() == 0
    assert "[INFO]" not in worker.text()


def test_a_missing_output_is_refused_at_the_start(cluster: Cluster, start: Start) -> None:
    cluster.sink = f"{cluster.id}-nowhere"
    worker = start()
    assert worker.wait() == 1
    last = lines(worker)[-1]
    assert last.startswith(f"Error: the output topic {cluster.sink} does not exist on {cluster.bootstrap}")
    assert f"streamapp topic create {cluster.sink} --partitions 4" in last
    assert "reset" not in worker.text()


def test_a_state_folder_in_use_is_refused_before_topics_are_created(cluster: Cluster, start: Start) -> None:
    with StateDirectory(cluster.folder / "data" / "state", cluster.id):
        worker = start()
        assert worker.wait() == 1
    assert "is in use by process" in lines(worker)[-1]
    assert "created topic" not in worker.text()


def test_too_few_files_are_refused_with_the_way_to_more(start: Start) -> None:
    worker = start(limit=80)
    assert worker.wait() == 1
    assert "This process may have 80 files open" in lines(worker)[-1]
    assert "ulimit -n 4096" in lines(worker)[-1]
    assert "delete" not in worker.text()


def test_the_members_name_application_and_worker(cluster: Cluster, start: Start) -> None:
    start().wait_for("ready:")
    (described,) = cluster.admin.describe_consumer_groups([cluster.id]).values()
    (member,) = described.result().members
    assert re.fullmatch(rf"{cluster.id}-.+-\d+", member.client_id)
