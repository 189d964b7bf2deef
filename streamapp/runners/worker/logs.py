"""Filters of a worker's log, which remove Faust's lines about services, repetitions of Kafka clients, and secrets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from streamapp._base.repetitions import Repetitions
from streamapp._base.secrets import HIDDEN
from streamapp.errors import StreamsError

__all__ = [
    "CLIENT_LOGGER",
    "DETAIL",
    "Brief",
    "Crashes",
    "hide_secrets",
    "quieten_clients",
    "quieten_commands",
]

CLIENT_LOGGER = logging.getLogger("streamapp.kafka")
"""The logger of librdkafka's messages."""
DETAIL: dict[str, Any] = {"detail": True}
"""``extra`` of a line that `Brief` leaves out."""
_CHATTY = (
    CLIENT_LOGGER.name,
    f"{CLIENT_LOGGER.name}.producer",  # filters of a logger do not apply to its children
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
    "faust.assignor.partition_assignor",
)
_FAUST_TIMES = ("mode.timers", "streamapp.app")
"""The loggers of Faust's timers, and of Faust's application as the base class of `App`."""
_FAUST_THREADS = (
    "streamapp.runners.worker.control_plane",
    "streamapp.runners.worker.agents.consumer_thread",
    "faust.transport.drivers.aiokafka",
    "faust.web.drivers.aiohttp",
)
"""The loggers of the classes that run as a thread of Faust."""
_FRAMEWORKS = ("faust", "mode", "aiokafka", "asyncio", "aiohttp")
_SERVICE = re.compile(r"\[\^.*\]: ")
"""The beginning of a line by a service of Faust, or by a service of streamapp on top of Faust's classes."""
_SERVICE_LIFE = re.compile(_SERVICE.pattern + r"(Starting|Stopping|Restarting)\.\.\.")
"""Lines about the start and stop of an application's own service."""
_PASSING = re.compile(
    r"Failed to acquire (idempotence|transactional) PID .*: retrying"
    r"|Heartbeat failed for group .* because it is rebalancing"
    r"|Missing sensor state for rebalance"
    r"|Timer recovery is overlapping"
)
"""Warnings that need no action. librdkafka says the first on a cluster whose coordinators have just started, and tries
again. aiokafka says the second when another worker comes or goes. Faust says the third when one rebalance follows
another, and the fourth when a look at the tables of agents takes more than 0.2 s."""
_SOON_OVER = re.compile(
    r"Group Coordinator Request failed: .*GroupCoordinatorNotAvailableError"
    r"|Topic \S+ not found in cluster metadata"
    r"|Failed fetch offsets from \S+: .*NotLeaderForPartitionError"
    r"|Marking the coordinator dead"
    r"|Ignoring missing topic: "
)
"""Errors and warnings of a first start, after which aiokafka tries again. On a new cluster, brokers first create the
topic of committed offsets. Brokers may not know a topic that the worker has just created, such as the changelog of a
table. Or they know the topic, and its partitions have no leader yet. `group.ask_while_missing` warns of topics that
stay away."""
_SOON_SECONDS = 10.0
_NO_TURN = "Thread keepalive is not responding..."
"""The end of a line by a thread of Faust that has run nothing for 3 s. The thread looks every second."""
_NO_TURN_REMEDY = (
    "the thread has had no turn for 3 s, because this machine or the process is too busy. If this line comes again and "
    "again, run fewer processes on this machine, or start more workers on other machines"
)
_ENDS = "]: Error: %r"
"""The end of Faust's line about the exception that ends a command. The next line, of the stop, repeats it."""
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
    """Leaves only one line about a crash: the worker's for a `StreamsError`, or else Faust's, with the traceback.

    Leaves no line about exceptions of the types ``no_crashes``, such as that of an agent whose record has moved.
    """

    def __init__(self, *no_crashes: type[BaseException]) -> None:
        super().__init__()
        self._unsaid: tuple[type[BaseException], ...] = (StreamsError, *no_crashes)

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
        return not isinstance(reason, self._unsaid)


class _CommandErrors(logging.Filter):
    """Leaves one line, without a traceback, about a `StreamsError` that ends a command of Faust."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, StreamsError):
            return True
        record.args, record.exc_info = (error,), None
        ends, record.msg = str(record.msg).endswith(_ENDS), "%s"
        return ends


_COMMAND_ERRORS = _CommandErrors()


class _Passing(logging.Filter):
    """Hides warnings that need no action (`_PASSING`), except in the debug log.

    Hides the errors and warnings of a first start (`_SOON_OVER`), too, while the process is young. A worker whose
    brokers stay away logs these errors later.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno not in (logging.WARNING, logging.ERROR):
            return True
        said, young = record.getMessage(), self._clock() - self._began < _SOON_SECONDS
        passing = record.levelno == logging.WARNING and _PASSING.search(said)
        hidden = passing or (young and _SOON_OVER.search(said))
        return not hidden or logging.getLogger().isEnabledFor(logging.DEBUG)


class _NoTurn(logging.Filter):
    """Says only once in a while that a thread of Faust has no turn, and adds the next step."""

    def __init__(self) -> None:
        super().__init__()
        self._repetitions = Repetitions()

    def filter(self, record: logging.LogRecord) -> bool:
        said = str(record.msg)
        if not said.endswith(_NO_TURN):
            return True
        record.msg = f"{said.removesuffix('...')}: {_NO_TURN_REMEDY}"
        return self._repetitions.filter(record)


class _NoLogins(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                f"{type(arg).__name__}({HIDDEN})" if type(arg).__name__.startswith(_LOGIN) else arg
                for arg in record.args
            )
        return True


def quieten_clients() -> None:
    """Filters the loggers of all Kafka clients of this process, of Faust's timing and of Faust's threads. One call is
    enough."""
    repetitions, passing, no_turn = Repetitions(), _Passing(), _NoTurn()
    for name in _FAUST_THREADS:
        logging.getLogger(name).addFilter(no_turn)
    for name in _FAUST_TIMES:
        logging.getLogger(name).addFilter(passing)
    for name in _CHATTY:
        logging.getLogger(name).addFilter(passing)
        logging.getLogger(name).addFilter(repetitions)


def quieten_commands() -> None:
    """Filters the logger of Faust's commands other than ``worker``, such as ``faust send``."""
    logging.getLogger("mode.worker").addFilter(_COMMAND_ERRORS)


def hide_secrets() -> None:
    """Keeps passwords and tokens out of the debug log of aiokafka, which shows each request."""
    logging.getLogger("aiokafka.conn").addFilter(_NoLogins())
