"""``streamapp worker``."""

from __future__ import annotations

import os
import sys

import click

from streamapp.cli.application import APPLICATION, load

__all__ = ["worker"]


@click.command()
@APPLICATION
@click.option(
    "--web-port",
    type=click.IntRange(1, 65_535),
    help="Port of the table views and the page (default: the application's).",
)
@click.option(
    "--datadir",
    type=click.Path(file_okay=False),
    help="Folder of this worker's state; two workers on one machine need two.",
)
@click.option("--loglevel", "-l", default="info", show_default=True)
def worker(application: str, web_port: int | None, datadir: str | None, loglevel: str) -> None:
    """Start a worker of APPLICATION: a module with an `app`, such as `agents`, or `module:attribute`."""
    arguments = ["faust"]
    if datadir is not None:
        arguments += ["--datadir", datadir]
    arguments += ["-A", application, "worker", "-l", loglevel]
    if web_port is not None:
        arguments += ["--web-port", str(web_port)]
    load(application)
    os.execvp(sys.executable, [sys.executable, "-m", *arguments])
