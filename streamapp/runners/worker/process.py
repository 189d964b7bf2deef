"""The worker's process: Faust's, except that what ended it is the last thing on the terminal, in one line."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from io import TextIOWrapper
from typing import Any, NoReturn

import click
import faust
from click.core import ParameterSource

from streamapp.errors import ConfigError, StreamsError
from streamapp.runners.repetitions import quieten_drops
from streamapp.runners.worker.logs import Brief, Crashes, hide_secrets, quieten_clients

__all__ = ["StreamsWorker", "end_in_time"]

_EXIT_SECONDS = 15.0
"""The rest of the process gets this time to end after the last commit has not succeeded in time."""


def end_in_time(shutdown_timeout: float) -> None:
    """Nothing that hangs may keep a worker process alive that was told to stop."""
    timer = threading.Timer(shutdown_timeout + _EXIT_SECONDS, os._exit, (70,))
    timer.daemon = True
    timer.start()


class StreamsWorker(faust.Worker):  # type: ignore[misc]
    """Ends with exit code 1 and the message of a `StreamsError`, which names the remedy; a traceback would bury it.

    Any other exception is a fault of a program and is shown with its traceback. Without a log level the worker shows
    what users need (`Brief`); with one, all that there is at that level.
    """

    _refused: StreamsError | None = None

    def __init__(
        self, app: faust.App, *services: Any, loglevel: str | int | None = None, **options: Any
    ) -> None:
        self._brief = not _is_given("loglevel", loglevel)
        # Faust's command asks for it whatever the application's settings say.
        options["redirect_stdouts"] = app.conf.worker_redirect_stdouts
        super().__init__(app, *services, loglevel="INFO" if self._brief else loglevel, **options)

    def on_setup_root_logger(self, logger: logging.Logger, level: int) -> None:
        super().on_setup_root_logger(logger, level)
        for handler in logger.handlers:
            handler.addFilter(Crashes())
            if self._brief:
                handler.addFilter(Brief())

    async def start(self) -> None:
        if isinstance(
            sys.stdout, TextIOWrapper
        ):  # what is printed into a file is there at once, in its order
            sys.stdout.reconfigure(line_buffering=True)
        hide_secrets()
        quieten_clients()
        quieten_drops()
        try:
            await super().start()
        except StreamsError as exc:
            self._refused = exc
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            self._refused = ConfigError(
                f"{exc.strerror}: another program has that port, such as another worker; take one with --web-port"
            )

    def execute_from_commandline(self) -> NoReturn:
        try:
            super().execute_from_commandline()
        finally:
            streams = vars(self.app).get("streams")
            reason = self._refused or self.crash_reason or (streams and streams.failure)
            if isinstance(reason, StreamsError):
                print(f"Error: {reason}", file=sys.stderr, flush=True)
                sys.exit(1)
        raise AssertionError("Faust's worker ends with an exit code")


def _is_given(name: str, value: object) -> bool:
    """True for an option that the command line, or who makes a worker without one, has set."""
    context = click.get_current_context(silent=True)
    if context is None:
        return value is not None
    while context is not None:
        if context.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            return True
        context = context.parent
    return False
