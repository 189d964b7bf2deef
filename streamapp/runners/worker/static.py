"""Static membership (KIP-345): who is who when two processes claim one ``group_instance_id``.

aiokafka joins with the instance id, but forgets its member id once the broker does not know it any more, and then
joins as the same instance again: it would throw out the process that has replaced it, which would do the same in turn.
The rule of the protocol is that the one that was replaced has to end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.errors import StreamsError

__all__ = ["FencedInstanceError", "hold_identity"]

_FENCED_INSTANCE_ID = 82


class FencedInstanceError(StreamsError):
    """Another process has joined with the ``group_instance_id`` of this one."""


def hold_identity(coordinator: Any, instance_id: str, fenced: Callable[[FencedInstanceError], None]) -> None:
    """Makes an aiokafka coordinator ask for its place under the member id that it had.

    The broker then tells apart whether the session has expired, after which the member joins as a new one, or another
    process has taken the place: then ``fenced`` is called.
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
                    f"another worker has joined the group with group_instance_id={instance_id!r} and has taken this one's "
                    "place. Give each worker a name of its own"
                )
            )
        return response

    coordinator.reset_generation = reset_generation
    coordinator._do_rejoin_group = do_rejoin_group
    coordinator._send_req = send_req
