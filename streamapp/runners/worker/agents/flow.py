"""The flow of records into the queues of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class FlowControlEvent:
        """The class of ``mode`` has no types."""

        def __init__(self, **kwargs: object) -> None: ...
        def is_active(self) -> bool: ...
        def resume(self) -> None: ...
else:
    from mode.utils.queues import FlowControlEvent

__all__ = ["FlowControl"]


class FlowControl(FlowControlEvent):
    """Faust's flow control, with a `resume` that empties the queues of agents only if the agents were suspended.

    Faust's ``resume`` always empties the queues. After a rebalance, Faust's "recovery" sets the partitions to their
    positions, and then calls ``resume`` once more. So the recovery could empty a queue with a new record. No agent
    would ever finish this record, so no later record could be committed.
    """

    def resume(self) -> None:
        """Ends a suspension. Does nothing if the flow is not suspended."""
        if not self.is_active():
            super().resume()
