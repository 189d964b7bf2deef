"""The flow of records into the queues of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class FlowControlEvent:
        """The class of ``mode`` has no types."""

        def __init__(self, **kwargs: object) -> None: ...
        def is_active(self) -> bool: ...
        def resume(self) -> None: ...

    class ThrowableQueue:
        """The class of ``mode`` has no types."""

        def __init__(
            self, maxsize: int, *, flow_control: FlowControlEvent, clear_on_resume: bool
        ) -> None: ...
else:
    from mode.utils.queues import FlowControlEvent, ThrowableQueue

__all__ = ["FlowControl", "TopicQueue"]


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


class TopicQueue(ThrowableQueue):
    """The queue of a topic that agents read, which takes every record that is fetched.

    One fetcher fills the queues of all topics. If the fetcher waited for one queue, other agents would get no records.
    An agent may wait for the reply of another agent (`ask`), so neither of the two would ever go on. At four fifths of
    ``maxsize``, Faust fetches no more of the partition. So the queue exceeds ``maxsize`` by one fetch at most.
    """

    def full(self) -> bool:
        return False
