"""Finds the application that a command is given."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import click

from streamapp.config import StreamsConfig
from streamapp.errors import StreamsError

__all__ = ["APPLICATION", "clear_errors", "load", "load_app"]

APPLICATION = click.argument("application")
_NOT_OF_THE_APPLICATION = (
    __name__,
    "importlib",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
)


def load(application: str, *, topology: bool = True) -> Any:
    """The `App` of a module, such as ``agents``, or of ``module:attribute``. An error names the missing part.

    With ``topology=False``, the application may have only agents or consumers. Also a single consumer, producer or
    relay is then found, that is, any object with a `StreamsConfig` as ``config``.
    """
    module, _, attribute = application.partition(":")
    if module.endswith(".py") or "/" in module:
        path = module.removesuffix(".py").removeprefix("./")
        named = path.replace("/", ".") + (f":{attribute}" if attribute else "")
        hint = "" if path.startswith((".", "/")) else f": {named}"
        raise click.ClickException(
            f"{module} is a file, and an application is named by its module{hint}; run this in the folder that holds it"
        )
    with clear_errors(), _own_frames():
        app = _attribute(_module(module), attribute or "app")
    config = getattr(app, "config", None)
    if not topology and isinstance(config, StreamsConfig):
        return app
    if not hasattr(app, "streams"):
        if isinstance(config, StreamsConfig):
            raise click.ClickException(
                f"{application} has agents, consumers or producers only, and this command needs an App with a topology"
            )
        raise click.ClickException(f"{application} is not a streamapp.App with a topology: {app!r}")
    return app


def load_app(application: str) -> Any:
    """As `load`. The `App` may have only agents or consumers."""
    app = load(application, topology=False)
    if not hasattr(app, "consumers"):
        raise click.ClickException(
            f"{application} is not a streamapp.App, but a {type(app).__name__}. Commands about a consumer group also "
            "take --group NAME"
        )
    return app


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # an import of the module itself
        raise click.ClickException(
            f"there is no module {name} here; run this in the folder that holds it"
        ) from None


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError as error:
        if error.obj not in (None, module):
            raise  # of code that the module runs when an attribute is asked for
        raise click.ClickException(
            f"module {module.__name__} has no attribute {name}; name another one as {module.__name__}:attribute"
        ) from None


@contextmanager
def _own_frames() -> Iterator[None]:
    """Shows an error of the application's module with a traceback that begins in this module. The exit code is 1.

    Errors of streamapp and of click pass through. The frames of the command and of the import would push the frames of
    the application off the terminal.
    """
    try:
        yield
    except (StreamsError, click.ClickException):
        raise
    except Exception as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__name__") in _NOT_OF_THE_APPLICATION:
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames))
        raise SystemExit(1) from error


@contextmanager
def clear_errors() -> Iterator[None]:
    """Shows streamapp's errors without a traceback, because their message says what to do."""
    try:
        yield
    except StreamsError as error:
        raise click.ClickException(str(error)) from error
