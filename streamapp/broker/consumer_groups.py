"""Consumer groups from outside: members, committed offsets, and commits for a group without members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base.counted import counted
from streamapp._base.java_hash import text_hash
from streamapp.broker.consumer import committed_metadata
from streamapp.broker.librdkafka import opening
from streamapp.broker.requests import (
    LastingAdmin,
    ask,
    broker_error,
    committed_of_stranger,
    until_coordinated,
)
from streamapp.errors import BrokerError, StreamsError
from streamapp.records import TopicPartition

__all__ = [
    "GroupLook",
    "Member",
    "check_at_rest",
    "commit_for",
    "look_at_group",
    "offsets_partition",
    "read_committed_offsets",
]

_SECONDS = 30.0
_EMPTY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_OCCUPIED = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.NON_EMPTY_GROUP,
)


class Member(NamedTuple):
    """One member of a group, with its partitions."""

    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()


class GroupLook(NamedTuple):
    """The state of a group at one moment.

    ``assignor`` is "" for a group without members, "stream" for Kafka Streams, and "faust" for workers and Faust.
    """

    name: str
    state: str
    assignor: str
    members: tuple[Member, ...]

    @property
    def at_rest(self) -> bool:
        return self.state in ("empty", "dead")


def look_at_group(admin: LastingAdmin, group: str) -> GroupLook:
    """The members and the state of a group; a group that does not exist is "dead". Raises `BrokerError`."""

    def look() -> GroupLook:
        ((_, answer),) = ask(admin.describe_consumer_groups, [group], seconds=_SECONDS).items()
        found = answer.result()
        members = tuple(
            Member(
                each.client_id,
                each.host,
                tuple(
                    TopicPartition(tp.topic, tp.partition)
                    for tp in (each.assignment.topic_partitions if each.assignment else ())
                ),
            )
            for each in found.members
        )
        return GroupLook(group, found.state.name.lower(), found.partition_assignor or "", members)

    try:
        return until_coordinated(look, seconds=_SECONDS)
    except KafkaException as exc:
        raise _refused("members", group, exc) from exc


def check_at_rest(admin: LastingAdmin, group: str, session_timeout_ms: int | None = None) -> None:
    """Raises `StreamsError` if the group has members. Their next commits would replace offsets that a command writes.

    Raises `BrokerError` if Kafka does not answer.
    """
    found = look_at_group(admin, group)
    if found.at_rest:
        return
    members = ", ".join(sorted(f"{member.client_id} on {member.host}" for member in found.members)) or (
        "they join just now"
    )
    wait = (
        "its session time-out" if session_timeout_ms is None else f"another {session_timeout_ms / 1000:g} s"
    )
    raise StreamsError(
        f"the group {group} has {counted(len(found.members), 'member')} ({members}). Stop them first; a killed "
        f"member, or a stopped one with a group_instance_id, stays in the group for {wait}"
    )


def read_committed_offsets(
    client: Mapping[str, Any],
    group: str,
    partitions: Collection[TopicPartition],
    *,
    stable: bool = True,
    seconds: float = _SECONDS,
) -> dict[TopicPartition, tuple[int, str]]:
    """The committed offset and its metadata of each of these partitions for which the group has a commit.

    ``client`` are librdkafka's settings for the cluster. If ``stable``, and a transaction is about to commit offsets,
    the answer waits for the end of the transaction (KIP-447). Metadata may have a few more characters at the end
    (`committed_metadata`). Raises `BrokerError`.

    A consumer that never joins the group asks. An admin client would crash the process if the coordinator of the group
    is loading or has moved (librdkafka#5040).
    """
    if not partitions:
        return {}
    level = "read_committed" if stable else "read_uncommitted"
    settings = {
        **client,
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": level,
        "log_level": 0,  # the exception has the error
    }
    try:
        with opening(settings) as current:
            consumer = Consumer(current)
        try:
            found = committed_of_stranger(consumer, partitions, seconds=seconds)
        finally:
            consumer.close()
    except KafkaException as exc:
        if stable and exc.args[0].code() == KafkaError._TIMED_OUT:
            raise BrokerError(
                f"brokers do not tell the committed offsets of the group {group} within {seconds:g} s. A transaction "
                f"of the group may not have ended. Try again; if this lasts, see `streamapp doctor --group {group}`"
            ) from exc
        raise _refused("committed offsets", group, exc) from exc
    return {
        TopicPartition(entry.topic, entry.partition): (entry.offset, committed_metadata(entry))
        for entry in found
        if entry.offset >= 0
    }


def commit_for(
    admin: LastingAdmin, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> None:
    """Commits offsets for a group without members. Kafka's own tools write no metadata.

    Raises `StreamsError` if a member has joined meanwhile, because brokers then refuse the commit. Raises `BrokerError`
    for all other errors.
    """
    if not offsets:
        return

    def send() -> None:
        entries = [KafkaPartition(*tp, offset, metadata=metadata) for tp, offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(group, entries)]
        ((_, answer),) = ask(admin.alter_consumer_group_offsets, asked, seconds=_SECONDS).items()
        _raise_first(entry.error for entry in answer.result().topic_partitions)

    try:
        until_coordinated(send, seconds=_SECONDS)
    except KafkaException as exc:
        if exc.args[0].code() in _OCCUPIED:
            raise StreamsError(
                f"a member has joined the group {group}, so the brokers refuse the new offsets. "
                "Stop all members, and repeat this"
            ) from exc
        raise _refused("new offsets", group, exc) from exc


def _raise_first(errors: Iterable[KafkaError | None]) -> None:
    for error in errors:
        if error is not None:
            raise KafkaException(error)


def _refused(what: str, group: str, exc: KafkaException) -> BrokerError:
    error: KafkaError = exc.args[0]
    text = f"the request about the {what} of the group {group} failed: {error.str()}"
    return broker_error(
        text, error, {KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant this client READ on the group"}
    )


def offsets_partition(group: str, partitions: int) -> int:
    """The partition with the offsets of a group, if the topic ``__consumer_offsets`` has ``partitions`` partitions.

    >>> offsets_partition("flights", 50)
    9
    """
    code = text_hash(group)
    return (code if code < 1 << 31 else (1 << 32) - code) % (1 << 31) % partitions
