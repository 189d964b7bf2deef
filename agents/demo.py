"""Runs the whole application with one command: Kafka, a schema registry, the ingest with Spark, a worker, live tables.

    python -m agents.demo                         runs until Ctrl-C; a later run continues where this one stopped
    python -m agents.demo --once                  compares every table with a batch on Spark, and ends

The demo uses an existing Kafka if STREAMAPP_BOOTSTRAP_SERVERS is set (and STREAMAPP_SECURITY_PROTOCOL ...). The demo
uses an existing schema registry if STREAMAPP_SCHEMA_REGISTRY_URL is set.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

import agents
from agents.comparison import batch_tables, compare, report, worker_tables
from agents.ingest import ingest
from streamapp import StreamsError
from streamapp.broker import KafkaSettings, LocalKafka
from streamapp.broker.distribution import find_java
from streamapp.broker.ports import check_port
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.runners.spark import spark_session
from streamapp.runners.spark.progress import progress_bar
from streamapp.testing import Backlog, WorkerProcess
from tables.schemas import new_york_ms

LOCAL_PORT, REGISTRY_PORT = 9092, 8081
REGISTRY_URL = "STREAMAPP_SCHEMA_REGISTRY_URL"
console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option(
    "--once", is_flag=True, help="Compare every table with a batch on Spark of the same topology, and end."
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Flights and weather before this day only; the next run goes on there.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default="data",
    show_default=True,
    help="The folder for Kafka, the registry and state.",
)
@click.option("--kafka-port", default=LOCAL_PORT, show_default=True, help="Port of the local Kafka.")
@click.option(
    "--registry-port", default=REGISTRY_PORT, show_default=True, help="Port of the local schema registry."
)
@click.option(
    "--web-port", default=6066, show_default=True, help="Port of the page and of the tables over HTTP."
)
def main(
    once: bool, until: datetime | None, data: Path, kafka_port: int, registry_port: int, web_port: int
) -> None:
    """Run the flights application: Kafka, schema registry, ingest, worker, tables."""
    _stop_on_signals()
    try:
        equal = _run(once, until, data, kafka_port, registry_port, web_port)
    except KeyboardInterrupt:
        console.print("Stopped. Run it again, and it goes on where it was.")
        sys.exit(130 if once else 0)
    except (StreamsError, OSError) as error:
        console.print(f"[red]Error:[/red] {error}")
        sys.exit(1)
    sys.exit(0 if equal else 1)


def _run(
    once: bool, until: datetime | None, data: Path, kafka_port: int, registry_port: int, web_port: int
) -> bool:
    _check_data(data)
    with ExitStack() as stack:
        with phase("Kafka") as tell:
            find_java()  # Spark needs it too, and says less clearly so
            kafka = stack.enter_context(kafka_cluster(data / "kafka", kafka_port))
            tell(kafka.bootstrap_servers)

        with phase("Registry") as tell:
            registry = stack.enter_context(schema_registry(data, registry_port))
            os.environ[REGISTRY_URL] = (
                registry  # Spark's runner, below, finds the registry as the worker does
            )
            tell(registry)

        with phase("Flights", shows_bar=True) as tell:
            with console.status("Spark starts"):
                _start_spark(data / "spark.log")
            with progress_bar() as bar:
                line = bar.add_task("  rows are cleaned", total=None)
                published = ingest(
                    spark_session("flights"),
                    kafka,
                    registry=ConfluentSchemaRegistry(),
                    until=None if until is None else new_york_ms(until.year, until.month, until.day),
                    on_progress=lambda done, total: bar.update(
                        line, description="  events are written", completed=done, total=total
                    ),
                )
            there = sum(each.there_before for each in published.datasets.values())
            tell(f"{published.written:,} new events in Kafka, {there:,} were there")

        with phase("Worker") as tell:
            environ = {
                "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
                REGISTRY_URL: registry,
                "FLIGHTS_DATADIR": str(data / "worker"),
                "FLIGHTS_WEB_PORT": str(web_port),
            }
            log = data / "worker.log"
            worker = stack.enter_context(WorkerProcess("agents", web_port=web_port, log=log, environ=environ))
            worker.wait_until_ready()
            tell(f"ready at {worker.url}, log in {log}")

        if once:
            return _compare(kafka, worker)
        command = os.path.relpath(Path(sys.executable).with_name("streamapp"))
        command = f"STREAMAPP_BOOTSTRAP_SERVERS={kafka.bootstrap_servers} {REGISTRY_URL}={registry} {command}"
        start = f"{command} worker agents"
        second = f"{start} --web-port {web_port + 1} --datadir {data / 'worker-2'}"
        try:
            _process(kafka, worker)
            _show_addresses(worker.url, command, second)
            with console.status("") as line:
                while True:
                    worker.check()
                    with suppress(StreamsError, OSError):  # it may be busy
                        line.update(failed_records(worker.get("/status")["tasks"]))
                    time.sleep(0.5)
        except StreamsError as error:
            console.print(f"[red]Error:[/red] {error}")
        console.print(
            "Kafka runs on until Ctrl-C. Workers that are left take over; this one goes on where it was:\n"
            f"  {start} --web-port {web_port} --datadir {data / 'worker'}"
        )
        while True:
            signal.pause()


def _compare(kafka: KafkaSettings, worker: WorkerProcess) -> bool:
    """Waits until everything is processed. True if the worker's tables are equal to Spark's."""
    streams = agents.app.streams
    _process(kafka, worker, retries=True)
    show_letters(worker.get("/dlq", timeout=60.0)["groups"])
    config = agents.app.config.replace(
        bootstrap_servers=kafka.bootstrap_servers, client_properties=kafka.librdkafka()
    )
    with phase("Spark", shows_bar=True) as tell:
        spark = batch_tables(streams.topology, config)
        tell("the same topology, in batch, over the same events")
    comparisons = compare(worker_tables(worker, spark), spark)
    console.print(report(comparisons))
    return not any(each.differences for each in comparisons)


def _process(kafka: KafkaSettings, worker: WorkerProcess, *, retries: bool = False) -> None:
    """Waits until every event is processed, and with ``retries`` also every record that waits for a retry."""
    with (
        phase("Processing", shows_bar=True) as tell,
        Backlog(agents.app.streams.plan, kafka) as backlog,
        progress_bar() as bar,
    ):
        line = bar.add_task("  events are processed", total=None)
        while not backlog.empty() or (retries and waiting(worker.get("/status")["tasks"])):
            worker.check()
            done, total = backlog.progress()
            bar.update(line, completed=done, total=total)
            time.sleep(0.5)
        tell("every event is processed and committed")


def waiting(tasks: list[dict[str, Any]]) -> int:
    """The number of records that wait for a retry, from the status of a worker."""
    return sum(each["records"] for task in tasks for each in task["parked"])


def failed_records(tasks: list[dict[str, Any]]) -> str:
    """One line about the records that failed since the start of the worker."""
    letters: Counter[str] = Counter()
    for task in tasks:
        for operator, drops in task["drops"].items():
            letters[operator] += drops.get("dead_letter", 0)
    dead = ", ".join(f"{count:,} of {operator}" for operator, count in sorted(letters.items()) if count)
    return f"Records that failed: {waiting(tasks):,} wait for a retry; dead letters: {dead or 'none'}"


def show_letters(groups: list[dict[str, Any]]) -> None:
    """The dead letters by operator and cause."""
    table = Table(
        "letters", "operator", "cause", "the last one", title="Records that failed", title_justify="left"
    )
    for group in groups:
        table.add_row(f"{group['count']:,}", group["operator"], group["cause"], group["message"])
    console.print(table)


def _show_addresses(url: str, command: str, second_worker: str) -> None:
    console.print(
        f"""
  The page              {url}/
  Which tables          curl {url}/tables/
  One key               curl {url}/tables/carrier-flights/UA
  The hours of a day    curl '{url}/tables/airport-delays/JFK?from=2013-07-01&to=2013-07-02'
  Delays by weather     curl '{url}/tables/weather-delays/?limit=10'
  The schemas           {command} schema list
  What has failed       {command} dlq list agents
  A second worker       {second_worker}

Ctrl-C stops everything."""
    )


@contextmanager
def phase(name: str, *, shows_bar: bool = False) -> Iterator[Any]:
    """Prints one line when the body of the ``with`` block ends: its name, its result, and its duration.

    Until then the terminal shows a spinner, or with ``shows_bar`` the progress bar of the body.
    """
    started, told = time.monotonic(), [""]
    with nullcontext() if shows_bar else console.status(name):
        yield lambda text: told.__setitem__(0, text)
    console.print(f"[bold]{name:12}[/bold]{told[0]}  [dim]{time.monotonic() - started:.1f} s[/dim]")


@contextmanager
def kafka_cluster(data: Path, port: int) -> Iterator[KafkaSettings]:
    """The cluster of the environment, or else a local Kafka. A Kafka that is started here is stopped at the end."""
    if os.environ.get("STREAMAPP_BOOTSTRAP_SERVERS"):
        yield KafkaSettings.from_env()
        return
    local = LocalKafka(data, port=port)
    if local.status().running:
        yield KafkaSettings(bootstrap_servers=local.bootstrap_servers)
        return
    check_port(port, option="--kafka-port")
    with local:
        yield KafkaSettings(bootstrap_servers=local.bootstrap_servers)


def _check_data(data: Path) -> None:
    """Raises an error for a data folder from before 23 November 2026, because no registry knows the schemas of its
    events."""
    if os.environ.get(REGISTRY_URL) or os.environ.get("STREAMAPP_BOOTSTRAP_SERVERS"):
        return
    if (data / "kafka").is_dir() and not (data / "registry").is_dir():
        raise StreamsError(
            f"the events in {data / 'kafka'} were written without a schema registry: "
            f"delete {data}, or name another folder with --data"
        )
    (data / "registry").mkdir(parents=True, exist_ok=True)


@contextmanager
def schema_registry(data: Path, port: int) -> Iterator[str]:
    """The registry of the environment, or a local one, which is stopped at the end if it was started here."""
    if os.environ.get(REGISTRY_URL):
        yield os.environ[REGISTRY_URL]
        return
    local = LocalRegistry(data / "registry", port=port)
    if local.status().pid is not None:
        yield local.url
        return
    check_port(port, "registry", option="--registry-port", variable=REGISTRY_URL)
    with local:
        yield local.url


def _start_spark(log: Path) -> None:
    """Starts Spark. All that Spark and its processes print goes to a log file, and not to the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=log)
    terminal = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        spark_session("flights")
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
    _stop_on_signals()  # Spark has put its own handler there


def _stop_on_signals() -> None:
    """Ends the demo in order at the first Ctrl-C or `kill`, and ignores further ones, which would disturb the end."""

    def stop(*_: object) -> NoReturn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


if __name__ == "__main__":
    main()
