"""Events per second and CPU per event of batches on Spark.

    python -m benchmarks.spark.run --data data/bench --source parquet --events 1000000 W1 W2 W3
    python -m benchmarks.spark.run --data data/bench --source kafka --bootstrap-servers localhost:9092 W1 W2 W3
    python -m benchmarks.spark.run --data data/bench --source loop W1 W2 W3

Each work runs once to warm the session up and then as often as ``--passes`` says; medians are printed, one JSON object a
line. CPU is user and system time of this process, the JVM and all Python workers. ``loop`` is the hand-written loop over the
same Parquet files in one process.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pyarrow.parquet as pq

from benchmarks.spark.flights import write_parquet
from benchmarks.spark.work import LOOPS, TOPOLOGIES, Columns
from streamapp import StreamsConfig
from streamapp.runners.spark import FrameSource, KafkaSource, ParquetSource, SparkRunner, spark_session


def cpu_seconds() -> float:
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in [me, *me.children(recursive=True)])


def measured(run: Callable[[], int], passes: int) -> dict[str, Any]:
    """Medians over the passes; the first run is thrown away."""
    seconds, cpu, events = [], [], run()
    for _ in range(passes):
        cpu_before, before = cpu_seconds(), time.perf_counter()
        run()
        seconds.append(time.perf_counter() - before)
        cpu.append(cpu_seconds() - cpu_before)
    wall = statistics.median(seconds)
    return {
        "events": events,
        "seconds": round(wall, 2),
        "events_per_second": round(events / wall),
        "cpu_us_per_event": round(statistics.median(cpu) / events * 1e6, 2),
    }


def columns(folder: Path) -> Iterator[Columns]:
    """The archive in batches of Python lists, partition after partition."""
    for file in sorted(folder.rglob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(10_000, columns=["key", "value", "timestamp"]):
            yield tuple(batch.column(n).to_pylist() for n in range(3))  # type: ignore[misc]


def on_spark(work: str, source: Any, config: StreamsConfig) -> Callable[[], int]:
    def run() -> int:
        with SparkRunner(TOPOLOGIES[work](), config).batch(source()) as result:
            return result.processed // (2 if work == "W3" else 1)

    return run


@click.command()
@click.argument("works", nargs=-1, type=click.Choice(list(TOPOLOGIES)))
@click.option("--source", type=click.Choice(["parquet", "frame", "kafka", "loop"]), default="parquet")
@click.option("--events", default=1_000_000)
@click.option("--passes", default=3)
@click.option(
    "--bootstrap-servers", default="localhost:9092", help="Topic `flights` is made by benchmarks.spark.load."
)
@click.option("--data", type=click.Path(path_type=Path), default=Path("data/bench"))
@click.option("--memory", default="2g", help="Of the JVM.")
def main(
    works: tuple[str, ...],
    source: str,
    events: int,
    passes: int,
    bootstrap_servers: str,
    data: Path,
    memory: str,
) -> None:
    config = StreamsConfig("spark-bench", bootstrap_servers=bootstrap_servers)
    folder = data / f"records-{events}"
    if source != "kafka":
        write_parquet(folder, events)
    if source != "loop":
        spark = spark_session("bench", settings={"spark.driver.memory": memory})
    for work in works or TOPOLOGIES:
        run = {
            "loop": lambda work=work: lambda: (LOOPS[work](columns(folder)), events)[1],
            "kafka": lambda work=work: on_spark(work, KafkaSource, config),
            "parquet": lambda work=work: on_spark(
                work, lambda: {"flights": ParquetSource(str(folder))}, config
            ),
            "frame": lambda work=work: on_spark(
                work, lambda: {"flights": FrameSource(spark.read.parquet(str(folder)), 4)}, config
            ),
        }[source]()
        print(json.dumps({"work": work, "source": source, **measured(run, passes)}), flush=True)


if __name__ == "__main__":
    main()
