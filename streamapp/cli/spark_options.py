"""The options of all commands that run on Spark."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from streamapp._base.counted import counted
from streamapp._base.signals import unlogged_signals, without_clean_up
from streamapp.broker.requests import reach
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition

__all__ = ["begin_late", "pairs", "session", "spark_options"]

ARCHIVE = "streamapp.archive"
"""The key of the archive in click's ``meta``, from which `session` takes the archive."""
_TERMINATED = (128 + signal.SIGTERM, -signal.SIGTERM)
"""The exit codes of a Java that has got SIGTERM."""


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--master``, ``--archive`` and ``--conf``; the command has parameters ``master`` and ``conf``."""
    archive = click.option(
        "--archive",
        envvar="STREAMAPP_SPARK_ARCHIVE",
        callback=_use_archive,
        expose_value=False,
        help="Archive for the executors of a cluster, made by `streamapp spark package`.",
    )
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=pairs,
        help="A property of Spark; several can be given.",
    )
    master = click.option(
        "--master",
        envvar="STREAMAPP_SPARK_MASTER",
        default="local[*]",
        show_default=True,
        help="Spark's master URL.",
    )
    return master(archive(conf(command)))


def _use_archive(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    if given is None:
        return
    if "://" not in given and not Path(given).is_file():
        raise click.BadParameter(f"there is no file {given}: make it with `streamapp spark package {given}`")
    context.meta[ARCHIVE] = given


def pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """A callback for click options of the form NAME=VALUE that may be given several times."""
    found = [setting.partition("=") for setting in given]
    wrong = next((name for name, equals, value in found if not (name and equals and value)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not {parameter.metavar}")
    return {name: value for name, _, value in found}


@contextmanager
def session(
    name: str, master: str, conf: dict[str, str], *, client: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """A Spark session that stops at the end of the ``with`` block.

    With the settings of a Kafka ``client``, Spark starts only if a broker answers. Raises the errors of `reach`, and
    `StreamsError` if Spark's Java ends during the block.
    """
    from streamapp.runners.spark import spark_session
    from streamapp.runners.spark.package import archive_settings

    if client is not None:
        reach(client)
    archive = click.get_current_context().meta.get(ARCHIVE)
    settings = {**(archive_settings(archive) if archive else {}), **conf}
    # PySpark sets a handler for Ctrl-C that calls Spark amid the interrupted call, and both calls then fail. A Python
    # that cleans up while the JVM starts would leave the JVM running.
    with without_clean_up():
        spark = spark_session(name, master=master, settings=settings)
    with unlogged_signals(), _stopped_at_the_end(spark):
        yield spark


@contextmanager
def _stopped_at_the_end(spark: Any) -> Iterator[None]:
    from py4j.protocol import Py4JError, Py4JJavaError

    java = spark.sparkContext._gateway.proc
    try:
        yield
    except (Py4JError, OSError, EOFError) as error:
        # The calls of a dead Java fail in many ways, and with the errors of sockets.
        if isinstance(error, Py4JJavaError) or not _ends(java):
            raise
        reason = (
            "SIGTERM has ended Java: send signals to this command alone (systemd: KillMode=mixed)"
            if java.returncode in _TERMINATED
            else "A machine without free memory kills processes, and Java ends itself if its heap is full. Give Java "
            "more memory (--conf spark.driver.memory=4g), or use fewer cores (--master 'local[1]')"
        )
        raise StreamsError(
            f"Spark's Java has ended with exit code {java.returncode}. {reason}. Then run this again"
        ) from error
    finally:
        if java.poll() is None:
            spark.stop()


def _ends(process: Any) -> bool:
    """True if a process has ended, or ends now: the sockets of a process close before its end."""
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        return False
    return True


def begin_late(late: Mapping[TopicPartition, int]) -> str:
    """The beginning of a warning about partitions whose first records Kafka has deleted, with their first offsets."""
    (tp, start), more = next(iter(late.items())), len(late) - 1
    begin = counted(more, "further partition begins", "further partitions begin")
    return f"Warning: {tp} begins at offset {start:,}" + (f", and {begin} late, too" if more else "")
