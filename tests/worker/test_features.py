"""All features in Faust's documentation work beside a topology."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from ..processes import free_port, run_module, until
from .conftest import Cluster

APP = "features_app"
TOPICS = ("flights", "shouted", "results", "between", "of-its-own")


class Running:
    """The application with its worker."""

    def __init__(self, cluster: Cluster, **env: str) -> None:
        self.cluster = cluster
        self.port = free_port()
        cluster.create(*(f"{cluster.id}-{name}" for name in TOPICS))
        self.env = {"WEB_PORT": str(self.port), **env}
        self.worker = cluster.start(app=APP, **self.env)
        self.worker.wait_for("Worker ready")
        until(lambda: self.status("/health/ready") == 200, 60, self.worker.text)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.load(answer)

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            return 0

    def seen(self, name: str) -> list[Any]:
        return self.get("/seen/").get(name, [])  # type: ignore[no-any-return]

    def sees(self, name: str, wanted: Any, timeout: float = 60.0) -> None:
        def story() -> str:
            return f"{name}: {self.seen(name)}, not {wanted}\n{self.worker.text()[-6000:]}"

        until(lambda: sorted(self.seen(name)) == sorted(wanted), timeout, story)

    def sees_some(self, name: str, timeout: float = 60.0) -> None:
        until(lambda: bool(self.seen(name)), timeout, lambda: f"{name}\n{self.worker.text()[-6000:]}")

    def fly(self, *flights: tuple[str, int]) -> None:
        for carrier, delay in flights:
            value = json.dumps({"carrier": carrier, "delay": delay}).encode()
            self.cluster.producer.produce(f"{self.cluster.id}-flights", value, carrier)
        self.cluster.producer.flush()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "APP_ID": self.cluster.id,
            "BOOTSTRAP": self.cluster.bootstrap,
            "SOURCE": self.cluster.source,
            "SINK": self.cluster.sink,
            "DATADIR": str(self.cluster.folder / "data-a"),
            **self.env,
        }
        return run_module(f"tests.worker.{APP}", *arguments, env=env)


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def running(cluster: Cluster, request: pytest.FixtureRequest) -> Running:
    return Running(cluster, GUARANTEE=request.param)


def test_agents_tables_and_everything_that_runs_beside_them(running: Running) -> None:
    cluster = running.cluster
    cluster.feed(200)
    running.fly(("UA", 1), ("UA", 2), ("AA", 3))
    both = ["aa 3", "ua 1", "ua 2"]
    running.sees("record", ["UA", "UA", "AA"])
    running.sees("serializer", both)
    running.sees("function-sink", both)
    running.sees("agent-sink", both)
    running.sees("events", running.seen("events") or [0])
    running.sees("group_by", ["UA", "UA", "AA"])
    running.sees("through", ["UA", "UA", "AA"])
    running.sees("isolated", ["UA", "UA", "AA"])
    until(lambda: sum(running.seen("take")) == 3, 30, running.worker.text)
    assert sorted(running.seen("tumbled")) == [1, 1, 2]
    assert sorted(running.seen("hopped")) == [1, 1, 2]
    assert ["UA"] in running.seen("set")
    until(lambda: len(cluster.read(f"{cluster.id}-results")) == 3, 30, running.worker.text)

    assert running.get("/do/") == {"done": True}
    assert running.seen("ask") == [8]
    assert sorted(running.seen("map")) == [2, 4, 6]
    assert sorted(running.seen("kvmap")) == [10, 12]
    assert running.seen("join") == [14, 16]
    assert running.seen("kvjoin") == [18]
    running.sees("cast", ["cast"])
    running.sees("global", [1])
    running.sees("channel", ["in memory"])
    running.sees("app.stream", ["sent by the app"])

    for name in (
        "timer",
        "timer-on-leader",
        "task",
        "task-on-leader",
        "assigned",
        "rebalanced",
        "worker-init",
    ):
        running.sees_some(name)

    assert running.get("/delays/UA/") == {"UA": 3}
    assert running.get("/routed/UA/") == {"routed": "UA"}
    assert running.get("/cached/") == running.get("/cached/") == {"times": 1}
    until(lambda: running.get("/counted/k1/") == {"k1": 4}, 30, running.worker.text)

    if running.env["GUARANTEE"] == "exactly_once_v2":  # once is enough: the wait is up to a minute
        running.sees_some("crontab", 90)
    assert running.worker.terminate() == 0
    assert "the application heard that it ends" in running.worker.text()
    assert cluster.totals() == (200, 200)

    # The tables of Faust come back with the next start.
    again = cluster.start(app=APP, **running.env)
    again.wait_for("Worker ready")
    until(lambda: running.status("/delays/UA/") == 200, 60, again.text)
    assert running.get("/delays/UA/") == {"UA": 3}
    assert running.seen("changelog")
    assert again.terminate() == 0


def test_faust_s_pages_of_tables_and_routes_know_the_topology(cluster: Cluster) -> None:
    running = Running(cluster)
    cluster.feed(200)
    running.fly(("UA", 1))
    running.sees("record", ["UA"])
    until(lambda: running.get("/counted/k1/") == {"k1": 4}, 30, running.worker.text)
    names = {table["table"] if "table" in table else table["name"] for table in running.get("/table/")}
    assert {"counts", "delays", "everywhere"} <= names
    assert running.get("/table/counts/")["name"] == "counts"
    assert running.get("/table/counts/k1/")["value"] == 4
    assert running.get("/table/delays/UA/") == 1
    address = f"http://{running.get('/router/counts/k1/').removeprefix('http://')}"
    assert address.rstrip("/").endswith(f":{running.port}")
    ((host, topics),) = running.get("/router/counts/").items()
    assert host.rstrip("/") == address.rstrip("/")
    assert {name: sorted(partitions) for name, partitions in topics.items()} == {
        f"{cluster.id}-counts-changelog": [0, 1, 2, 3]
    }
    assert f"{cluster.id}-counts-changelog" in running.get("/router/")[host]
    assert f"{cluster.id}-delays-changelog" in running.get("/router/delays/")[host]
    assert str(running.port) in running.get("/router/delays/UA/")
    assert running.status("/table/nothing/k1/") == 404
    assert running.status("/router/nothing/") == 404
    assert running.status("/router/nothing/k1/") == 404
    assert running.worker.terminate() == 0


def test_the_commands_of_faust(cluster: Cluster) -> None:
    running = Running(cluster)
    topic = f"{cluster.id}-flights"
    cluster.feed(50)
    cluster.counted()

    def says(*arguments: str) -> str:
        done = running.command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    agents, tables, models = says("agents"), says("tables"), says("models")
    assert "by_record" in agents
    assert "counts" in tables
    assert "delays" in tables
    flight = next(word for word in models.split() if word.endswith(".Flight"))
    assert "delay" in says("model", flight)
    assert "hello you you" in says("greet", "you", "--times", "2")
    says("send", topic, json.dumps({"carrier": "DL", "delay": 4}), "-k", "DL")
    running.sees("record", ["DL"])
    assert "click_completion" in running.command("completion").stderr  # which Faust does not bring along
    assert running.command("reset").returncode != 0  # the worker has the state
    assert running.worker.terminate() == 0
    assert "counts" in says("reset")
    says("clean-versions")
    again = cluster.start(app=APP, command=("worker", "-l", "info", "--without-web"), **running.env)
    again.wait_for("restored")
    assert again.terminate() == 0


def test_livecheck_joins_and_sees_its_signals(cluster: Cluster) -> None:
    port = str(free_port())
    cluster.create("livecheck", "livecheck-bus", "livecheck-report", partitions=1)
    running = Running(cluster, LIVECHECK_PORT=port)
    livecheck = cluster.start(
        app=APP, command=("livecheck", "-l", "info"), **running.env | {"WEB_PORT": port}
    )
    livecheck.wait_for("Worker ready")
    assert running.get("/check/") == {"triggered": True}
    livecheck.wait_for("the case has seen k1")
    assert livecheck.terminate() == 0
    assert running.worker.terminate() == 0
