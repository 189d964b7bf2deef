"""The worker's process: Faust's, except that what ended it is the last thing on the terminal, in one line."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import NoReturn

import faust

from streamapp.errors import ConfigError, StreamsError
from streamapp.runners.repetitions import quieten_drops
from streamapp.runners.worker.logs import quieten_clients

__all__ = ["StreamsWorker", "end_in_time"]

_EXIT_SECONDS = 15.0
"""What is left of the process gets that long to end after the last commit has not succeeded in time."""


def end_in_time(shutdown_timeout: float) -> None:
    """Nothing that hangs may keep a worker process alive that was told to stop."""
    timer = threading.Timer(shutdown_timeout + _EXIT_SECONDS, os._exit, (70,))
    timer.daemon = True
    timer.start()


class StreamsWorker(faust.Worker):  # type: ignore[misc]
    """Ends with exit code 1 and the message of a `StreamsError`, which names the remedy; a traceback would bury it.

    Any other exception is a fault of a program and is shown as Faust shows it.
    """

    _refused: StreamsError | None = None

    async def start(self) -> None:
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
                f"{exc.strerror}: another worker has that port, take one with --web-port"
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
