"""``streamapp worker``."""

from __future__ import annotations

import os
import sys

import click

from streamapp.cli.application import APPLICATION, clear_errors, load

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
    help="Folder of this worker's state. Each worker on a machine needs its own folder.",
)
@click.option(
    "--loglevel",
    "-l",
    type=click.Choice(["crit", "error", "warn", "info", "debug"], case_sensitive=False),
    help="Level of the log (default: info for the application and the worker, warn for Faust and the Kafka clients).",
)
def worker(application: str, web_port: int | None, datadir: str | None, loglevel: str | None) -> None:
    """Start a worker of APPLICATION: a module with an `app`, such as `agents`, or `module:attribute`.

    The `app` may have a topology, agents and consumers, or only some of these.
    """
    arguments = ["faust"]
    if datadir is not None:
        arguments += ["--datadir", datadir]
    if loglevel is None:
        arguments += ["--quiet"]  # leaves out Faust's banner: the worker's first line has its important facts
    arguments += ["-A", application, "worker"]
    if loglevel is not None:
        arguments += ["-l", loglevel]
    if web_port is not None:
        arguments += ["--web-port", str(web_port)]
    app = load(application, topology=False)
    if not hasattr(type(app), "web"):
        raise click.ClickException(f"{application} is not a streamapp.App: {app!r}")
    with clear_errors():
        app.web.prepare()  # refuses an open web server before anything else starts; the process below is a new one
    os.execvp(sys.executable, [sys.executable, "-m", *arguments])
