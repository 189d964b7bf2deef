"""Prometheus and real workers: its rules for alerts, and the queries of the dashboard for Grafana.

Each rule fires by its cause on pages of real workers, producers and relays, and stops after it.

The time of the rules is that of ``promtool test rules``, so no test waits for minutes. A page of a worker stands for all
minutes of its phase.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer, TopicPartition

from streamapp import metrics_text
from streamapp.broker import LocalKafka
from streamapp.producer import Outbox, OutboxRelay, RelayMetrics, SqliteOutbox, SyncReliableProducer

from ..processes import Worker, free_port, until
from .conftest import Cluster

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "streamapp.json").read_text())
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
EXPRESSIONS: dict[str, str] = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
MINUTES = 45
"""The minutes of each phase: more than the longest ``for`` and range of a rule."""
_SAMPLE = re.compile(r"^(streamapp_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_AGES = ("streamapp_consumer_oldest_in_work_seconds", "streamapp_outbox_stalled_seconds")
"""Ages, which grow by a second in each second of the second phase."""

_NOT_CALM = r"streamapp_(input|agent|consumer)_lag\{.*\} [1-9].*|streamapp_task_ready\{.*\} 0|streamapp_circuit_open\{.*\} 1"
GONE = "gone"
"""The page of a process that does not answer."""


class Trouble:
    """A worker with a topology, a consumer and an agent; `into` gets them into trouble."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.port = cluster, free_port()
        self.file = cluster.folder / "trouble"
        self.orders, self.notes, self.dead = (f"{cluster.id}-{name}" for name in ("orders", "notes", "dead"))
        cluster.create(self.orders, self.notes, self.dead, partitions=1)
        self.inputs = (cluster.source, self.orders, self.notes)
        self.into("")

    def into(self, trouble: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(trouble)
        new.rename(self.file)

    def start(self, name: str = "a", port: int | None = None) -> Worker:
        return self.cluster.start(
            name,
            app="troubled_app",
            TROUBLE=str(self.file),
            ORDERS=self.orders,
            NOTES=self.notes,
            DEAD=self.dead,
            WEB_PORT=str(port or self.port),
        )

    def send(self, value: str, count: int = 1) -> None:
        for topic in self.inputs:
            # A task reads one partition, and the limit for topics of the topology is larger than the other limits.
            for _ in range(count * 10 if topic == self.cluster.source else count):
                self.cluster.producer.produce(topic, value, "k", partition=0)
                self.cluster.producer.poll(0)
        self.cluster.producer.flush()

    def page(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def page_with(self, *samples: str, none: str = "$^") -> str:
        """The first page with lines that match all patterns of ``samples``, and no line that matches ``none``."""
        found = ""

        def matches() -> bool:
            nonlocal found
            found = self.page()
            lines = found.splitlines()
            return not any(re.fullmatch(none, line) for line in lines) and all(
                any(re.fullmatch(f"streamapp_{sample}", line) for line in lines) for sample in samples
            )

        until(matches, 90, lambda: f"{samples}\n{found}\n{self.cluster.story()}")
        return found

    def page_when_calm(self, *samples: str) -> str:
        """The first page of a worker that runs, and that has processed all records."""
        lags = "input", "agent", "consumer"
        return self.page_with(
            r'worker_state\{.*state="running"\} 1',
            *(rf"{lag}_lag\{{.*\}} 0" for lag in lags),
            *samples,
            none=_NOT_CALM,
        )

    def remove_records(self) -> None:
        """Deletes all records of the inputs that exist."""
        admin = self.cluster.admin
        for future in admin.delete_records([TopicPartition(topic, 0, -1) for topic in self.inputs]).values():
            future.result()


class Prometheus:
    """A server that reads the page of a worker each second, with the rules and the settings in ``deploy``."""

    def __init__(self, folder: Path, target: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES)]
        (job,) = config["scrape_configs"]
        del job["authorization"]  # this worker has no users
        job["static_configs"] = [{"targets": [target]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = {
            "config.file": folder / "prometheus.yml",
            "storage.tsdb.path": folder / "tsdb",
            "web.listen-address": self.address,
            "log.level": "warn",
        }
        self.began = time.time()
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", *(f"--{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **parameters: str) -> Any:
        address = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[Any]:
        """All series that a query has had since the start."""
        for variable, value in (("$application", ".*"), ("$__rate_interval", "5s")):
            expression = expression.replace(variable, value)
        span = {"start": str(self.began), "end": str(time.time()), "step": "1"}
        return list(self.ask("query_range", query=expression, **span)["result"])

    def await_read(self) -> None:
        """Returns when the server has read the page once more. A phase may otherwise end between two reads."""
        since = time.time()

        def read() -> bool:
            try:
                (series,) = self.ask("query", query="timestamp(up)")["result"]
            except (OSError, ValueError):  # the server starts, or has not read the page yet
                return False
            return float(series["value"][1]) > since

        until(read, 60, self.log.read_text)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def trouble(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trouble]:
    cluster = Cluster(kafka.bootstrap_servers, tmp_path_factory.mktemp("trouble"))
    yield Trouble(cluster)
    cluster.close()


@pytest.fixture(scope="module")
def prometheus(trouble: Trouble) -> Iterator[Prometheus]:
    prometheus = Prometheus(trouble.cluster.folder, f"127.0.0.1:{trouble.port}")
    yield prometheus
    prometheus.close()


@pytest.fixture(scope="module")
def pages(trouble: Trouble, prometheus: Prometheus) -> dict[str, str]:
    """Pages of one worker, by the trouble that it is in, while Prometheus reads them."""
    found = {}
    for phase, page in _pages(trouble):
        found[phase] = page
        prometheus.await_read()
    return found


def _pages(it: Trouble) -> Iterator[tuple[str, str]]:
    worker = it.start()
    it.send("v")
    it.page_with(r"consumer_done_total\{.*\} 1", r"records_processed_total\{.*\} 10")
    yield "calm", it.page_when_calm()

    it.into("hang")
    it.send("v", 10_100)
    yield (
        "hang",
        it.page_with(
            r'worker_state\{.*state="stuck"\} 1',
            r"input_lag\{.*\} 1\d{5}",
            r"consumer_lag\{.*\} 1\d{4}",
            r"agent_lag\{.*\} 1\d{4}",
            r"consumer_oldest_in_work_seconds\{.*\} \d.*",
        ),
    )
    it.remove_records()
    it.into("")
    yield (
        "removed",
        it.page_when_calm(
            r"removed_records_total\{.*\} [1-9].*", r"consumer_removed_records_total\{.*\} [1-9].*"
        ),
    )

    it.send("bad")
    yield (
        "dead",
        it.page_when_calm(
            r'drops_total\{.*operator="look-up",reason="dead_letter"\} 10',
            r"consumer_dead_total\{.*\} 1",
            r"agent_dead_total\{.*\} 1",
        ),
    )

    it.into("down")
    it.send("v")
    yield "down", it.page_with(r"circuit_open\{.*\} 1")
    it.into("")
    yield "up", it.page_when_calm()

    assert worker.terminate() == 0
    other = it.start("b", free_port())
    other.wait_for("Worker ready")
    other.signal(signal.SIGSTOP)  # the group waits for a member that does not answer
    worker = it.start()
    yield "rebalancing", it.page_with(r'worker_state\{.*state="(starting|rebalancing)"\} 1')
    other.close()
    yield "balanced", it.page_when_calm()
    assert worker.terminate() == 0

    changelog = f"{it.cluster.id}-counts-changelog"
    open_end = Producer(
        {"bootstrap.servers": it.cluster.bootstrap, "transactional.id": f"{it.cluster.id}-open"}
    )
    open_end.init_transactions(30)
    open_end.begin_transaction()
    open_end.produce(changelog, None, b"unknown", 0)
    assert open_end.flush(30) == 0
    worker = it.start("c")
    yield (
        "restoring",
        it.page_with(
            r"restore_remaining\{.*\} [1-9].*",
            r"restore_records_per_second\{.*\} 0",
            r"task_ready\{.*\} 0",
            none=r"streamapp_restore_records_per_second\{.*\} [1-9].*",
        ),
    )
    open_end.abort_transaction(30)
    yield "restored", it.page_when_calm()
    worker.close()
    yield "killed", it.page() or GONE


FIRES = {
    "StreamappWorkerGone": ("calm", "killed", "calm"),
    "StreamappWorkerStuck": ("calm", "hang", "removed"),
    "StreamappRebalancing": ("up", "rebalancing", "balanced"),
    "StreamappLag": ("calm", "hang", "removed"),
    "StreamappAgentLag": ("calm", "hang", "removed"),
    "StreamappConsumerLag": ("calm", "hang", "removed"),
    "StreamappPartitionStands": ("calm", "hang", "removed"),
    "StreamappDeadLetters": ("removed", "dead", "up"),
    "StreamappConsumerDeadLetters": ("removed", "dead", "up"),
    "StreamappAgentDeadLetters": ("removed", "dead", "up"),
    "StreamappRecordsRemoved": ("calm", "removed", "dead"),
    "StreamappConsumerRecordsRemoved": ("calm", "removed", "dead"),
    "StreamappCircuitOpen": ("dead", "down", "up"),
    "StreamappConsumerCallLong": ("calm", "hang", "removed"),
    "StreamappRestoreStands": ("balanced", "restoring", "restored"),
    "StreamappRestoreLong": ("balanced", "restoring", "restored"),
}
"""The phases of a worker: before the cause, with it, and after it."""
OF_SERVICES = {"StreamappProducerFailed", "StreamappProducerSpilled", "StreamappOutboxStalled"}


def test_each_rule_has_its_cause() -> None:
    assert FIRES.keys() | OF_SERVICES == EXPRESSIONS.keys()


@pytest.mark.broker
@pytest.mark.parametrize("alert", FIRES)
def test_a_worker_in_trouble_fires_the_alert_until_it_is_well(
    alert: str, pages: dict[str, str], tmp_path: Path
) -> None:
    if alert == "StreamappWorkerGone":
        assert pages["killed"] == GONE
    fires_only_between(alert, [pages[phase] for phase in FIRES[alert]], tmp_path)


@pytest.mark.broker
@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_dashboard_gives_data_of_a_worker_in_trouble(
    query: str, pages: dict[str, str], prometheus: Prometheus
) -> None:
    assert pages
    found = prometheus.values(QUERIES[query])
    assert found, QUERIES[query]
    assert all(value != "NaN" for series in found for _, value in series["values"][-1:])


@pytest.mark.broker
def test_prometheus_evaluates_the_rules_without_an_error(
    pages: dict[str, str], prometheus: Prometheus
) -> None:
    assert pages
    (group,) = prometheus.ask("rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} == EXPRESSIONS.keys()
    assert [rule["lastError"] for rule in group["rules"] if rule["health"] != "ok"] == []
    seen = {series["metric"]["alertname"] for series in prometheus.values("ALERTS")}
    assert {"StreamappLag", "StreamappDeadLetters", "StreamappRestoreLong", "StreamappWorkerGone"} <= seen


def test_the_panels_are_those_that_grafana_can_draw() -> None:
    """Each panel has a place of its own, and asks the provisioned source of data."""
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())
    (uid,) = (each["uid"] for each in source["datasources"])
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in DASHBOARD["panels"]]
    for number, (x, y, w, h) in enumerate(places):
        assert x + w <= 24
        for left, top, width, height in places[:number]:
            assert x >= left + width or left >= x + w or y >= top + height or top >= y + h
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    asked = [panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert set(asked) == {uid}


@pytest.mark.broker
@pytest.mark.parametrize("phase", ["calm", "hang", "dead", "restoring"])
def test_promtool_has_no_objection_to_a_page(phase: str, pages: dict[str, str]) -> None:
    assert promtool("check", "metrics", text=pages[phase]) == ""


def test_promtool_has_no_objection_to_the_page_of_a_service(tmp_path: Path) -> None:
    producer = SyncReliableProducer("orders", bootstrap_servers="localhost:9")
    relay = OutboxRelay("orders", SqliteOutbox(str(tmp_path / "db")), bootstrap_servers="localhost:9")
    assert promtool("check", "metrics", text=metrics_text(producer, relay)) == ""


@pytest.fixture
def orders(kafka: LocalKafka, tmp_path: Path) -> str:
    """A topic of services."""
    cluster = Cluster(kafka.bootstrap_servers, tmp_path)
    return cluster.sink


def test_a_producer_that_cannot_send_fires_the_alert(tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    with SyncReliableProducer("orders", bootstrap_servers=away, delivery_timeout_ms=500) as producer:
        before = producer.exposition()
        producer.send_soon("orders", value=b"v")
        until(lambda: producer.metrics.failed == 1, 30, producer.exposition)
        failed = producer.exposition()
    fires_only_between("StreamappProducerFailed", [before, failed, failed], tmp_path)


@pytest.mark.broker
def test_a_producer_with_records_in_its_log_fires_the_alert_until_they_are_sent(
    kafka: LocalKafka, orders: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"spill_dir": tmp_path / "log", "spill_after_ms": 100}
    away = f"127.0.0.1:{free_port()}"
    with SyncReliableProducer("orders", bootstrap_servers=away, **settings) as producer:
        before = producer.exposition()
        producer.send_soon(orders, value=b"v")
        until(lambda: producer.metrics.spilled == 1, 30, producer.exposition)
        spilled = producer.exposition()
    with SyncReliableProducer("orders", bootstrap_servers=kafka.bootstrap_servers, **settings) as producer:
        until(lambda: producer.metrics.spilled == 0, 30, producer.exposition)
        after = producer.exposition()
    fires_only_between("StreamappProducerSpilled", [before, spilled, after], tmp_path)


@pytest.mark.broker
def test_a_relay_that_reaches_no_broker_fires_the_alert_until_it_does(
    kafka: LocalKafka, orders: str, tmp_path: Path
) -> None:
    address = str(tmp_path / "orders.db")
    database = SqliteOutbox(address)
    database.create()
    with closing(sqlite3.connect(address)) as connection:
        Outbox(database).add(connection, orders, value=b"v")
        connection.commit()

    def page(bootstrap: str, reached: Callable[[RelayMetrics], bool]) -> str:
        relay = OutboxRelay("orders", SqliteOutbox(address), bootstrap_servers=bootstrap)
        thread = Thread(target=relay.run)
        thread.start()
        try:
            until(lambda: reached(relay.metrics), 30, relay.exposition)
            return relay.exposition()
        finally:
            relay.stop()
            thread.join()

    before = OutboxRelay("orders", database, bootstrap_servers=kafka.bootstrap_servers).exposition()
    stalled = page(f"127.0.0.1:{free_port()}", lambda metrics: metrics.stalled_seconds > 1)
    after = page(kafka.bootstrap_servers, lambda metrics: metrics.relayed == 1)
    fires_only_between("StreamappOutboxStalled", [before, stalled, after], tmp_path)


def fires_only_between(alert: str, pages: list[str], folder: Path) -> None:
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": list(series(pages)),
                "promql_expr_test": [
                    {
                        "expr": f'group by (alertname) (ALERTS{{alertname="{alert}", alertstate="firing"}})',
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
                    }
                    for minute, fires in (
                        (MINUTES - 1, False),
                        (fires_at(alert), True),
                        (3 * MINUTES - 1, False),
                    )
                ],
            }
        ],
    }
    path = folder / f"{alert}.yml"
    path.write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(path))


def promtool(*arguments: str, text: str = "") -> str:
    """The objections of a command that succeeds."""
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def fires_at(alert: str) -> int:
    """A minute at which the alert fires: of an event soon after it, otherwise near the end of the second phase."""
    return MINUTES + 2 if "increase(" in EXPRESSIONS[alert] else 2 * MINUTES - 1


def series(pages: list[str]) -> Iterator[dict[str, str]]:
    """The samples that Prometheus has of pages that follow each other, each for `MINUTES`."""
    samples = [
        {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(page)} for page in pages
    ]
    for name, labels in sorted(set().union(*samples)):
        phases = []
        for phase, found in enumerate(samples):
            value = found.get((name, labels))
            if value is None:
                phases.append(f"stale _x{MINUTES - 1}")
            elif name in _AGES and phase == 1:
                phases.append(f"{value:g}+60x{MINUTES - 1}")
            else:
                phases.append(f"{value:g}x{MINUTES - 1}")
        yield {
            "series": f'{name}{{{labels},job="streamapp",instance="worker-0:6066"}}',
            "values": " ".join(phases),
        }
    up = " ".join(f"{int(page != GONE)}x{MINUTES - 1}" for page in pages)
    yield {"series": 'up{job="streamapp",instance="worker-0:6066"}', "values": up}
