"""The replies to requests of agents (`ask`, `map`, `join`): each reply goes to the caller that still waits for it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from faust import current_event
from faust.models import maybe_model
from faust.types import TP

if TYPE_CHECKING:  # Faust's classes have no types

    class ReplyConsumer:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        async def add(self, correlation_id: str, promise: Any) -> None: ...

        _fetchers: dict[str, Any]
        _waiting: Any
        _reply_topic: Any
        add_future: Any
else:
    from faust.agents import ReplyConsumer

__all__ = ["Replies"]


class Replies(ReplyConsumer):
    """Faust's reader of replies, which one reply too many does not end.

    A caller may be gone when its reply comes: its time-out is over, or its record belongs to another worker. With
    at_least_once, a reply may come twice. Faust's own reader raises for such a reply, and the worker ends.

    Faust's own reader adds a reply topic twice, and reads only one of the two queues. The full other queue would stop
    all agents of the worker, and no reply would ever be committed. Each rebalance would bring all replies again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asking: dict[Any, Any] = {}
        """The promises without a reply, each with the event that its agent works on."""

    def asking(self) -> Counter[tuple[TP, int]]:
        """The number of agents that wait for a reply, by the partition and offset of their record."""
        messages = [event.message for event in {id(each): each for each in self._asking.values()}.values()]
        return Counter((message.tp, message.offset) for message in messages)

    async def add(self, correlation_id: str, promise: Any) -> None:
        """Gives the reply with this id to the promise, as soon as the reply comes."""
        await super().add(correlation_id, promise)
        event = current_event()
        if event is not None:
            self._asking[promise] = event
        promise.add_done_callback(partial(self._forget, correlation_id))

    def _forget(self, correlation_id: str, promise: Any) -> None:
        """Faust's own reader keeps an entry for each request for ever."""
        self._asking.pop(promise, None)
        waiting = self._waiting.get(correlation_id, set())
        waiting.discard(promise)
        if not waiting:
            self._waiting.pop(correlation_id, None)

    async def _start_fetcher(self, topic_name: str) -> None:
        if topic_name in self._fetchers:
            return
        self._fetchers[topic_name] = None  # other callers go on without a reader of their own
        topic = self._reply_topic(topic_name)
        try:
            await topic.maybe_declare()
        except BaseException:
            del self._fetchers[topic_name]  # the next request tries again
            raise
        # The stream adds the topic to the subscription, in time for the first one with ``reply_create_topic=True``.
        self._fetchers[topic_name] = self.add_future(self._hand_over(topic.stream()))

    async def _hand_over(self, replies: Any) -> None:
        async for reply in replies:
            for promise in tuple(self._waiting.pop(reply.correlation_id, ())):
                if not promise.done():
                    promise.fulfill(reply.correlation_id, maybe_model(reply.value))
