"""``streamapp pause`` and ``streamapp resume``."""

from __future__ import annotations

import contextlib
import json
import urllib.error
from collections.abc import Callable
from typing import Any

import click

from streamapp._base.worker_client import LOGIN, open_worker
from streamapp.cli.application import clear_errors

__all__ = ["pause", "resume"]


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    only = click.option(
        "--only-this", is_flag=True, help="Only the worker at the URL, not all of its application."
    )
    return click.argument("url", default="http://localhost:6066")(only(command))


@click.command()
@_options
def pause(url: str, only_this: bool) -> None:
    """Stop processing in all workers of the application that one at URL belongs to, until `streamapp resume`.

    They keep their partitions, and their tables can be read. A worker that is started later, or anew, is not paused.
    """
    _tell(url, "pause", only_this)


@click.command()
@_options
def resume(url: str, only_this: bool) -> None:
    """End a `streamapp pause`."""
    _tell(url, "resume", only_this)


def _tell(url: str, what: str, only_this: bool) -> None:
    if "://" not in url:
        url = f"http://{url}"
    address = f"{url.rstrip('/')}/{what}?workers={'this' if only_this else 'all'}"
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
            f"no worker answers at {url}: {error}. Name the address of its views, for example http://localhost:6066"
        ) from None
    click.echo(f"{what}d: {', '.join(workers)}")
