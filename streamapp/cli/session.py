"""The options of all commands that run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

__all__ = ["pairs", "session", "spark_options"]


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--master`` and ``--conf``; the command gets ``master`` and ``conf``."""
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=pairs,
        help="A setting of Spark; several can be given.",
    )
    master = click.option(
        "--master",
        envvar="STREAMAPP_SPARK_MASTER",
        default="local[*]",
        show_default=True,
        help="Spark's master.",
    )
    return master(conf(command))


def pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Callback of an option that takes NAME=VALUE several times."""
    found = [setting.partition("=") for setting in given]
    wrong = next((name for name, equals, value in found if not (name and equals and value)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not {parameter.metavar}")
    return {name: value for name, _, value in found}


@contextmanager
def session(name: str, master: str, conf: dict[str, str]) -> Iterator[Any]:
    """A Spark session that ends with the block."""
    from streamapp.runners.spark import spark_session

    spark = spark_session(name, master=master, settings=conf)
    try:
        yield spark
    finally:
        spark.stop()
