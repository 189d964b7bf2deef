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

__all__ = ["TransactionAborted", "commit_transaction", "group_metadata", "open_transactions"]

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
    any other error. In both cases nothing is committed, and the producer has
    come to its end.
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


def open_transactions(producer: Producer, timeout: float) -> None:
    """Makes a new producer ready for transactions, which ends those of an earlier one of the same name.

    Raises `BrokerError` when the brokers do not answer.
    """
    try:
        _retrying(lambda: producer.init_transactions(timeout))
    except KafkaException as exc:
        raise BrokerError(f"transactions are not possible: {exc.args[0].str()}") from exc


def _retrying(call: Callable[[], object]) -> None:
    for attempt in range(5):
        try:
            call()
            return
        except KafkaException as exc:
            if attempt == 4 or not exc.args[0].retriable():
                raise
