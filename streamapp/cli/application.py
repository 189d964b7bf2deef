"""Finds the application that a command is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from streamapp.config import StreamsConfig
from streamapp.errors import StreamsError

__all__ = ["APPLICATION", "clear_errors", "load"]

APPLICATION = click.argument("application")


def load(application: str, *, topology: bool = True) -> Any:
    """The `App` of a module, such as ``agents``, or of ``module:attribute``. An error names the missing part.

    With ``topology=False``, the application may have only agents or consumers, and may also be a consumer itself.
    """
    module, _, attribute = application.partition(":")
    if module.endswith(".py") or "/" in module:
        path = module.removesuffix(".py").removeprefix("./")
        named = path.replace("/", ".") + (f":{attribute}" if attribute else "")
        hint = "" if path.startswith((".", "/")) else f": {named}"
        raise click.ClickException(
            f"{module} is a file, and an application is named by its module{hint}; run this in the folder that holds it"
        )
    with clear_errors():
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
    if not topology and isinstance(getattr(app, "config", None), StreamsConfig):
        return app
    if not hasattr(app, "streams"):
        raise click.ClickException(f"{application} is not a streamapp.App with a topology: {app!r}")
    return app


@contextmanager
def clear_errors() -> Iterator[None]:
    """Shows streamapp's errors without a traceback, because their message says what to do."""
    try:
        yield
    except StreamsError as error:
        raise click.ClickException(str(error)) from error
