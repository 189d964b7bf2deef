"""A standalone cluster of a master and two workers on this machine. Its executors have nothing but a bare Python and the
archive that they are sent: what local mode would hide.

    pytest -m slow tests/spark/cluster
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

import agents
from streamapp.runners.spark import SparkRunner, live_tables
from streamapp.runners.spark import package as packaging

from ...brokers import LightKafka
from ..flights import Flights

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
BASE_PYTHON = Path(sys.base_prefix) / "bin" / "python3"
HOUR = 3_600_000
TIMEOUT_SECONDS = 300
MASTER_READY = r"Starting Spark master at (spark://\S+)"
WORKER_READY = r"(Successfully registered with master)"


@contextmanager
def process(arguments: list[str], log: Path, environ: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as file:
        running = subprocess.Popen(arguments, stdout=file, stderr=file, env=environ)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def found(log: Path, pattern: str) -> Callable[[], str | None]:
    def look() -> str | None:
        match = re.search(pattern, log.read_text())
        return match and match[1]

    return look


def wait_for(look: Callable[[], str | None], log: Path) -> str:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (seen := look()) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return seen


class Cluster(NamedTuple):
    master: str
    """Its address."""
    workers: list[Path]
    """Their folders."""

    def ran(self) -> bool:
        """Whether both workers had something to do in every application so far."""
        logs = [list(folder.glob("app-*/*/stderr")) for folder in self.workers]
        return all(files and all("Finished task" in f.read_text() for f in files) for files in logs)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    environ |= {
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": str(BASE_PYTHON),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_LOG_DIR": str(folder),
    }
    deploy = (str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy")
    with ExitStack() as stack:

        def start(name: str, *options: str, ready: str) -> str:
            """A daemon in a folder of its own, when it has logged that it is ready."""
            log = folder / name / "log"
            log.parent.mkdir()
            command = [deploy[0], f"{deploy[1]}.{options[0]}", "--webui-port", "0", *options[1:]]
            stack.enter_context(process(command, log, environ))
            return wait_for(found(log, ready), log)

        master = start("master", "master.Master", "--host", "localhost", "--port", "0", ready=MASTER_READY)
        for name in ("worker-1", "worker-2"):
            place = ("--work-dir", str(folder / name))
            size = ("--cores", "1", "--memory", "700m")
            start(name, "worker.Worker", *size, *place, master, ready=WORKER_READY)
        yield Cluster(master, [folder / "worker-1", folder / "worker-2"])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "app.tar.gz"
    packaging.package(path, [ROOT / "agents", ROOT / "tables"])
    return path


def archive(folder: Path) -> Counter[tuple[str, int]]:
    """Writes events in four partitions; returns departures by airport and hour."""
    expected: Counter[tuple[str, int]] = Counter()
    for partition in range(4):
        (folder / f"partition={partition}").mkdir(parents=True)
        times = [number * 60_000 + partition for number in range(2_000)]
        origins = [("EWR", "JFK", "LGA")[number % 3] for number in range(2_000)]
        expected.update((origin, at // HOUR * HOUR) for origin, at in zip(origins, times, strict=True))
        rows = {
            "key": [b"plane"] * 2_000,
            "value": [json.dumps({"origin": origin}).encode() for origin in origins],
            "timestamp": times,
            "offset": list(range(2_000)),
        }
        pq.write_table(pa.table(rows), folder / f"partition={partition}" / "records.parquet")
    return expected


def test_a_job_with_its_dependencies_in_an_archive(cluster: Cluster, package: Path, tmp_path: Path) -> None:
    expected = archive(tmp_path / "flights")
    answer, log = tmp_path / "answer.json", tmp_path / "submit.log"
    submit = [
        *(str(SPARK / "bin" / "spark-submit"), "--master", cluster.master),
        *("--archives", f"{package}#app", "--conf", "spark.executorEnv.PYTHONPATH=app"),
        *("--executor-memory", "512m", "--executor-cores", "1", "--driver-memory", "512m"),
        *("--conf", f"spark.pyspark.python={BASE_PYTHON}"),
        *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
        *("--conf", "spark.driver.host=localhost", "--conf", "spark.ui.enabled=false"),
        *(str(Path(__file__).with_name("job.py")), str(tmp_path / "flights"), str(answer)),
    ]
    with log.open("wb") as file:
        done = subprocess.run(submit, stdout=file, stderr=file, timeout=5 * TIMEOUT_SECONDS)
    assert done.returncode == 0, log.read_text()
    rows = {(key, start): count for key, start, count in json.loads(answer.read_text())}
    assert rows == expected
    assert cluster.ran()


@pytest.mark.broker
def test_the_reference_application_is_backfilled(
    cluster: Cluster,
    package: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tables are those of a batch on this machine alone."""
    monkeypatch.setenv("PYSPARK_PYTHON", str(BASE_PYTHON))
    sizes = ("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m")
    with LightKafka(tmp_path / "kafka", brokers=1, port=0) as kafka:
        flights = Flights(kafka.bootstrap_servers, tmp_path)
        flights.ingest("--since", "2013-12-01")
        done = flights.streamapp(
            *("backfill", "agents", "--master", cluster.master, "--archive", str(package), *sizes),
            *("--conf", "spark.driver.host=localhost"),
        )
        assert "You can start workers now" in done
        topology = agents.app.streams.topology
        config = agents.app.config.replace(bootstrap_servers=kafka.bootstrap_servers)
        live = live_tables(topology, config, spark)
        with SparkRunner(topology, config, spark).batch() as batch:
            for name, table in batch.tables.items():
                rows = sorted(table.rows(), key=repr)
                assert rows
                assert sorted(live[name].rows(), key=repr) == rows, name
    assert cluster.ran()
