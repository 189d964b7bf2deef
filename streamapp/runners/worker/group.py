"""Joining a consumer group: one that another kind of application may still be in, as a Kafka Streams one that is taken
over; and no longer than this worker is to run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka.errors import Cancelled, InconsistentGroupProtocolError, KafkaError
from aiokafka.protocol.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from confluent_kafka import ConsumerGroupState, KafkaException

from streamapp.broker.requests import LastingAdmin, ask
from streamapp.errors import BrokerError, StreamsError

__all__ = ["close_while_joining", "listen_to_heartbeats", "wait_until_free", "watch_membership"]

logger: logging.Logger = logging.getLogger(__name__)

_OURS = "faust"
"""The name of Faust's assignor; that of Kafka Streams is "stream"."""
_EMPTY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_JOINING = (JoinGroupRequest, SyncGroupRequest)
_LEAVE_SECONDS = 5.0


def wait_until_free(group: str, admin: LastingAdmin, *, patience: float = 120.0, pause: float = 1.0) -> None:
    """Returns when all members of the group, if there are any, are workers of this kind.

    Kafka lets only members with a common assignor into a group, and refuses others for good. A Kafka Streams application
    stays a member for its session time-out (45 s) after it was closed, unless it is told to leave. Raises
    `BrokerError` when strangers are still there after ``patience`` seconds.
    """
    deadline = time.monotonic() + patience
    told = False
    while strangers := _strangers(group, admin):
        listed = f"{len(strangers)} members of another kind ({', '.join(sorted(set(strangers)))})"
        if time.monotonic() > deadline:
            raise BrokerError(
                f"the consumer group {group} still has {listed}. Stop the application that they belong to, with all its "
                "instances, before this one takes over; or run this one beside it, with an application_id of its own"
            )
        if not told:
            logger.warning("the group %s has %s: waiting until they have left it", group, listed)
            told = True
        time.sleep(pause)


def listen_to_heartbeats(coordinator: Any, answered: Callable[[], None]) -> None:
    """Has an aiokafka coordinator call ``answered`` for each heartbeat that the group has answered."""
    heartbeat = coordinator._do_heartbeat

    async def do_heartbeat() -> bool:
        alive: bool = await heartbeat()
        if alive:
            answered()
        return alive

    coordinator._do_heartbeat = do_heartbeat


def close_while_joining(coordinator: Any) -> None:
    """Makes an aiokafka coordinator that is closed give up a join that it has begun.

    The broker holds its answers back until all members have joined, or those that are gone have had their time, and
    aiokafka would wait for them. A member has no tasks while it joins: nothing is left to commit.
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
    """Takes a member that is joining out of the group, so that the others need not wait for it; not a static one, which
    is expected back."""
    if coordinator._group_instance_id is not None or not coordinator.member_id:
        return
    request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
    try:
        # Not over the coordinator's own connection, where it would be served after the request that was given up. Nor by
        # aiokafka, which knows nothing to leave before the first generation.
        await asyncio.wait_for(coordinator._client.send(coordinator.coordinator_id, request), _LEAVE_SECONDS)
    except (KafkaError, TimeoutError) as exc:
        logger.warning("this worker could not leave the group, which will wait for it: %r", exc)
    coordinator.reset_generation()


async def watch_membership(
    coordinator: Any,
    failed: Callable[[StreamsError], None],
    sleep: Callable[[float], Awaitable[None]],
    *,
    patience: float = 120.0,
    pause: float = 5.0,
) -> None:
    """Looks every ``pause`` seconds whether the group has refused this member, which aiokafka tells only those who fetch.

    Strangers in the group (those of Java's newer group protocol cannot be seen before) are given ``patience`` seconds
    to leave it; after any other refusal that does not pass by itself, or then, ``failed`` is called, and the watch is over.
    """
    refused_since: float | None = None
    while True:
        await sleep(pause)
        try:
            coordinator.check_errors()  # which makes aiokafka try once more
        except InconsistentGroupProtocolError:
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since < patience:
                logger.warning("the group has members of another kind: trying again until they have left it")
                continue
            failed(
                BrokerError(
                    "the consumer group still has members of another kind. Stop the application that they belong to, with "
                    "all its instances, before this one takes over; or give this one another application_id"
                )
            )
            return
        except Exception as exc:
            if isinstance(exc, KafkaError) and exc.retriable:  # the group is on its way to another broker
                continue
            failed(BrokerError(f"the consumer group has refused this worker: {exc!r}"))
            return


def _strangers(group: str, admin: LastingAdmin) -> Sequence[str]:
    """The client ids of the members that are not workers."""
    try:
        found = ask(admin.describe_consumer_groups, [group], seconds=10.0)[group].result()
    except KafkaException:
        return ()  # what there is to say about it, joining the group will say
    if found.state in _EMPTY or found.partition_assignor in ("", _OURS):
        return ()
    return [member.client_id for member in found.members]
