"""The one place that knows how librdkafka writes a consumer group's metadata as bytes.

Offsets are committed inside a producer's transaction, and the broker refuses them when they come from a member
that was replaced (KIP-447). librdkafka takes the proof of membership as opaque
bytes that its own group consumer hands out. Our member of the group is Faust's, so the bytes are made here.
The format is private to librdkafka: `tests/worker/test_transactions.py` compares it with what the installed
version writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer, TopicPartition

from streamapp.errors import BrokerError
from streamapp.runners.worker.membership import Member, StaleMemberError

__all__ = ["TransactionAborted", "commit_transaction", "group_metadata", "roll_back"]

_STALE = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")


class TransactionAborted(BrokerError):
    """The transaction was rolled back: everything since the last commit has to be done again."""


def group_metadata(group: str, member: Member) -> bytes:
    """Proof of membership in a consumer group for `Producer.send_offsets_to_transaction`."""
    return b"".join(
        (
            b"CGMDv2:",
            struct.pack("<i", member.generation),
            group.encode(),
            b"\0",
            member.member_id.encode(),
            b"\0",
            b"\1",  # no group.instance.id follows
        )
    )


def commit_transaction(
    producer: Producer,
    offsets: list[TopicPartition],
    group: str,
    member: Member,
    timeout: float,
    offsets_sent: Callable[[], None],
) -> None:
    """Adds the offsets to the open transaction and commits it; calls ``offsets_sent`` between the two.

    Raises `StaleMemberError` when the group has gone on without this member and `TransactionAborted` after
    any other error. In both cases nothing is committed, and `roll_back` has to come next.
    """
    try:
        _retrying(
            lambda: producer.send_offsets_to_transaction(offsets, group_metadata(group, member), timeout)
        )
        offsets_sent()
        _retrying(lambda: producer.commit_transaction(timeout))
    except KafkaException as exc:
        error = exc.args[0]
        if error.name() in _STALE:
            raise StaleMemberError(f"the group refused the offsets of {member}: {error.str()}") from exc
        raise TransactionAborted(f"the transaction was rolled back: {error.str()}") from exc


def roll_back(producer: Producer, timeout: float) -> bool:
    """Rolls the open transaction back. False: this producer has come to its end (the broker gave its transaction up,
    or another one has taken its place), make a new one."""
    try:
        _retrying(lambda: producer.abort_transaction(timeout))
    except KafkaException as exc:
        if exc.args[0].fatal():
            return False
        raise
    return True


def _retrying(call: Callable[[], object]) -> None:
    for attempt in range(5):
        try:
            call()
            return
        except KafkaException as exc:
            if attempt == 4 or not exc.args[0].retriable():
                raise
