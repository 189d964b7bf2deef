"""The topics that agents and streams of Faust read: those of the start, and those that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from faust.types import TP
from mode import Service
from mode.utils.futures import notify

from streamapp.runners.worker.agents.delivery import delivery

if TYPE_CHECKING:  # Faust's classes have no types

    class Conductor:
        def __init__(self, *arguments: Any, **options: Any) -> None: ...
        def discard(self, topic: Any) -> None: ...

        app: Any
        should_stop: bool
        sleep: Any
        _topics: set[Any]
        _subscription_changed: asyncio.Event | None
        _subscription_done: asyncio.Future[Any] | None

        async def _update_indices(self) -> Any: ...
else:
    from faust.transport.conductor import Conductor

__all__ = ["AgentConductor"]

_COLLECT_SECONDS = 1.0
"""The pause between a new topic and its subscription. Topics that come together cost one rebalance."""


class AgentConductor(Conductor):
    """Faust's registry of topics, which reads a new topic after a second. An example is the topic of replies (`ask`).

    Faust's own registry waits for 45 seconds. A topic that comes during a rebalance is read only when another topic
    comes. An agent that asked during a rebalance could wait for ever.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._isolated: set[str] = set()
        """The topics of agents with ``isolated_partitions`` that have lost a partition."""

    def discard(self, topic: Any) -> None:
        """Takes a topic off. With ``isolated_partitions``, the worker goes on to read the topic.

        Each partition has a topic of its own. If the group has taken all partitions, Faust would read the topic no
        longer, and so would never get a partition again.
        """
        if topic.active_partitions is not None:
            self._isolated.update(topic.topics)
        super().discard(topic)

    @Service.task  # type: ignore[untyped-decorator]
    async def _subscriber(self) -> None:
        if not (self.app.client_only or self.app.producer_only):
            await self.app.agents.wait_until_agents_started()
            await self.app.tables.wait_until_tables_registered()
        changed = self._subscription_changed = asyncio.Event()
        while not self.should_stop:
            changed.clear()
            await self._update_indices()
            # The topics of patterns may have changed meanwhile (`FaustMembership.subscribe`).
            present = {name for topic in self._topics for name in topic.topics}
            await self.app.consumer.subscribe(present | self._isolated)
            notify(self._subscription_done)
            await changed.wait()
            await self.sleep(_COLLECT_SECONDS)

    def _build_handler(self, tp: TP, channels: Set[Any]) -> Any:
        return delivery(self.app, tp, channels)
