"""streamapp and its peers side by side, on the flights of New York, 2013.

    python -m benchmarks throughput                       W1 to W4 at least once, and W3 exactly once, too
    python -m benchmarks throughput --workloads w2 --peers streamapp,kafka-streams --repetitions 5
    python -m benchmarks latency                          end to end at 1,000 events a second
    python -m benchmarks restore                          a table of a million keys
    python -m benchmarks curve keys                       cost over keys, partitions, value-bytes, stores ...
    python -m benchmarks memory                           resident size over state_memory_bytes
    python -m benchmarks processes                        one application of several worker processes
    python -m benchmarks serdes                           Avro, JSON Schema, Protobuf beside Confluent's serializers
    python -m benchmarks soak                             an hour with kills: memory, files, disk and latency stay flat
    python -m benchmarks losses                           events lost and doubled before they are in a topic
    python -m benchmarks spark                            W1 to W3 in batches on Spark, beside the loop by hand
    python -m benchmarks spark-handover                   a table of a million keys, from Spark to workers

Runs are interleaved: each repetition runs every peer once, so that other work on the machine disturbs all of them.
Compare the ratios of one run, because rates depend on that other work.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from benchmarks import curves, latency, losses, memory, processes, restore
from benchmarks.peers import PEERS
from benchmarks.report import plot, throughput_table
from benchmarks.throughput import Run, Throughput
from streamapp.broker import KafkaSettings, LocalKafka
from streamapp.cli.application import clear_errors

Place = Callable[[], tuple[Path, KafkaSettings]]
"""The folder of the results, and a function that gives Kafka when a command begins: `--help` starts no Kafka."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)  # wide enough for every table


@click.group(help=__doc__)
@click.option("--results", type=click.Path(path_type=Path), default=Path("data/bench"), show_default=True)
@click.option(
    "--kafka-port", default=9092, show_default=True, help="Port of the local Kafka, if no other Kafka is set."
)
@click.pass_context
def main(context: click.Context, results: Path, kafka_port: int) -> None:
    results.mkdir(parents=True, exist_ok=True)
    context.obj = lambda: (results, context.with_resource(_kafka(results / "kafka", kafka_port)))


@main.command()
@click.option("--rounds", default=21, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=Path("data/bench"), show_default=True)
def serdes(rounds: int, results: Path) -> None:
    """CPU for a record in each serde, beside Confluent's serializers."""
    from benchmarks.serdes import costs, serdes_table

    found = costs(rounds)
    console.print(serdes_table(found))
    results.mkdir(parents=True, exist_ok=True)
    _save(results / "serdes.json", [asdict(each) for each in found])


@main.command()
@click.option("--workloads", default="w1,w2,w3,w4", show_default=True)
@click.option("--peers", default=",".join(PEERS), show_default=True)
@click.option("--repetitions", default=3, show_default=True)
@click.option("--years", default=3, show_default=True, help="Copies of the year that the fast peers read.")
@click.option("--quick", is_flag=True, help="A small input: to see that everything works.")
@click.pass_obj
def throughput(place: Place, workloads: str, peers: str, repetitions: int, years: int, quick: bool) -> None:
    """CPU per event of every peer."""
    results, kafka = place()
    runs: list[Run] = []
    with _scratch(results) as folder:
        rows = 2_000 if quick else None
        bench = Throughput(kafka, folder, years=1 if quick else years, rows=rows, slow_rows=rows or 30_000)
        for run in bench.runs(workloads.split(","), peers.split(","), repetitions):
            if isinstance(run, str):
                console.print(f"[red]{run}[/red]")
                continue
            runs.append(run)
            _save(results / "throughput.json", [asdict(run) | {"cpu_us": run.cpu_us} for run in runs])
            console.print(
                f"{run.workload} {run.peer:18} {run.cpu_us:8.2f} µs  {run.events_per_second:10,.0f}/s"
            )
    console.print(throughput_table(runs))
    plot(runs, results / "throughput.png")
    console.print(f"Written to {results}")


@main.command(name="latency")
@click.option("--peers", default=",".join(latency.PEERS), show_default=True)
@click.option("--rate", default=1_000, show_default=True, help="Events a second.")
@click.option("--seconds", default=12.0, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
@click.pass_obj
def latency_command(place: Place, peers: str, rate: int, seconds: float, repetitions: int) -> None:
    """From the production of an event to the read of its result (W1)."""
    results, kafka = place()
    with _scratch(results) as folder:
        found = latency.measure(kafka, folder, peers.split(","), rate, seconds, repetitions, console.print)
    console.print(latency.table(found))
    _save(results / "latency.json", [asdict(each) for each in found])


@main.command(name="restore")
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
@click.pass_obj
def restore_command(place: Place, keys: int, repetitions: int) -> None:
    """A table restored from its changelog into an empty folder."""
    results, kafka = place()
    with _scratch(results) as folder:
        runs = list(restore.measure(kafka, folder, keys, repetitions))
    console.print(restore.table(runs))
    _save(results / "restore.json", [asdict(run) for run in runs])


@main.command()
@click.argument("dimension", type=click.Choice(list(curves.CURVES)))
@click.option("--values", help="Comma-separated; each dimension has its defaults.")
@click.option("--events", default=2_000_000, show_default=True)
@click.pass_obj
def curve(place: Place, dimension: str, values: str | None, events: int) -> None:
    """CPU per event as keys, partitions, bytes of a value, stores, seconds of retention or days of grace grow."""
    results, kafka = place()
    points = [int(value) for value in values.split(",")] if values else list(curves.CURVES[dimension].values)
    with _scratch(results) as folder:
        found = list(curves.measure(kafka, folder, dimension, points, events, console.print))
    console.print(curves.table(dimension, found))
    _save(results / f"curve-{dimension}.json", [{dimension: at} | asdict(run) for at, run in found])


@main.command(name="memory")
@click.option(
    "--limits", default="16,32,256", show_default=True, help="MiB of state_memory_bytes, comma-separated."
)
@click.option(
    "--keys", default=2_000_000, show_default=True, help="Keys of the count; 0 leaves the count out."
)
@click.option(
    "--large", default=2_000, show_default=True, help="Keys with values of 400 kB; 0 leaves them out."
)
@click.pass_obj
def memory_command(place: Place, limits: str, keys: int, large: int) -> None:
    """The largest resident size of a worker over state_memory_bytes."""
    results, kafka = place()
    numbers = [int(each) for each in limits.split(",")]
    with _scratch(results) as folder:
        found = list(memory.measure(kafka, folder, numbers, keys, large, console.print))
    console.print(memory.table(found))
    _save(results / "memory.json", [asdict(each) for each in found])


@main.command(name="processes")
@click.option(
    "--counts", default="1,2", show_default=True, help="Numbers of worker processes, comma-separated."
)
@click.option("--events", default=2_000_000, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
@click.pass_obj
def processes_command(place: Place, counts: str, events: int, repetitions: int) -> None:
    """A count (W2) by one application of several worker processes."""
    results, kafka = place()
    with _scratch(results) as folder:
        numbers = [int(each) for each in counts.split(",")]
        found = list(processes.measure(kafka, folder, numbers, events, repetitions, console.print))
    console.print(processes.table(found))
    _save(results / "processes.json", [asdict(each) for each in found])


@main.command(name="soak")
@click.option("--minutes", default=60.0, show_default=True, help="After a first pass over all keys.")
@click.option("--keys", default=5_000_000, show_default=True, type=click.IntRange(1_000, 20_000_000))
@click.option("--rate", default=4_000, show_default=True, help="Events a second.")
@click.pass_obj
def soak_command(place: Place, minutes: float, keys: int, rate: int) -> None:
    """Counts and sessions with many keys beside kills: memory, files, disk and latency must not grow."""
    from benchmarks import soak_report
    from benchmarks.soak import Soak

    results, kafka = place()
    shutil.rmtree(out := results / "soak", ignore_errors=True)
    out.mkdir()
    with _scratch(results) as folder:
        found = Soak(kafka, folder, out, minutes, keys, rate, console.print).run()
    _save(out / "soak.json", [asdict(found)])
    soak_report.plot(found, out / "soak.svg")
    soak_report.show(found, console)


@main.command(name="losses")
@click.option("--cases", default=",".join(losses.CASES), show_default=True, help="Comma-separated.")
@click.option("--events", type=int, help="Events of each case; default: the number in docs/producing.md.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("data/bench"), show_default=True)
def losses_command(cases: str, events: int | None, results: Path) -> None:
    """Events lost and doubled by a plain client, and by ours. Kills a local broker of its own."""
    found: list[losses.Outcome] = []
    results.mkdir(parents=True, exist_ok=True)
    with _scratch(results) as folder, clear_errors(), LocalKafka(folder / "kafka", port=0) as kafka:
        for case in cases.split(","):
            for client in ("plain", "ours"):
                found.append(losses.run_case(kafka, folder, case, client, events))
                console.print(str(found[-1]))
    console.print(losses.losses_table(found))
    _save(results / "losses.json", [asdict(each) for each in found])


@main.command(name="spark")
@click.option("--works", default="W1,W2,W3", show_default=True)
@click.option("--sources", default="loop,parquet,kafka,native", show_default=True, help="And frame.")
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--passes", default=3, show_default=True)
@click.option("--master", default="local[2]", show_default=True)
@click.pass_obj
def spark_command(place: Place, works: str, sources: str, events: int, passes: int, master: str) -> None:
    """Batches on Spark: events per second, and CPU per event with the JVM and all Python workers."""
    from benchmarks.spark import run

    results, kafka = place()
    found: list[run.Pass] = []
    for each in run.measure(kafka, results, works.split(","), sources.split(","), events, passes, master):
        found.append(each)
        _save(results / f"spark-{events}.json", [asdict(one) for one in found])
        rate, cost = each.events / each.seconds, each.cpu_seconds / each.events * 1e6
        console.print(f"{each.work} {each.source:8} {cost:8.2f} µs  {rate:10,.0f}/s")
    console.print(run.table(found))


@main.command(name="spark-handover")
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--master", default="local[2]", show_default=True)
@click.pass_obj
def spark_handover(place: Place, keys: int, master: str) -> None:
    """A table from Spark to workers: the batch, and the writing of changelog and offsets."""
    from benchmarks.spark import handover

    results, kafka = place()
    found = handover.measure(kafka, keys, master)
    _save(results / "spark-handover.json", [asdict(found)])
    console.print(
        f"{found.keys:,} keys: computed in {found.compute_seconds:.1f} s, written in {found.write_seconds:.1f} s, "
        f"{found.cpu_seconds:.1f} s of CPU, load {found.load:.0f}"
    )


@contextmanager
def _kafka(data: Path, port: int) -> Iterator[KafkaSettings]:
    """The cluster that the environment names, or a local one for as long as the command runs."""
    if os.environ.get("STREAMAPP_BOOTSTRAP_SERVERS"):
        yield KafkaSettings.from_env()
        return
    with ExitStack() as stack:
        with clear_errors():
            local = stack.enter_context(LocalKafka(data, port=port))
        yield KafkaSettings(bootstrap_servers=local.bootstrap_servers)


@contextmanager
def _scratch(results: Path) -> Iterator[Path]:
    """A folder for state, next to what is built once and kept."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=results))
    (results / "build").mkdir(exist_ok=True)
    (folder / "build").symlink_to((results / "build").resolve())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _save(file: Path, rows: list[dict[str, Any]]) -> None:
    machine = {
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    file.write_text(json.dumps({"machine": machine, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
