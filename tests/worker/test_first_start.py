"""The first start on a new cluster, on which no group and no transaction has a coordinator yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamapp.broker import LocalKafka

from .conftest import Cluster

pytestmark = pytest.mark.broker


def start_two_at_once(folder: Path, guarantee: str) -> None:
    with LocalKafka(folder / "kafka", brokers=1, port=0, heap_mb=256) as kafka:
        cluster = Cluster(kafka.bootstrap_servers, folder)
        try:
            workers = [cluster.start(name, GUARANTEE=guarantee) for name in "ab"]
            cluster.feed(200)
            cluster.counted()
            for worker in workers:
                worker.wait_for("generation")
            assert [worker.terminate() for worker in workers] == [0, 0], cluster.story()
            assert cluster.totals()[1] == 200
        finally:
            cluster.close()


def test_two_workers_start_at_once_on_a_new_cluster(tmp_path: Path) -> None:
    start_two_at_once(tmp_path, "exactly_once_v2")


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("turn", range(15))
def test_again_and_again(tmp_path: Path, guarantee: str, turn: int) -> None:
    """librdkafka ended the process with a segmentation fault in about one of twenty."""
    start_two_at_once(tmp_path, guarantee)
