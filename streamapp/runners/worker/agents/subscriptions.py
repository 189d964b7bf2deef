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
            await self.app.consumer.subscribe({name for topic in self._topics for name in topic.topics})
            notify(self._subscription_done)
            await changed.wait()
            await self.sleep(_COLLECT_SECONDS)

    def _build_handler(self, tp: TP, channels: Set[Any]) -> Any:
        return delivery(self.app, tp, channels)
