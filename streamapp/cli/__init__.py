"""The ``streamapp`` command: start workers, look at a topology, run a local Kafka."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from streamapp.broker.cli import broker_group
from streamapp.errors import StreamsError

__all__ = ["main"]


@click.group()
@click.version_option(package_name="streamapp")
def main() -> None:
    """Kafka Streams for Python: describe a topology once, run it live, on Spark, and in tests."""
    sys.path.insert(0, os.getcwd())  # as `python -m` does: applications lie in the folder one stands in


main.add_command(broker_group)


@main.command()
@click.argument("application")
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
    _load(application)
    os.execvp(sys.executable, [sys.executable, "-m", *arguments])


@main.command()
@click.argument("application")
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart instead of Kafka Streams' text.")
def describe(application: str, mermaid: bool) -> None:
    """Show the topology of APPLICATION."""
    topology = _load(application).streams.topology
    click.echo(topology.to_mermaid() if mermaid else topology.describe(), nl=False)


def _load(application: str) -> Any:
    """The `App` of a module, or an error that says what is missing."""
    module, _, attribute = application.partition(":")
    try:
        app = getattr(import_module(module), attribute or "app")
    except ModuleNotFoundError as error:
        if error.name and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise click.ClickException(
            f"there is no module {module} here; run this in the folder that holds it"
        ) from None
    except AttributeError:
        raise click.ClickException(
            f"module {module} has no attribute {attribute or 'app'}; name another one as {module}:attribute"
        ) from None
    except StreamsError as error:
        raise click.ClickException(str(error)) from None
    if not hasattr(app, "streams"):
        raise click.ClickException(f"{application} is not a streamapp.App with a topology: {app!r}")
    return app
