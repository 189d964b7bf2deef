"""Joins a consumer group after members of another kind have left, and stops a join when the worker stops.

Topics that brokers do not tell yet are asked for again.

Members of another kind belong, for example, to the Kafka Streams application that this application replaces.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka.errors import Cancelled, InconsistentGroupProtocolError, KafkaError, UnknownError
from aiokafka.protocol.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka import KafkaError as KafkaCode

from streamapp._base.counted import counted
from streamapp.broker.requests import LastingAdmin, ask, not_shown
from streamapp.errors import BrokerError, StreamsError
from streamapp.runners.worker.clients import GRANTS

__all__ = [
    "ask_while_missing",
    "close_while_joining",
    "listen_to_heartbeats",
    "missing_topics",
    "wait_until_free",
    "watch_membership",
]

logger: logging.Logger = logging.getLogger(__name__)

_OURS = "faust"
"""The name of Faust's assignor. Kafka Streams' assignor has the name "stream"."""
_EMPTY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_JOINING = (JoinGroupRequest, SyncGroupRequest)
_LEAVE_SECONDS = 5.0
_TELL_AFTER = 10
"""The number of questions after which the log names the topics that are still missing."""
_NO_REASON = (
    "Brokers have failed at the request, and their answer has no reason. Find the reason in the log of the broker that "
    "coordinates the group (`streamapp doctor` looks for brokers in trouble). Then start this worker again"
)
"""The advice for Kafka's error -1, which aiokafka gives as the text of another exception."""


def wait_until_free(group: str, admin: LastingAdmin, *, patience: float = 120.0, pause: float = 1.0) -> None:
    """Returns when the group has no members of another kind, which would have another assignor.

    Kafka lets only members with a common assignor into a group, and refuses all others. A closed Kafka Streams
    application stays a member until its session times out (by default after 45 s), unless it leaves the group
    explicitly. Raises `BrokerError` when members of another kind are still there after ``patience`` seconds. If brokers
    do not say who the members are, the function returns, because the join will report the error.
    """
    deadline = time.monotonic() + patience
    told = False
    while strangers := _strangers(group, admin):
        listed = f"{counted(len(strangers), 'member')} of another kind ({', '.join(sorted(set(strangers)))})"
        if time.monotonic() > deadline:
            raise BrokerError(
                f"the consumer group {group} still has {listed}. Stop all instances of the other application before "
                "this worker starts. To run both applications, give this one an application_id of its own"
            )
        if not told:
            logger.warning("the group %s has %s: waiting until all of them have left", group, listed)
            told = True
        time.sleep(pause)


def listen_to_heartbeats(coordinator: Any, answered: Callable[[float], None]) -> None:
    """Makes an aiokafka coordinator call ``answered`` for each heartbeat that the group has accepted.

    The argument is the time (`time.monotonic`) at which the heartbeat was sent. The session time-out is counted from
    this time, because the process may be suspended before it reads the answer.
    """
    heartbeat = coordinator._do_heartbeat

    async def do_heartbeat() -> bool:
        sent_at = time.monotonic()
        alive: bool = await heartbeat()
        if alive:
            answered(sent_at)
        return alive

    coordinator._do_heartbeat = do_heartbeat


def missing_topics(client: Any) -> list[str]:
    """The topics that an aiokafka client reads, and that brokers have not told. Any thread may ask."""
    return sorted(topic for topic in list(client._topics) if not client.cluster.partitions_for_topic(topic))


def ask_while_missing(client: Any, refused: Callable[[StreamsError], None], pause: float = 1.0) -> None:
    """Makes an aiokafka client ask brokers again after ``pause`` seconds while a subscribed topic has no partitions.

    Calls ``refused`` if brokers hide a topic, because the client has no right on the topic.

    Brokers learn of a new topic one after the other, and the client asks any of them. A leader of the group that does
    not see a topic assigns none of its partitions. aiokafka alone asks again after ``metadata_max_age_ms``. A changed
    number of partitions makes aiokafka join the group again.
    """
    loop = asyncio.get_running_loop()
    next_question: asyncio.TimerHandle | None = None
    asked = 0

    def ask_again() -> None:
        nonlocal next_question, asked
        next_question = None
        asked += 1
        client.force_metadata_update()

    def look(_: Any) -> None:
        nonlocal next_question, asked
        missing = missing_topics(client)
        if hidden := sorted(client.cluster.unauthorized_topics.intersection(missing)):
            refused(not_shown(hidden, GRANTS[KafkaCode.TOPIC_AUTHORIZATION_FAILED]))
        elif not missing:
            asked = 0
        elif next_question is None:
            next_question = loop.call_later(pause, ask_again)
            if asked == _TELL_AFTER:
                logger.warning(
                    "this worker reads %s, which brokers do not have. Create missing topics, for example with "
                    "`streamapp topic create`: the worker reads a topic as soon as it exists",
                    ", ".join(missing),
                )

    client.cluster.add_listener(look)


def close_while_joining(coordinator: Any) -> None:
    """Makes aiokafka's client of the group (``coordinator``) give up a join when the client is closed.

    A broker answers a join only after all members have joined or timed out; aiokafka alone would wait. Before each
    join, the worker commits and suspends its tasks, so the end of a join loses no work. A member without a
    ``group_instance_id`` also leaves the group, so the other members need not wait.
    """
    send = coordinator._send_req

    async def send_req(request: Any) -> Any:
        if not isinstance(request, _JOINING):
            return await send(request)
        response = asyncio.ensure_future(send(request))
        try:
            await asyncio.wait([response, coordinator._closing], return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                return response.result()
        finally:
            response.cancel()
        logger.info("this worker stops: it does not wait for the rebalance of the group")
        await _leave(coordinator)
        raise Cancelled("the member was closed while it joined")

    coordinator._send_req = send_req


async def _leave(coordinator: Any) -> None:
    """Takes a joining member out of the group, so that the other members need not wait for it.

    A static member (with a ``group_instance_id``) stays in the group, because the group waits for its return.
    """
    if coordinator._group_instance_id is not None or not coordinator.member_id:
        return
    request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
    try:
        # Another connection than the coordinator's: there, the broker would serve the request only after the join.
        # aiokafka itself does not leave the group before its first generation.
        await asyncio.wait_for(coordinator._client.send(coordinator.coordinator_id, request), _LEAVE_SECONDS)
    except (KafkaError, TimeoutError) as exc:
        logger.warning(
            "this worker could not leave the group, so the group's rebalance waits for it: %r", exc
        )
    coordinator.reset_generation()


async def watch_membership(
    coordinator: Any,
    failed: Callable[[StreamsError], None],
    sleep: Callable[[float], Awaitable[None]],
    *,
    patience: float = 120.0,
    pause: float = 5.0,
) -> None:
    """Looks every ``pause`` seconds if the group has refused this member.

    Without this function, aiokafka reports a refusal only to callers that fetch. With this function, no fetch fails
    because of a refusal. Agents would otherwise end the worker at a refusal that is temporary, or without its reason.

    The cause may be members of another kind, which join with another protocol. An example is Java's newer group
    protocol (KIP-848), which `wait_until_free` does not see. These members have ``patience`` seconds to leave, counted
    from the first refusal. Afterwards, or after any other refusal that is not temporary, the function calls ``failed``
    and returns. If there was no refusal for ``patience`` seconds, the next refusal is a first one again.
    """
    coordinator._subscription.register_fetch_waiters(())
    refused_since = last_refused = -math.inf
    while True:
        await sleep(pause)
        try:
            coordinator.check_errors()  # the check also makes aiokafka try again
        except InconsistentGroupProtocolError:
            now = time.monotonic()
            if now - last_refused > patience:  # the refusals of an earlier join are over
                refused_since = now
            last_refused = now
            if now - refused_since < patience:
                logger.warning("the group has members of another kind: trying again until they have left it")
                continue
            failed(
                BrokerError(
                    "the consumer group still has members of another kind. Stop all instances of the other application "
                    "before this worker starts. To run both applications, give this one an application_id of its own"
                )
            )
            return
        except Exception as exc:
            if isinstance(exc, KafkaError) and exc.retriable:  # the group is moving to another broker
                continue
            remedy = (
                _NO_REASON if UnknownError.__name__ in repr(exc) else GRANTS.get(getattr(exc, "errno", None))
            )
            advice = f". {remedy}" if remedy else ""
            failed(BrokerError(f"the consumer group has refused this worker: {exc!r}{advice}"))
            return


def _strangers(group: str, admin: LastingAdmin) -> Sequence[str]:
    """The client ids of the members that are not workers."""
    try:
        found = ask(admin.describe_consumer_groups, [group], seconds=10.0)[group].result()
    except KafkaException:
        return ()  # the join will report the error
    if found.state in _EMPTY or found.partition_assignor in ("", _OURS):
        return ()
    return [member.client_id for member in found.members]
