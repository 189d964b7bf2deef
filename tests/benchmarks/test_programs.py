"""Each workload once, with few events: the programs run and their results are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.many_keys import WORKLOADS
from benchmarks.peers import PEERS
from benchmarks.throughput import Throughput
from streamapp.broker import KafkaSettings, LocalKafka

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def bench(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Throughput:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    return Throughput(settings, tmp_path_factory.mktemp("bench"), years=1, rows=500, slow_rows=500)


@pytest.mark.parametrize("workload", ["w1", "w2", "w3", "w4"])
@pytest.mark.parametrize("peer", ["streamapp", "loop"])
def test_results_are_right(bench: Throughput, peer: str, workload: str) -> None:
    run = bench.run(PEERS[peer], workload)
    assert run.correct
    assert run.events == 500


@pytest.mark.parametrize(
    ("workload", "peer"),
    [
        (name, peer)
        for name in sorted(WORKLOADS)
        for peer in ("streamapp", "loop")
        if name in PEERS[peer].workloads
    ],
)
def test_results_with_many_keys_are_right(bench: Throughput, workload: str, peer: str) -> None:
    """The second peer's result has the digest of the first one's."""
    run = bench.run(PEERS[peer], workload)
    assert run.correct
    assert run.events == 500


def test_results_are_right_with_exactly_once(bench: Throughput) -> None:
    assert bench.run(PEERS["streamapp-eos"], "w3").correct


def test_two_processes_share_the_work(kafka: LocalKafka, tmp_path: Path) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    (run,) = processes.measure(
        settings, tmp_path, [2], 800, 1, lambda line: None
    )  # raises if they counted another number
    assert (run.processes, run.events) == (2, 800)
