"""`Membership`: the interface through which the data plane uses its consumer group, and its implementation with Faust.

The group's assignments reach the data plane as calls of `DataPlane.assign` and `DataPlane.revoke`. In the other
direction, the data plane calls `Membership`. Its methods commit without a transaction, confirm the membership, find the
owner of a partition, and ask for a new assignment. The data plane does not know the protocol of the group, so an
implementation with a newer protocol (KIP-848, KIP-1071) is possible.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AioTopicPartition

from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, StreamsError
from streamapp.records import TopicPartition

__all__ = ["FaustMembership", "Member", "Membership", "StaleMemberError"]

_PAUSE_SECONDS = 0.1


class Member(NamedTuple):
    """A member of a consumer group, in the generation in which the member got its partitions.

    Each rebalance begins a new generation.
    """

    generation: int
    member_id: str


class StaleMemberError(StreamsError):
    """The generation of this member is over.

    The group may have given the member's partitions to other members, which repeat the work since the last commit.
    """


class Membership(Protocol):
    """The consumer group, as the data plane's thread sees it."""

    def commit(self, member: Member, positions: Mapping[TopicPartition, Position], timeout: float) -> None:
        """Commits offsets outside a transaction, once. Raises `StaleMemberError` or `BrokerError`."""
        ...

    def confirm(self, member: Member, timeout: float) -> None:
        """Asks the group to confirm that ``member`` still belongs to it, in the generation that ``member`` names.

        Raises `StaleMemberError` if this generation is over; other members may then have the partitions. Raises
        `BrokerError` if the request fails, or has no answer within ``timeout`` seconds.
        """
        ...

    def owner(self, partition: TopicPartition) -> str | None:
        """The advertised URL of the worker that has a partition, by the last assignment. None: no worker is known."""
        ...

    def rejoin(self) -> None:
        """Asks the group for a new assignment, and returns at once."""
        ...


class FaustMembership:
    """The group of Faust's consumer. aiokafka runs in a thread of its own, with its own event loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._sources: Any = None
        """The topics of the topology, as a topic of Faust. None before `subscribe`."""

    def current(self) -> Member:
        coordinator = self._coordinator()
        return Member(coordinator.generation, coordinator.member_id)

    def commit(self, member: Member, positions: Mapping[TopicPartition, Position], timeout: float) -> None:
        self._ask(self.commit_now(member, positions), timeout, "offsets could not be committed")

    def confirm(self, member: Member, timeout: float) -> None:
        self._ask(self._confirm(member), timeout, "the group does not say who its members are")

    def _ask(self, request: Coroutine[Any, Any, None], timeout: float, failed: str) -> None:
        """Makes a request in the thread of the group's member. Waits, and raises `BrokerError` if the request fails."""
        loop = self._app.consumer._thread.thread_loop
        future = asyncio.run_coroutine_threadsafe(request, loop)
        try:
            future.result(timeout)
        except (TimeoutError, concurrent.futures.TimeoutError):
            future.cancel()
            raise BrokerError(f"{failed}: no answer within {timeout:g} s") from None
        except KafkaError as exc:
            raise BrokerError(f"{failed}: {exc!r}") from exc

    async def commit_now(self, member: Member, positions: Mapping[TopicPartition, Position]) -> None:
        """Commits, in the thread of the member. Raises `StaleMemberError` and aiokafka's errors."""
        coordinator = self._coordinator()
        request = {AioTopicPartition(*tp): OffsetAndMetadata(*position) for tp, position in positions.items()}
        await coordinator.ensure_coordinator_known()
        async with coordinator._commit_lock:
            # aiokafka sends its current generation, and none after the group has expelled the member. Brokers accept a
            # commit without a generation while a group is empty. Nothing may be awaited between check and request.
            self._check(member)
            await asyncio.shield(coordinator._do_commit_offsets(None, request))

    async def _confirm(self, member: Member) -> None:
        coordinator = self._coordinator()
        self._check(member)
        await coordinator.ensure_coordinator_known()
        # A heartbeat that the group refuses makes aiokafka forget the member, and join again.
        while not await coordinator._do_heartbeat():
            self._check(member)
            await asyncio.sleep(_PAUSE_SECONDS)
            await coordinator.ensure_coordinator_known()
        self._check(member)

    def _check(self, member: Member) -> None:
        if self.current() != member:
            raise StaleMemberError(
                f"this worker is no longer the member {member.member_id} of generation {member.generation}"
            )

    def owner(self, partition: TopicPartition) -> str | None:
        return self._app.assignor.url_of(partition)  # type: ignore[no-any-return]

    def rejoin(self) -> None:
        loop = self._app.consumer._thread.thread_loop
        loop.call_soon_threadsafe(lambda: self._coordinator().request_rejoin())

    def subscribe(self, sources: Iterable[str]) -> None:
        """Subscribes to these topics of the topology. At the next calls, they replace those of the call before."""
        topics, before = self._app.topics, self._sources
        self._sources = self._app.topic(*sources, acks=False, value_serializer="raw")
        if before is None:
            topics.add(self._sources)
            return
        topics._topics.discard(before)  # `discard` and `add` would make Faust subscribe once more
        topics._topics.add(self._sources)
        gone, sources = frozenset(before.topics), self._sources.topics
        self._app.consumer._thread.change_subscription(lambda present: (present - gone).union(sources))

    def _coordinator(self) -> Any:
        return self._app.consumer._thread._ensure_consumer()._coordinator
