"""Calls into a transactional producer of librdkafka, with protection against calls that never return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from streamapp.errors import BrokerError

__all__ = ["NotBack", "Transacting", "abandon_transaction", "in_time", "open_transactions", "retrying"]

_PAUSE_SECONDS = 0.05
_LEAST_SECONDS = 1.0
"""The least time-out of a call. With less, a commit that librdkafka resumes may fail before its first step. The commit
then counts as ended, although its request is still under way. When brokers answer the request, an assertion
of librdkafka ends the process (``Invalid transaction state transition``)."""
_MARGIN_SECONDS = 1.0 + _LEAST_SECONDS
_ABANDON_SECONDS = 0.2
WRITE_ON_ID = "Grant this client WRITE on its transactional id: `streamapp acls` lists all rights"
_ADVICE = {
    KafkaError._TIMED_OUT: "Check that enough brokers run: a new cluster keeps no transactions before it has as many "
    "brokers as their transaction.state.log.replication.factor (3 by default). Later, "
    "transaction.state.log.min.isr brokers have to run",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: WRITE_ON_ID,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Make transaction_timeout_ms at most transaction.max.timeout.ms of "
    "the brokers",
}
"""The advice for errors of a producer that begins."""


class Transacting(Protocol):
    """The methods of a producer that this module uses, to begin and abort transactions."""

    def init_transactions(self, timeout: float, /) -> object: ...

    def abort_transaction(self, timeout: float, /) -> object: ...


class NotBack(Exception):
    """A call into librdkafka has not returned in time.

    Its client is still inside the call, so nobody may use it again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"librdkafka has not come back within {seconds:.0f} s")
        self.seconds = seconds


def abandon_transaction(producer: Transacting) -> bool:
    """Makes a producer with an open transaction safe to destroy. If brokers answer at once, also aborts the
    transaction.

    librdkafka ends the process with an assertion if a producer is destroyed while it announces partitions of a
    transaction (`rd_kafka_txn_register_partitions`). After a call to abort, a producer announces no partitions.

    Returns False if librdkafka does not come back within about two seconds. Nobody may use the producer afterwards. The
    thread of the call keeps the producer alive until the call returns.
    """
    try:
        in_time(lambda: producer.abort_transaction(_ABANDON_SECONDS), _ABANDON_SECONDS, lambda: None)
    except NotBack:
        return False
    except KafkaException:  # the next producer with this transactional id ends the transaction
        pass
    return True


def open_transactions(producer: Transacting, timeout: float) -> None:
    """Makes a new producer ready for transactions, and fences earlier producers with the same transactional id.

    Raises `BrokerError` if brokers refuse the producer or do not answer within ``timeout`` seconds, or if librdkafka
    does not come back.
    """
    try:
        in_time(lambda: retrying(producer.init_transactions, timeout), timeout, lambda: None)
    except KafkaException as exc:
        error: KafkaError = exc.args[0]
        advice = _ADVICE.get(error.code(), "Check that all brokers run")
        raise BrokerError(
            f"transactions are not possible: {error.str().removesuffix('.')}. {advice}"
        ) from exc
    except NotBack as exc:
        raise BrokerError(f"transactions are not possible: {exc}") from None


def in_time(call: Callable[[], object], seconds: float, late: Callable[[], object]) -> None:
    """Runs ``call`` in a thread, and raises `NotBack` if it has not returned two seconds after ``seconds``.

    librdkafka does not always keep its time-outs: after a restart of a broker, a call may hang for minutes. If the
    clock is set back by an hour, a call that waits may wait for an hour longer. After `NotBack`, the thread goes on
    alone, and calls ``late`` when the call returns. The thread keeps the producer alive until then, because a producer
    must not be destroyed during a call.
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
    """Calls ``call(seconds left)``, and repeats the call after errors that librdkafka calls retriable, until
    ``timeout``.

    Each call gets at least a second, so the last one may end a second late.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            call(max(_LEAST_SECONDS, deadline - time.monotonic()))
            return
        except KafkaException as exc:
            if not exc.args[0].retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
