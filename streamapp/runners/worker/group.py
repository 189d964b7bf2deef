"""Joining a consumer group that another kind of application may still be in: a Kafka Streams one that is taken over."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from streamapp.errors import BrokerError

__all__ = ["wait_until_free"]

logger = logging.getLogger(__name__)

_OURS = "faust"
"""The name of Faust's assignor; that of Kafka Streams is "stream"."""
_EMPTY = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


def wait_until_free(group: str, admin: AdminClient, *, patience: float = 120.0, pause: float = 1.0) -> None:
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


def _strangers(group: str, admin: AdminClient) -> Sequence[str]:
    """The client ids of the members that are not workers."""
    try:
        found: Any = admin.describe_consumer_groups([group], request_timeout=10.0)[group].result()
    except KafkaException:
        return ()  # what there is to say about it, joining the group will say
    if found.state in _EMPTY or found.partition_assignor in ("", _OURS):
        return ()
    return [member.client_id for member in found.members]
