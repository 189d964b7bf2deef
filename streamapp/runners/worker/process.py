"""The worker's process, which is Faust's. If a `StreamsError` ended the worker, the last line on the terminal is this
error."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import traceback
from io import TextIOWrapper
from typing import Any, NoReturn

import click
import faust
from click.core import ParameterSource

from streamapp._base.repetitions import quieten_drops
from streamapp._base.stacks import NOT_OF_THE_APPLICATION, passed
from streamapp.errors import ConfigError, StreamsError
from streamapp.runners.worker.agents.taken_batches import RecordMoved
from streamapp.runners.worker.logs import Brief, Crashes, hide_secrets, quieten_clients
from streamapp.runners.worker.watchdog import end_after

__all__ = ["StreamsWorker", "end_in_time"]

_EXIT_SECONDS = 15.0
"""The time in addition to the shutdown time-out after which a process that does not end is killed."""


def end_in_time(shutdown_timeout: float) -> None:
    """Ends the process with exit code 70 if it still runs after ``shutdown_timeout`` and 15 more seconds.

    Otherwise a thread that hangs could keep a stopped worker alive for ever.
    """
    end_after(shutdown_timeout + _EXIT_SECONDS)


class StreamsWorker(faust.Worker):  # type: ignore[misc]
    """Faust's worker, which after a `StreamsError` ends with exit code 1 and the error's message as the last line.

    The message says what to do, so no traceback is shown. A port in use is reported in the same way. Any other
    exception is a fault of a program. The log shows its traceback, and the last line names the function that raised.

    With a log level, the log has the lines of this level and above. Without a log level, the log has warnings, errors
    and lines for users (`Brief`). Repeated lines of Kafka clients are left out.
    """

    _refused: StreamsError | None = None

    def __init__(
        self, app: faust.App, *services: Any, loglevel: str | int | None = None, **options: Any
    ) -> None:
        self._brief = not _is_given("loglevel", loglevel)
        # Faust's command redirects always, and ignores the application's setting.
        options["redirect_stdouts"] = app.conf.worker_redirect_stdouts
        super().__init__(app, *services, loglevel="INFO" if self._brief else loglevel, **options)

    def on_setup_root_logger(self, logger: logging.Logger, level: int) -> None:
        super().on_setup_root_logger(logger, level)
        for handler in logger.handlers:
            handler.addFilter(Crashes(RecordMoved))
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
                f"Port {self.app.conf.web_port} is in use, for example by another worker. Choose another port with "
                f"--web-port ({exc.strerror})."
            )

    async def _sentinel_task(self) -> None:
        """The last thing on the event loop: waits until the tasks that Faust has cancelled have ended.

        Faust instead always waits for one second, which is the limit here.
        """
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=1.0)

    def execute_from_commandline(self) -> NoReturn:
        try:
            super().execute_from_commandline()
        finally:
            streams = getattr(self.app, "streams", None)
            reason = self._refused or self.crash_reason or (streams and streams.failure)
            if isinstance(reason, StreamsError):
                print(f"Error: {reason}", file=sys.stderr, flush=True)
                sys.exit(1)
            if isinstance(reason, Exception):
                print(f"Error: {told_with_function(reason)}", file=sys.stderr, flush=True)
        raise AssertionError("Faust's worker ends with an exit code")


def told_with_function(error: Exception) -> str:
    """The sentence for an exception of a program: class, message, and the application's function that raised it.

    If the traceback has no function of the application, the sentence names the function that raised.
    """
    place = ""
    if calls := [*passed(error, *NOT_OF_THE_APPLICATION)] or [*passed(error)]:
        code, line = calls[-1]
        place = f", raised by {code.co_name} ({code.co_filename}:{line})"
    said = "".join(traceback.format_exception_only(error)).strip()
    return f"{said}{place}. The log has the traceback."


def _is_given(name: str, value: object) -> bool:
    """True if the option was given: on the command line, in the environment, or as an argument without a command
    line."""
    context = click.get_current_context(silent=True)
    if context is None:
        return value is not None
    while context is not None:
        if context.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            return True
        context = context.parent
    return False
