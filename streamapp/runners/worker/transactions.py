"""Commits offsets inside a producer's transaction, with a time limit for each step.

The limits are needed because a client of librdkafka may wait for ever for an answer that a new client would get at
once. Such a client has forgotten all brokers while one was away (librdkafka#5301), or believes that its coordinator is
gone (librdkafka#5511).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.requests import broker_error
from streamapp.broker.transacting import NotBack, abandon_transaction, in_time, retrying
from streamapp.engine.runner_ports import Position
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import GRANTS
from streamapp.runners.worker.membership import Member, StaleMemberError
from streamapp.runners.worker.sender import Sender

__all__ = [
    "OffsetsNotAnswered",
    "ResultsRefused",
    "TransactionAborted",
    "commit_transaction",
    "transaction_failed",
]

_LOOK_SECONDS = 5.0
_LOST_SECONDS = 20.0
"""Twice the longest time that librdkafka waits before it connects again (``reconnect.backoff.max.ms``)."""
_STALE = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


class TransactionAborted(BrokerError):
    """The transaction was rolled back, or nobody knows if it was committed.

    The worker goes back to the last commit that brokers have, and repeats all later work.
    """


class ResultsRefused(TransactionAborted):
    """Brokers refused results, so the worker rolls back. When the results are sent again, `Refusals.find` knows
    them."""


class OffsetsNotAnswered(TransactionAborted):
    """A call into the producer has not returned in time.

    The call is still under way, so nobody may use the producer.
    """


def transaction_failed(what: str, error: KafkaError) -> BrokerError:
    """The exception for a transaction that has failed; ``what`` begins its text.

    `TransactionAborted` means that a new transaction can continue at the last commit. If a right is missing, each new
    transaction would fail, too, so the exception is an `AuthorizationError` with the right.

    >>> transaction_failed("the transaction was rolled back", KafkaError(KafkaError.REQUEST_TIMED_OUT))
    TransactionAborted('the transaction was rolled back: Broker: Request timed out')
    """
    text = f"{what}: {error.str()}"
    found = broker_error(text, error, GRANTS)
    return found if isinstance(found, AuthorizationError) else TransactionAborted(text)


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
    """Adds the offsets to the open transaction, calls ``offsets_sent``, and commits the transaction.

    Raises `StaleMemberError` if the group has given the partitions to other members, and `AuthorizationError` if a
    right is missing. Raises `TransactionAborted` after any other error, and if a step exceeds its time-out in seconds.
    If brokers answer other requests for 20 s but not the commit, the wait for the commit ends with this error, too.

    After any of these errors, the producer cannot be used again. The next producer with the same transactional id ends
    the transaction. The group's committed offsets then show if the transaction was committed.
    """
    try:
        _send_offsets(producer, offsets, group, member, offsets_timeout)
        offsets_sent()
        _commit(producer, commit_timeout, brokers_answer)
    except KafkaException as exc:
        error = exc.args[0]
        if error.name() in _STALE:
            raise StaleMemberError(f"the group refused the offsets of {member}: {error.str()}") from exc
        raise transaction_failed("the transaction was rolled back", error) from exc


def _send_offsets(
    producer: Sender, offsets: Mapping[TopicPartition, Position], group: str, member: Member, timeout: float
) -> None:
    try:
        in_time(
            lambda: retrying(lambda left: producer.send_offsets(offsets, group, member, left), timeout),
            timeout,
            lambda: abandon_transaction(producer),
        )
    except NotBack as exc:
        raise OffsetsNotAnswered(
            f"brokers have not answered the commit of the offsets within {exc.seconds:.0f} s"
        ) from None


def _commit(producer: Sender, timeout: float, brokers_answer: Callable[[], bool]) -> None:
    """Commits. While no broker answers, waits up to ``timeout`` seconds, because the commit may succeed when they are
    back.

    If brokers answer other requests for `_LOST_SECONDS` but not the commit, the client will never get an answer, and
    the wait ends.
    """
    deadline = time.monotonic() + timeout
    answer_since: float | None = None
    while True:
        now = time.monotonic()
        try:
            retrying(producer.commit_transaction, min(_LOOK_SECONDS, deadline - now))
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
