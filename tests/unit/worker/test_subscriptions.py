"""Topics that come after the start of the agents, such as the topic of replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.app import App
from streamapp.runners.worker.agents import subscriptions


def test_a_topic_that_comes_during_a_rebalance_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Faust subscribed to it only when a further topic came."""
    monkeypatch.setattr(subscriptions, "_COLLECT_SECONDS", 0.01)

    async def run() -> None:
        app = App("asking")
        subscribed: asyncio.Queue[set[str]] = asyncio.Queue()

        async def subscribe(topics: Iterable[str]) -> None:
            await subscribed.put(set(topics))

        async def started() -> None: ...

        app.agents.wait_until_agents_started = app.tables.wait_until_tables_registered = started
        conductor: Any = app.topics
        conductor.app = SimpleNamespace(
            client_only=False,
            producer_only=False,
            rebalancing=True,
            agents=app.agents,
            tables=app.tables,
            consumer=SimpleNamespace(subscribe=subscribe),
        )
        conductor.add(app.topic("orders"))
        reading = asyncio.ensure_future(conductor._subscriber(conductor))
        assert await subscribed.get() == {"orders"}
        conductor.add(app.topic("replies"))
        conductor.add(app.topic("more"))
        assert await asyncio.wait_for(subscribed.get(), 60) == {"orders", "replies", "more"}
        reading.cancel()

    asyncio.run(run())
