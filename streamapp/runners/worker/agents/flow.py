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
    """Faust's flow control, with a `resume` that keeps the queues of a flow that is not suspended.

    Faust's ``resume`` always empties the queues of agents. Faust's recovery calls ``resume`` once more after the
    partitions were set to their positions, so the recovery could empty a queue with a new record. No agent would ever
    finish this record, so no later record could be committed.
    """

    def resume(self) -> None:
        """Ends a suspension. Does nothing if the flow is not suspended."""
        if not self.is_active():
            super().resume()
