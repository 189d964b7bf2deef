"""What a worker shows of records that it dropped, and while it is held up."""

from __future__ import annotations

import re
import time
import urllib.request

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ..processes import until
from .conftest import Cluster
from .member import Member


def sum_of(member: Member, metric: str) -> float:
    """Over all labels; -1 without samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    found = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"streamapp_{metric}{{")]
    return sum(found) if found else -1


def test_dropped_records_are_counted_and_logged_but_not_each(cluster: Cluster) -> None:
    worker = Member(cluster, "a", processing_exception_handler="continue")
    for number in range(50):
        cluster.producer.produce(cluster.source, b"poison", f"k{number}", timestamp=1_700_000_000_000)
    cluster.feed(20)
    cluster.counted()
    until(lambda: sum_of(worker, "dropped_records_total") == 50, 30, cluster.story)
    assert sum_of(worker, "dropped_results_total") == 0
    status = worker.status()
    assert status["dropped"] == sum(task["dropped"] for task in status["tasks"]) == 50
    (line,) = re.findall(r"count \(task .*going on without it.*", worker.worker.text())
    assert re.match(
        rf"count \(task 0_\d\): record of {cluster.source}-\d at offset 0 failed: ValueError: this record cannot be counted",
        line,
    )


def test_a_worker_that_is_stuck_says_so_and_its_lag_grows(cluster: Cluster) -> None:
    worker = Member(cluster, "a", env={"HANGS": "yes", "SHUTDOWN": "1"}, max_poll_interval_ms=60_000)
    cluster.feed(1)
    worker.worker.wait_for("in hand")
    worker.worker.wait_for("this worker is stuck, and not ready: task 0_")
    assert worker.status()["state"] == "stuck"
    cluster.feed(500)
    until(lambda: worker.status().get("lag") == 501, 30, worker.status)
    assert sum_of(worker, "input_lag") == 501
    assert worker.status()["state"] == "stuck"
    assert worker.worker.text().count("this worker is stuck") == 1


def test_an_input_behind_an_open_transaction_is_named_by_a_worker_that_stays_ready(cluster: Cluster) -> None:
    """The worker was ready without a reason while the transaction of another producer hid all its records."""
    worker = Member(cluster, "a")
    cluster.feed(50)
    cluster.counted()
    other = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{cluster.id}-other"})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(cluster.source, b"v", b"k", partition=0)
    other.flush()
    for _ in range(20):
        cluster.producer.produce(cluster.source, b"v", b"k", partition=0)
    cluster.feed(0)

    def reason() -> str:
        status, body = worker.ask("/health/ready")
        assert status == 200
        return str(body["reason"])

    until(lambda: f"{cluster.source}-0 has stood at offset" in reason(), 60, worker.status)
    other.abort_transaction(60)
    cluster.produced += 20
    cluster.counted()
    until(lambda: reason() == "None", 30, worker.status)


def take_any_time(cluster: Cluster, topic: str) -> None:
    entry = ConfigEntry(
        "message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result()


def test_a_worker_that_is_rolled_back_again_and_again_is_not_ready_and_says_why(cluster: Cluster) -> None:
    """The worker's results are too far ahead of time. They differ each time, so the worker knows none of them again."""
    take_any_time(cluster, cluster.source)
    worker = Member(
        cluster,
        "a",
        env={"RANDOM": "yes"},
        processing_guarantee="exactly_once_v2",
        production_exception_handler="continue",
    )
    until(lambda: worker.ask("/health/ready")[0] == 200, 60, worker.status)
    cluster.producer.produce(
        cluster.source, b"v", b"k", timestamp=int(time.time() * 1000) + 3 * 3_600_000, partition=0
    )
    cluster.producer.flush()

    until(
        lambda: worker.ask("/health/ready")[0] == 503 and worker.status().get("state") == "stuck",
        60,
        worker.status,
    )
    status = worker.status()
    for text in (status["reason"], status["findings"][0]["message"]):
        assert "attempts in a row were rolled back" in text
        assert f"brokers refused 1 result for {cluster.sink}" in text
    take_any_time(cluster, cluster.sink)
    until(lambda: worker.ask("/health/ready")[0] == 200, 60, worker.status)
    assert worker.status()["reason"] is None
