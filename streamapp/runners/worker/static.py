"""Static membership (KIP-345): two processes with the same ``group_instance_id``, and assignments of earlier versions.

The protocol says that a process must end when another process has replaced it. But aiokafka then forgets its member id
and joins as the same instance again. This join would replace the other process, which would do the same, without end.
With `hold_identity`, the process that was replaced learns that it was replaced, and its worker ends.

Brokers give a static member that comes back its assignment from before. If an earlier version of the application has
read other topics, aiokafka fails at these topics. With `pass_over_earlier`, the member asks for another assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocol

from streamapp.errors import StreamsError

__all__ = ["FencedInstanceError", "hold_identity", "pass_over_earlier"]

_FENCED_INSTANCE_ID = 82


class FencedInstanceError(StreamsError):
    """Another process has joined with the ``group_instance_id`` of this process."""


def hold_identity(coordinator: Any, instance_id: str, fenced: Callable[[FencedInstanceError], None]) -> None:
    """Makes an aiokafka coordinator join again with its last member id, so that the broker can tell two cases apart.

    If only the session has expired, the coordinator joins as a new member. If another process with the same
    ``group_instance_id`` has replaced the member, the coordinator calls ``fenced``.
    """
    reset, rejoin, send = coordinator.reset_generation, coordinator._do_rejoin_group, coordinator._send_req
    lost: list[str] = []
    joining = False

    def reset_generation() -> None:
        if coordinator.member_id and not joining:
            lost[:] = [coordinator.member_id]
        reset()

    async def do_rejoin_group(subscription: Any) -> Any:
        nonlocal joining
        if lost:
            coordinator.member_id = lost.pop()
        joining = True
        try:
            return await rejoin(subscription)
        finally:
            joining = False

    async def send_req(request: Any) -> Any:
        response = await send(request)
        if getattr(response, "error_code", 0) == _FENCED_INSTANCE_ID:
            fenced(
                FencedInstanceError(
                    f"another worker has joined the group with group_instance_id={instance_id!r}, and has replaced "
                    "this worker. Give each worker a group_instance_id of its own"
                )
            )
        return response

    coordinator.reset_generation = reset_generation
    coordinator._do_rejoin_group = do_rejoin_group
    coordinator._send_req = send_req


def pass_over_earlier(coordinator: Any, ask_anew: Callable[[], None]) -> None:
    """Makes an aiokafka coordinator refuse an assignment with topics that it does not read, and call ``ask_anew``.

    The coordinator then has no assignment, and joins again.
    """
    complete = coordinator._on_join_complete

    async def on_join_complete(generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        topics = {topic for topic, _ in ConsumerProtocol.ASSIGNMENT.decode(assignment).assignment}
        if topics <= coordinator._subscription.subscription.topics:
            await complete(generation, member_id, protocol, assignment)
        else:
            ask_anew()

    coordinator._on_join_complete = on_join_complete
