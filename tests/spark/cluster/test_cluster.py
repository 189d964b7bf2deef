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
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from streamapp.runners.spark import package as packaging

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent
BASE_PYTHON = Path(sys.base_prefix) / "bin" / "python3"
HOUR = 3_600_000
TIMEOUT_SECONDS = 300


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


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    environ |= {
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": str(BASE_PYTHON),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_LOG_DIR": str(tmp_path),
    }
    spark_class = str(SPARK / "bin" / "spark-class")
    log = tmp_path / "master.log"
    arguments = [
        "org.apache.spark.deploy.master.Master",
        "--host",
        "localhost",
        "--port",
        "0",
        "--webui-port",
        "0",
    ]
    with process([spark_class, *arguments], log, environ):
        address = wait_for(found(log, r"Starting Spark master at (spark://\S+)"), log)
        workers = [tmp_path / f"worker-{number}" for number in (1, 2)]
        arguments = [
            "org.apache.spark.deploy.worker.Worker",
            "--cores",
            "1",
            "--memory",
            "700m",
            "--webui-port",
            "0",
        ]

        def worker(folder: Path) -> contextmanager[None]:  # type: ignore[valid-type]
            folder.mkdir()
            return process(
                [spark_class, *arguments, "--work-dir", str(folder), address], folder / "log", environ
            )

        with worker(workers[0]), worker(workers[1]):
            for folder in workers:
                wait_for(found(folder / "log", r"(Successfully registered with master)"), folder / "log")
            yield address


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


def test_a_job_with_its_dependencies_in_an_archive(master: str, tmp_path: Path) -> None:
    expected = archive(tmp_path / "flights")
    package, answer, log = tmp_path / "app.tar.gz", tmp_path / "answer.json", tmp_path / "submit.log"
    packaging.package(package)
    submit = [
        *(str(SPARK / "bin" / "spark-submit"), "--master", master),
        *("--archives", f"{package}#app", "--conf", "spark.executorEnv.PYTHONPATH=app"),
        *("--executor-memory", "512m", "--executor-cores", "1", "--driver-memory", "512m"),
        *(
            "--conf",
            f"spark.pyspark.python={BASE_PYTHON}",
            "--conf",
            f"spark.pyspark.driver.python={sys.executable}",
        ),
        *("--conf", "spark.driver.host=localhost", "--conf", "spark.ui.enabled=false"),
        *(str(Path(__file__).with_name("job.py")), str(tmp_path / "flights"), str(answer)),
    ]
    with log.open("wb") as file:
        done = subprocess.run(submit, stdout=file, stderr=file, timeout=5 * TIMEOUT_SECONDS)
    assert done.returncode == 0, log.read_text()
    rows = {(key, start): count for key, start, count in json.loads(answer.read_text())}
    assert rows == expected
    for number in (1, 2):
        ran = list((tmp_path / f"worker-{number}").glob("app-*/*/stderr"))
        assert any("Finished task" in file.read_text() for file in ran), f"worker {number} had nothing to do"
