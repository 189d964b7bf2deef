"""Events per second and CPU per event of batches on Spark, beside the loop that one would write by hand."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks.spark import flights
from benchmarks.spark.work import LOOPS, NATIVE, TOPOLOGIES, Columns
from streamapp import StreamsConfig
from streamapp.broker import KafkaSettings
from streamapp.runners.spark import (
    ColumnSource,
    FrameSource,
    KafkaSource,
    ParquetSource,
    SparkRunner,
    spark_session,
)

__all__ = ["SOURCES", "Cpu", "Pass", "measure", "session", "table"]

SOURCES = ("loop", "parquet", "frame", "kafka", "native")
GOALS = {
    ("W1", "kafka"): 200_000,
    ("W2", "kafka"): 200_000,
    ("W1", "parquet"): 400_000,
    ("W2", "parquet"): 400_000,
    ("W3", "parquet"): 120_000,
    ("W3", "kafka"): 120_000,
    ("W2", "native"): 1_000_000,
}
"""Events per second on two otherwise idle cores."""


@dataclass(frozen=True)
class Pass:
    """One measured run. ``load`` is the load average of the machine, of the last minute of the run."""

    work: str
    source: str
    events: int
    seconds: float
    cpu_seconds: float
    load: float


def measure(
    kafka: KafkaSettings,
    folder: Path,
    works: Sequence[str],
    sources: Sequence[str],
    events: int,
    passes: int,
    master: str,
) -> Iterator[Pass]:
    """Each work from each source, once to warm up and then ``passes`` times, in turns."""
    config = StreamsConfig(
        "spark-bench", bootstrap_servers=kafka.bootstrap_servers, client_properties=kafka.librdkafka()
    )
    with session(master) as spark:
        runs = {
            (work, source): _run(work, source, kafka, folder, events, config, spark)
            for work in works
            for source in sources
            if source != "native" or work == NATIVE
        }
        used = Cpu(spark)
        for number in range(passes + 1):
            for (work, source), run in runs.items():
                gc.collect()
                before, started = used.seconds(), time.perf_counter()
                run()
                seconds, cpu = time.perf_counter() - started, used.seconds() - before
                if number:
                    yield Pass(work, source, events, seconds, cpu, os.getloadavg()[0])


@contextmanager
def session(master: str, memory: str = "3g") -> Iterator[Any]:
    """A Spark session whose Python workers have started already."""
    spark = spark_session("bench", master=master, settings={"spark.driver.memory": memory})
    try:
        spark.range(0, 4, 1, 4).mapInArrow(lambda batches: batches, "id bigint").count()
        yield spark
    finally:
        spark.stop()


class Cpu:
    """User and system time of this process, of the JVM and of all Python workers.

    Spark ends its Python workers at any time, and their parent does not wait for them. So no process reports their CPU
    time. A thread samples the CPU time of all workers, and the last sample of each worker counts. The CPU time of this
    thread does not count.
    """

    def __init__(self, spark: Any) -> None:
        self._java = psutil.Process(spark.sparkContext._gateway.proc.pid)
        self._seen: dict[int, float] = {}
        self._lock = threading.Lock()
        self._looking = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        self._look()
        return sum(self._seen.values()) + time.process_time() - self._looking

    def _watch(self) -> None:
        with suppress(psutil.NoSuchProcess):  # the JVM has ended
            while True:
                self._look()
                self._looking = time.thread_time()
                time.sleep(0.1)

    def _look(self) -> None:
        with self._lock:
            for process in (self._java, *self._java.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    self._seen[process.pid] = sum(process.cpu_times()[:2])


def _run(
    work: str, source: str, kafka: KafkaSettings, folder: Path, events: int, config: StreamsConfig, spark: Any
) -> Callable[[], object]:
    if source == "native":
        rows = spark.read.parquet(str(flights.columns(folder, events)))
        given = ColumnSource(rows, key="tailnum", timestamp="timestamp")
        return lambda: SparkRunner(TOPOLOGIES[work]("flights"), config).native("counts", given).collect()
    if source == "kafka":
        topic = flights.topic(kafka, events)
        return lambda: SparkRunner(TOPOLOGIES[work](topic), config).batch(KafkaSource()).close()
    archive = flights.archive(folder, events)
    if source == "loop":
        return lambda: LOOPS[work](_columns(archive))
    found: Any = ParquetSource(str(archive))
    if source == "frame":
        found = FrameSource(spark.read.parquet(str(archive)), flights.PARTITIONS)
    return lambda: SparkRunner(TOPOLOGIES[work]("flights"), config).batch({"flights": found}).close()


def _columns(folder: Path) -> Iterator[Columns]:
    """The archive in batches of Python lists, partition after partition."""
    for file in sorted(folder.rglob("*.parquet")):
        names = ["key", "value", "timestamp"]
        for batch in pq.ParquetFile(file).iter_batches(10_000, columns=names, use_threads=False):
            yield tuple(batch.column(n).to_pylist() for n in range(3))


def table(passes: list[Pass]) -> Table:
    """Medians. ``to the loop`` compares CPU; the loop has one core, Spark those of its master."""
    found = Table("work", "source", title="Spark", title_justify="left")
    for column in ("events", "passes", "events/s", "goal", "CPU µs/event", "to the loop", "load"):
        found.add_column(column, justify="right")
    groups: dict[tuple[str, str], list[Pass]] = defaultdict(list)
    for each in passes:
        groups[each.work, each.source].append(each)
    cost = {name: median(p.cpu_seconds / p.events * 1e6 for p in group) for name, group in groups.items()}
    for (work, source), group in groups.items():
        loop, goal = cost.get((work, "loop")), GOALS.get((work, source))
        found.add_row(
            work,
            source,
            f"{group[0].events:,}",
            str(len(group)),
            f"{median(p.events / p.seconds for p in group):,.0f}",
            f"{goal:,}" if goal else "",
            f"{cost[work, source]:.2f}",
            f"{cost[work, source] / loop:.2f}" if loop else "",
            f"{min(p.load for p in group):.0f} to {max(p.load for p in group):.0f}",
        )
    return found
