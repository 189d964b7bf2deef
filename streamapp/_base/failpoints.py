"""Failpoints: named places in the code where a test can make a process fail, for example at each step of a commit.

A failpoint does nothing unless an environment variable arms it. The process reads the variable when it imports this
module::

    STREAMAPP_FAILPOINT=offsets-committed:kill      # the first time the code gets there
    STREAMAPP_FAILPOINT=restore-batch:sleep=30:5    # the fifth time
    STREAMAPP_FAILPOINT=state-flushed:raise,...     # several, separated by commas

Actions: ``raise`` raises a `FailpointError`. ``sleep[=seconds]`` sleeps for 10 seconds by default. ``kill`` ends the
process as ``kill -9`` does. ``stop`` stops the process as ``kill -STOP`` does.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from streamapp.errors import ConfigError, StreamsError

__all__ = ["POINTS", "FailpointError", "arm", "hit"]

POINTS = (
    "batch-polled",  # records were fetched, nothing has been done with them
    "records-processed",  # records ran through the topology; state is buffered, outputs are sent but not acknowledged
    "state-flushed",  # caches have emitted, changelog records were handed to the producer
    "outputs-acknowledged",  # the brokers have every output and changelog record
    "offsets-sent",  # the offsets are part of the transaction, which is still open
    "offsets-committed",  # the transaction is committed
    "state-persisted",  # local state and its changelog offset are written
    "tasks-revoked",  # a rebalance took tasks away; their last commit is done
    "agents-sent",  # the brokers have all records that agents sent for a commit; the transaction is open
    "agents-offsets-sent",  # the offsets of the agents are part of the transaction, too
    "agents-committed",  # the transaction of the agents is committed
    "producer-sent",  # brokers have the records of a producer's transaction; its bookmark is not sent
    "producer-bookmarked",  # the bookmark is part of the producer's transaction, which is still open
    "producer-committed",  # the producer's transaction is committed; the log, or the outbox, still has its records
    "desk-written",  # letters of a replay and their marks are in a transaction, which is still open
    "desk-committed",  # the transaction of the dead-letter desk is committed; the desk has not said so
    "spill-written",  # records of a producer are in the local log; the callers do not know yet
    "spill-removed",  # the records of a committed transaction left the local log; the callers do not know yet
    "outbox-deleted",  # the outbox no longer has the rows of a committed transaction
    "consumer-handing-out",  # a consumer is about to call the handler
    "consumer-handled",  # the handler has come back; nothing is committed
    "consumer-saved",  # a database's transaction has the handler's work and the position, and is still open
    "consumer-sink-committed",  # the database's transaction is committed; the consumer does not know yet
    "consumer-committed",  # a consumer's positions are committed to Kafka
    "restore-batch",  # a batch of changelog records was applied
    "batch-stage",  # Spark is about to compute a stage of a batch; Kafka has no results of the batch
    "backfill-begun",  # the consumer group says that a backfill is under way; nothing is written
    "backfill-computed",  # Spark has computed every stage; nothing is written
    "backfill-rows-sent",  # records of a task and its progress are part of a transaction, which is still open
    "backfill-rows-committed",  # the transaction of these records is committed
    "backfill-written",  # everything is written, the group's offsets are not committed
    "backfill-ending",  # the topology's fingerprint is committed, the group's offsets are not
    "backfill-ended",  # the group's offsets are committed
    "stream-state-flushed",  # a micro-batch: records of a task were handed to the producer
    "stream-offsets-sent",  # the task's records and offsets are part of a transaction, which is still open
    "stream-committed",  # the task's transaction is committed; local state is as it was
    "stream-batch-done",  # all tasks of the micro-batch are done; Spark does not know yet
)


class FailpointError(StreamsError):
    """The error that a failpoint with the action ``raise`` raises."""


def _raise(name: str) -> None:
    raise FailpointError(f"failpoint {name} was armed with raise")


def _sleep(seconds: float, name: str) -> None:
    time.sleep(seconds)


_ACTIONS: dict[str, Callable[[str], None]] = {
    "raise": _raise,
    "kill": lambda name: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda name: os.kill(os.getpid(), signal.SIGSTOP),
}

_armed: dict[str, tuple[int, Callable[[str], None]]] = {}


def arm(setting: str) -> None:
    """Arms the failpoints of a setting in the form of ``STREAMAPP_FAILPOINT``, and disarms all others.

    An empty string disarms all. Raises `ConfigError` for unknown names and actions.
    """
    _armed.clear()
    for part in filter(None, setting.split(",")):
        name, _, rest = part.partition(":")
        action, _, count = rest.partition(":")
        kind, _, argument = action.partition("=")
        if name not in POINTS:
            raise ConfigError(
                f"STREAMAPP_FAILPOINT: no failpoint is called {name!r}; there are {', '.join(POINTS)}"
            )
        try:
            run = partial(_sleep, float(argument or 10)) if kind == "sleep" else _ACTIONS[kind]
            _armed[name] = (int(count or 1), run)
        except (KeyError, ValueError):
            raise ConfigError(
                f"STREAMAPP_FAILPOINT: {part!r} is not name:action[:count] with one of the actions "
                "raise, sleep[=seconds], kill, stop"
            ) from None


def hit(name: str) -> None:
    """Marks the place in the code where a test can make the process fail, for the failpoint ``name``.

    The call does nothing unless the failpoint is armed. The setting of an armed failpoint has an action, such as
    ``kill``, and a count n (default: 1). The n-th call with this name runs the action; later calls do nothing.
    """
    if not _armed:
        return
    entry = _armed.get(name)
    if entry is None:
        return
    count, action = entry
    if count > 1:
        _armed[name] = (count - 1, action)
    else:
        del _armed[name]
        action(name)


arm(os.environ.get("STREAMAPP_FAILPOINT", ""))
