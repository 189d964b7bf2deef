"""Calls into a transactional producer of librdkafka, which keeps neither its time-outs nor its promises in every outage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from confluent_kafka import KafkaException

from streamapp.errors import BrokerError

__all__ = ["NotBack", "Transacting", "abandon_transaction", "in_time", "open_transactions", "retrying"]

_PAUSE_SECONDS = 0.05
_MARGIN_SECONDS = 1.0
_ABANDON_SECONDS = 0.2


class Transacting(Protocol):
    """The calls of a producer that begin and give up transactions."""

    def init_transactions(self, timeout: float, /) -> object: ...

    def abort_transaction(self, timeout: float, /) -> object: ...


class NotBack(Exception):
    """A call has not come back within so many seconds. Nothing may touch its client any more."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"librdkafka has not come back within {seconds:.0f} s")
        self.seconds = seconds


def abandon_transaction(producer: Transacting) -> None:
    """Makes a producer ready to be thrown away in the middle of a transaction, which is ended if brokers answer at once.

    librdkafka ends the process with an assertion when its producer is destroyed while it announces partitions of a transaction
    (`rd_kafka_txn_register_partitions`). It does not announce any once it was told to abort.
    """
    with suppress(KafkaException):  # the next producer of the name ends it
        producer.abort_transaction(_ABANDON_SECONDS)


def open_transactions(producer: Transacting, timeout: float) -> None:
    """Makes a new producer ready for transactions, which ends those of an earlier one of the same name.

    Raises `BrokerError` when the brokers do not answer within ``timeout`` seconds.
    """
    try:
        retrying(lambda left: producer.init_transactions(left), timeout)
    except KafkaException as exc:
        raise BrokerError(f"transactions are not possible: {exc.args[0].str()}") from exc


def in_time(call: Callable[[], None], seconds: float, late: Callable[[], None]) -> None:
    """Calls in a thread of its own, which is left behind when the call does not come back, and then does what ``late`` says.

    librdkafka was seen not to keep its time-out after a broker was restarted: the call came back minutes later, when the
    broker was restarted once more. The thread keeps the producer alive: one must not be destroyed in the middle of a call.
    """
    outcome: list[BaseException | None] = []
    left_behind = threading.Event()

    def run() -> None:
        try:
            call()
            outcome.append(None)
        except BaseException as exc:
            outcome.append(exc)
        if left_behind.is_set():
            late()

    thread = threading.Thread(target=run, name="in-time", daemon=True)
    thread.start()
    thread.join(seconds + _MARGIN_SECONDS)
    if not outcome:
        left_behind.set()
        raise NotBack(seconds)
    if outcome[0] is not None:
        raise outcome[0]


def retrying(call: Callable[[float], object], timeout: float) -> None:
    """Calls with the seconds that are left, again after errors that may pass."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            call(max(0.0, deadline - time.monotonic()))
            return
        except KafkaException as exc:
            if not exc.args[0].retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
