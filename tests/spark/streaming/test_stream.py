"""A topology on Structured Streaming leaves what a batch leaves, whatever is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamapp.errors import ConfigError
from streamapp.runners.spark.streaming import BatchMetrics, SparkStream
from streamapp.testing import Backlog

from ..backfill import travels
from ..backfill.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.broker]

YEAR = travels.events(flights=600)


class Run:
    """``streamapp spark run`` as a process."""

    def __init__(self, cluster: Cluster, application: str, log: Path, failpoints: str = "") -> None:
        command = "from streamapp.cli import main; main()"
        arguments = ["spark", "run", travels.__name__, "--checkpoint", str(cluster.folder / "checkpoint")]
        arguments += ["--master", "local[2,20]", "--records", "60", "--interval", "100"]
        arguments += ["--conf", "spark.driver.memory=1g"]
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    **cluster.environ(application),
                    "STREAMAPP_FAILPOINT": failpoints,
                },
            )

    def wait(self, backlog: Backlog) -> None:
        """Until all is done; it must not end before."""
        while not backlog.empty():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.2)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def test_driver_and_executors_are_killed_and_nothing_is_lost_or_doubled(cluster: Cluster) -> None:
    cluster.send(YEAR)
    points = "stream-state-flushed:kill:5,stream-offsets-sent:kill:3,stream-committed:kill:4,stream-batch-done:kill:3"
    first = Run(cluster, "streamed", cluster.folder / "first.log", points)
    try:
        assert first.process.wait(600) == -signal.SIGKILL, first.log.read_text()
    finally:
        first.close()
    second = Run(cluster, "streamed", cluster.folder / "second.log")
    plan = cluster.topology().plan(cluster.config("streamed"))
    try:
        with Backlog(plan, cluster.settings) as backlog:
            second.wait(backlog)
        assert second.stop() == 0, second.log.read_text()
    finally:
        second.close()
    outputs = cluster.outputs()
    assert cluster.live_tables("streamed") == cluster.batch_tables()

    other = Cluster(cluster.servers, cluster.folder / "other", cluster.spark)
    other.send(YEAR)
    assert other.backfill("at-once").run() is not None
    assert outputs == other.outputs()


def test_a_stream_and_a_worker_take_over_from_each_other(cluster: Cluster) -> None:
    flights = [event for event in YEAR if event.topic == "flights"]
    third = len(flights) // 3
    batches: list[BatchMetrics] = []

    def stream() -> SparkStream:
        return SparkStream(
            cluster.topology(),
            cluster.config("shared"),
            cluster.spark,
            checkpoint=str(cluster.folder / "checkpoint"),
            interval_ms=100,
            on_batch=batches.append,
        )

    plan = cluster.topology().plan(cluster.config("shared"))
    cluster.send([event for event in YEAR if event.topic == "weather"])
    with stream() as running, Backlog(plan, cluster.settings) as backlog:
        cluster.send(flights[:third])
        while not backlog.empty():
            assert not running.wait(0.1)
        with pytest.raises(ConfigError, match="the group .*shared has [0-9]+ running member"):
            cluster.backfill("shared")
    with cluster.worker("shared") as settled:
        cluster.send(flights[third : 2 * third])
        settled()
    before = len(batches)
    with stream() as running, Backlog(plan, cluster.settings) as backlog:
        cluster.send(flights[2 * third :])
        while not backlog.empty():
            assert not running.wait(0.1)
    assert sum(batch.restored for batch in batches[before:]) > 0  # what the worker had done
    assert cluster.live_tables("shared") == cluster.batch_tables()
