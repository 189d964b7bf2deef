"""Commits of the offsets inside a producer's transaction, in time.

A client of librdkafka may wait for an answer that will not come, while a new one would be answered at once: it has forgotten all brokers
while one of them was away (librdkafka#5301), or its coordinator was taken for gone (librdkafka#5511).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaException

from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.worker.membership import Member, StaleMemberError
from streamapp.runners.worker.sender import Sender

__all__ = [
    "OffsetsNotAnswered",
    "TransactionAborted",
    "abandon_transaction",
    "commit_transaction",
    "open_transactions",
]

_PAUSE_SECONDS = 0.05
_MARGIN_SECONDS = 1.0
_LOOK_SECONDS = 5.0
_LOST_SECONDS = 20.0
"""Twice as long as librdkafka waits at most before it connects again (``reconnect.backoff.max.ms``)."""
_ABANDON_SECONDS = 0.2
_STALE = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


class TransactionAborted(BrokerError):
    """The transaction was rolled back: everything since the last commit has to be done again."""


class OffsetsNotAnswered(TransactionAborted):
    """A call into the producer has not come back, so the producer must not be touched any more."""


def commit_transaction(
    producer: Sender,
    offsets: Mapping[TopicPartition, Position],
    group: str,
    member: Member,
    offsets_timeout: float,
    commit_timeout: float,
    offsets_sent: Callable[[], None],
    brokers_answer: Callable[[], bool],
) -> None:
    """Adds the offsets to the open transaction and commits it; calls ``offsets_sent`` between the two.

    Raises `StaleMemberError` when the group has gone on without this member and `TransactionAborted` after any other
    error, and when a step is not done within its seconds, or the commit is not although brokers answer others all the time. In each
    case the producer has come to its end; the next one of its name finds out whether anything was committed.
    """
    try:
        _in_time(
            lambda: _retrying(
                lambda left: producer.send_offsets(offsets, group, member, left), offsets_timeout
            ),
            offsets_timeout + _MARGIN_SECONDS,
            lambda: abandon_transaction(producer),
        )
        offsets_sent()
        _commit(producer, commit_timeout, brokers_answer)
    except KafkaException as exc:
        error = exc.args[0]
        if error.name() in _STALE:
            raise StaleMemberError(f"the group refused the offsets of {member}: {error.str()}") from exc
        raise TransactionAborted(f"the transaction was rolled back: {error.str()}") from exc


def _commit(producer: Sender, timeout: float, brokers_answer: Callable[[], bool]) -> None:
    """As long as no broker answers, a commit may still be done when they are back. A client that brokers which answer others have not
    answered for so long has lost its way."""
    deadline = time.monotonic() + timeout
    answer_since: float | None = None
    while True:
        now = time.monotonic()
        try:
            _retrying(producer.commit_transaction, min(_LOOK_SECONDS, max(0.0, deadline - now)))
            return
        except KafkaException as exc:
            if not exc.args[0].retriable() or time.monotonic() >= deadline:
                raise
        if not brokers_answer():
            answer_since = None
        elif answer_since is None:
            answer_since = now
        elif now - answer_since > _LOST_SECONDS:
            raise TransactionAborted(
                f"the commit was not answered for {now - answer_since:.0f} s by brokers that answer other requests"
            )


def abandon_transaction(producer: Sender) -> None:
    """Makes a producer ready to be thrown away in the middle of a transaction, which is ended if brokers answer at once.

    librdkafka ends the process with an assertion when its producer is destroyed while it announces partitions of a transaction
    (`rd_kafka_txn_register_partitions`). It does not announce any once it was told to abort.
    """
    with suppress(KafkaException):  # the next producer of the name ends it
        producer.abort_transaction(_ABANDON_SECONDS)


def open_transactions(producer: Sender, timeout: float) -> None:
    """Makes a new producer ready for transactions, which ends those of an earlier one of the same name.

    Raises `BrokerError` when the brokers do not answer within ``timeout`` seconds.
    """
    try:
        _retrying(lambda left: producer.init_transactions(left), timeout)
    except KafkaException as exc:
        raise BrokerError(f"transactions are not possible: {exc.args[0].str()}") from exc


def _in_time(call: Callable[[], None], seconds: float, late: Callable[[], None]) -> None:
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

    thread = threading.Thread(target=run, name="offsets", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        left_behind.set()
        raise OffsetsNotAnswered(f"the offsets were not answered within {seconds:.0f} s")
    if outcome[0] is not None:
        raise outcome[0]


def _retrying(call: Callable[[float], object], timeout: float) -> None:
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
