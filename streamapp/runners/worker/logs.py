"""Filters of a worker's log, which remove Faust's lines about services, repetitions of Kafka clients, and secrets."""

from __future__ import annotations

import logging
import re
from typing import Any

from streamapp._base.repetitions import Repetitions
from streamapp._base.secrets import HIDDEN
from streamapp.errors import StreamsError

__all__ = ["CLIENT_LOGGER", "DETAIL", "Brief", "Crashes", "hide_secrets", "quieten_clients"]

CLIENT_LOGGER = logging.getLogger("streamapp.kafka")
"""The logger of librdkafka's messages."""
DETAIL: dict[str, Any] = {"detail": True}
"""``extra`` of a line that `Brief` leaves out."""
_CHATTY = (
    CLIENT_LOGGER.name,
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)
_FRAMEWORKS = ("faust", "mode", "aiokafka", "asyncio", "aiohttp")
_SERVICE = re.compile(r"\[\^.*\]: ")
"""The beginning of a line by a service of Faust, or by a service of streamapp on top of Faust's classes."""
_SERVICE_LIFE = re.compile(_SERVICE.pattern + r"(Starting|Stopping|Restarting)\.\.\.")
"""Lines about the start and stop of an application's own service."""
_PASSING = re.compile(
    r"Failed to acquire (idempotence|transactional) PID .*: retrying"
    r"|Heartbeat failed for group .* because it is rebalancing"
)
"""Warnings that need no action. librdkafka says the first on a cluster whose coordinators have just started, and tries
again. aiokafka says the second when another worker comes or goes."""
_CRASHED = "Crashed reason=%r"
_RERAISING = "We experienced a crash! Reraising original exception..."
_LOGIN = "Sasl"
"""The first letters of requests and responses of logins, in the debug log of aiokafka."""


class Brief(logging.Filter):
    """Hides lines of a lower level than WARNING that are not for users, if the command `worker` has no ``-l``.

    Hidden are lines of frameworks, of streamapp's own services, and lines that are marked as `DETAIL`. Lines about the
    start and stop of the application's services are hidden, too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            return True
        root, said = record.name.partition(".")[0], str(record.msg)
        if root in _FRAMEWORKS or hasattr(record, "detail"):
            return False
        return not (_SERVICE if root == __name__.partition(".")[0] else _SERVICE_LIFE).match(said)


class Crashes(logging.Filter):
    """Leaves only one line about a crash: the worker's for a `StreamsError`, or else Faust's, with the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = str(record.msg)
        if said.endswith(_RERAISING):
            return False
        if not said.endswith(_CRASHED) or not isinstance(record.args, tuple) or not record.args:
            return True
        reason = record.args[0]
        # Faust logs outside the exception's handler, where the traceback would be "NoneType: None".
        if isinstance(reason, BaseException):
            record.exc_info = (type(reason), reason, reason.__traceback__)
        return not isinstance(reason, StreamsError)


class _Passing(logging.Filter):
    """Hides warnings that need no action (`_PASSING`), except in the debug log."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.WARNING and _PASSING.search(record.getMessage()):
            return logging.getLogger().isEnabledFor(logging.DEBUG)
        return True


class _NoLogins(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                f"{type(arg).__name__}({HIDDEN})" if type(arg).__name__.startswith(_LOGIN) else arg
                for arg in record.args
            )
        return True


def quieten_clients() -> None:
    """Filters the loggers of all Kafka clients of this process. One call is enough."""
    repetitions, passing = Repetitions(), _Passing()
    for name in _CHATTY:
        logging.getLogger(name).addFilter(passing)
        logging.getLogger(name).addFilter(repetitions)


def hide_secrets() -> None:
    """Keeps passwords and tokens out of the debug log of aiokafka, which shows each request."""
    logging.getLogger("aiokafka.conn").addFilter(_NoLogins())
