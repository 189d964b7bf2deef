"""The flow of records into the queues of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class FlowControlEvent:
        """mode's has no types."""

        def __init__(self, **kwargs: object) -> None: ...
        def is_active(self) -> bool: ...
        def resume(self) -> None: ...
else:
    from mode.utils.queues import FlowControlEvent

__all__ = ["FlowControl"]


class FlowControl(FlowControlEvent):
    """Keeps the records that wait in queues whose flow is not suspended.

    Faust's ``resume`` empties all queues. Faust's recovery calls ``resume`` a last time after the consumer has placed the
    partitions. An agent would never finish a record that came in between, and no later record could be committed.
    """

    def resume(self) -> None:
        """Lets records in again after a suspension; does nothing while records come in."""
        if not self.is_active():
            super().resume()
