"""``streamapp registry``: a local schema registry from the command line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streamapp._base.signals import stopping
from streamapp.broker.distribution import announce_registry
from streamapp.cli.application import clear_errors
from streamapp.errors import BrokerError
from streamapp.registry.apicurio import LocalRegistry

__all__ = ["registry_group"]


def _data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data/registry"),
        show_default=True,
        help="The folder with the registry's subjects and log.",
    )(command)


@click.group("registry")
def registry_group() -> None:
    """Run a local schema registry for development, with Java 17 or newer, and without Docker."""


@registry_group.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8081,
    show_default=True,
    help="The port; 0 takes a free one at the first start, and the same port at later starts.",
)
@click.option("--foreground", is_flag=True, help="Wait for Ctrl-C, then stop the registry.")
@_data_dir_option
def start(port: int, foreground: bool, data_dir: Path) -> None:
    """Start the registry, which runs until `streamapp registry stop`."""
    with clear_errors():
        registry = LocalRegistry(data_dir, port)
        if registry.status().pid is not None:
            raise BrokerError(
                f"A registry runs already at {registry.url}: to change its settings, run "
                "`streamapp registry stop` first."
            )
        registry.check()
        click.echo(announce_registry(), err=True)
        if not foreground:
            registry.start(detached=True)
            _tell(registry)
            return
        end = threading.Event()
        stopping(end.set)
        with registry:
            _tell(registry)
            end.wait()


@registry_group.command()
@_data_dir_option
def stop(data_dir: Path) -> None:
    """Stop the registry; its subjects stay in the data folder."""
    with clear_errors():
        registry = LocalRegistry(data_dir)
        ran = registry.status().pid is not None
        registry.stop()
        click.echo("The registry is stopped." if ran else f"No registry runs in {data_dir}.")


@registry_group.command()
@_data_dir_option
def status(data_dir: Path) -> None:
    """Show if the registry runs. The exit code is 0 if the registry runs, else 1."""
    with clear_errors():
        found = LocalRegistry(data_dir).status()
    if found.url is None:
        click.echo(f"No registry was started in {found.data_dir}.")
    else:
        click.echo(f"registry  {found.url}  " + (f"runs, pid {found.pid}" if found.pid else "stopped"))
    if found.pid is None:
        raise SystemExit(1)


def _tell(registry: LocalRegistry) -> None:
    click.echo(
        f"The registry listens. Applications find it with:\n  export STREAMAPP_SCHEMA_REGISTRY_URL={registry.url}"
    )
