"""``streamapp spark``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from streamapp._base.signals import stopping
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.spark_options import session, spark_options

if TYPE_CHECKING:
    from streamapp.runners.spark.streaming import BatchMetrics

__all__ = ["spark_group"]


@click.group("spark")
def spark_group() -> None:
    """Run an application on Spark instead of workers; make archives for clusters."""


@spark_group.command()
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("code", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--also",
    multiple=True,
    metavar="PACKAGE",
    help="An installed package that your code needs, by its name for pip; several can be given.",
)
def package(archive: Path, code: tuple[Path, ...], also: tuple[str, ...]) -> None:
    """Make ARCHIVE (.tar.gz) for the executors of a cluster, with streamapp, its requirements and CODE.

    CODE are your packages (folders) and modules (.py). The requirements have the versions of this environment. The
    executors need the same operating system and the same version of Python. The command names the imports of CODE that
    the archive lacks.

    \b
        streamapp spark package dist/app.tar.gz agents tables
        streamapp backfill agents --master spark://host:7077 --archive dist/app.tar.gz
    """
    with clear_errors():
        from streamapp.runners.spark.package import lacking
        from streamapp.runners.spark.package import package as write

        found = write(archive, code, also)
        for line in lacking(code, also):
            click.echo(line, err=True)
    names = ", ".join([*(path.name for path in code), *found])
    click.echo(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB): {names}")


@spark_group.command()
@APPLICATION
@click.option(
    "--checkpoint",
    default=None,
    help="Folder or URI of Spark's checkpoint (default: data/checkpoint/ and the application id).",
)
@click.option(
    "--interval",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="The least time in milliseconds from the start of a micro-batch to the start of the next.",
)
@click.option(
    "--records",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="The most records of a partition in a micro-batch.",
)
@spark_options
def run(
    application: str, checkpoint: str | None, interval: int, records: int, master: str, conf: dict[str, str]
) -> None:
    """Run APPLICATION continuously with Structured Streaming, until SIGTERM or Ctrl-C.

    The run starts at the committed offsets and with the tables of workers, a backfill or an earlier run. After the run,
    workers can continue in the same way. Each micro-batch with records prints a line of JSON with its metrics.
    """
    app = load(application)
    stop = threading.Event()
    folder = checkpoint or f"data/checkpoint/{app.config.application_id}"
    with clear_errors(), session(app.config.application_id, master, conf) as spark:
        from streamapp.runners.spark.streaming import SparkStream

        stopping(stop.set)
        click.echo(f"starting {app.config.application_id} on {master}, checkpoint {folder}", err=True)
        with SparkStream(
            app.streams.topology,
            app.config,
            spark,
            checkpoint=folder,
            interval_ms=interval,
            records_per_batch=records,
            on_batch=_print,
        ) as stream:
            click.echo("running; SIGTERM or Ctrl-C stops after the current micro-batch", err=True)
            while not stop.is_set() and not stream.wait(0.5):
                pass
    click.echo("stopped", err=True)


def _print(metrics: BatchMetrics) -> None:
    if metrics.tasks:
        click.echo(msgspec.json.encode(metrics).decode())
