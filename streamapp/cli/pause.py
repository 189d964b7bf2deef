"""``streamapp pause`` and ``streamapp resume``."""

from __future__ import annotations

import contextlib
import json
import urllib.error
from collections.abc import Callable
from typing import Any

import click

from streamapp._base.worker_client import LOGIN, open_worker, worker_address
from streamapp.cli.application import clear_errors

__all__ = ["pause", "resume"]


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    only = click.option(
        "--only-this", is_flag=True, help="Only the worker at URL, and not all workers of its application."
    )
    return click.argument("url", default="http://localhost:6066")(only(command))


@click.command()
@_options
def pause(url: str, only_this: bool) -> None:
    """Pause the topology in all workers of an application, until `streamapp resume`. URL is the address of one worker.

    The workers commit, and then process no record of the topology. Punctuators pause, too. The workers keep their
    partitions, and their tables can be read. Agents, timers of Faust and functions of `App.consume` go on. A worker
    that starts later is not paused, even if it was paused before a restart.
    """
    _tell(url, "pause", only_this)


@click.command()
@_options
def resume(url: str, only_this: bool) -> None:
    """Continue after `streamapp pause` in all workers of an application. URL is the address of one worker."""
    _tell(url, "resume", only_this)


def _tell(url: str, what: str, only_this: bool) -> None:
    with clear_errors():
        url = worker_address(url)
    address = f"{url}/{what}?workers={'this' if only_this else 'all'}"
    try:
        with clear_errors(), open_worker(address, method="POST", seconds=30) as response:
            workers = json.load(response)["workers"]
    except urllib.error.HTTPError as error:
        body = error.read().decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError):
            body = json.loads(body)["error"]
        login = f". {LOGIN}" if error.code in (401, 403) else ""
        raise click.ClickException(f"{url} answered {error.code}: {body}{login}") from None
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"no worker answers at {url}: {error}. The address of a worker is for example http://localhost:6066, or "
            "https://localhost:6066 if the worker has a certificate"
        ) from None
    click.echo(f"{what}d: {', '.join(workers)}")
