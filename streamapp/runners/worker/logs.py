"""A worker's log without Faust's lines about its parts, repetitions of Kafka's clients, and secrets."""

from __future__ import annotations

import logging
import re
from typing import Any

from streamapp._base.secrets import HIDDEN
from streamapp.errors import StreamsError
from streamapp.runners.repetitions import Repetitions

__all__ = ["CLIENT_LOGGER", "DETAIL", "Brief", "Crashes", "hide_secrets", "quieten_clients"]

CLIENT_LOGGER = logging.getLogger("streamapp.kafka")
"""Where librdkafka logs to."""
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
"""A service of Faust speaks; also one of ours that Faust's classes are the base of."""
_SERVICE_LIFE = re.compile(_SERVICE.pattern + r"(Starting|Stopping|Restarting)\.\.\.")
"""Messages that an application's own service need not log."""
_PASSING = re.compile(r"Failed to acquire (idempotence|transactional) PID .*: retrying")
"""A warning of trouble that librdkafka mends by itself, on a cluster whose coordinators have just started."""
_CRASHED = "Crashed reason=%r"
_RERAISING = "We experienced a crash! Reraising original exception..."
_LOGIN = "Sasl"
"""Requests and responses of logins, in the debug log of aiokafka."""


class Brief(logging.Filter):
    """Leaves out frameworks' lines below a warning, and details of the worker, for a `worker` without ``-l``."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            return True
        root, said = record.name.partition(".")[0], str(record.msg)
        if root in _FRAMEWORKS or hasattr(record, "detail"):
            return False
        return not (_SERVICE if root == __name__.partition(".")[0] else _SERVICE_LIFE).match(said)


class Crashes(logging.Filter):
    """Has the reason of a crash said once: a `StreamsError` by the worker, another exception by Faust, with traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = str(record.msg)
        if said.endswith(_RERAISING):
            return False
        if not said.endswith(_CRASHED) or not isinstance(record.args, tuple) or not record.args:
            return True
        reason = record.args[0]
        # Faust asks for the traceback where no exception is being handled ("NoneType: None").
        if isinstance(reason, BaseException):
            record.exc_info = (type(reason), reason, reason.__traceback__)
        return not isinstance(reason, StreamsError)


class _Passing(logging.Filter):
    """Makes a warning of a passing trouble a line of the debug log."""

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
    """Has every Kafka client of this process pass through one `Repetitions`; once is enough."""
    repetitions = Repetitions()
    CLIENT_LOGGER.addFilter(_Passing())
    for name in _CHATTY:
        logging.getLogger(name).addFilter(repetitions)


def hide_secrets() -> None:
    """Keeps passwords and tokens out of the debug log of aiokafka, which shows each request."""
    logging.getLogger("aiokafka.conn").addFilter(_NoLogins())
