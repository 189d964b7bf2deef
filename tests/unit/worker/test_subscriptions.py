"""Topics that come after the start of the agents, such as the topic of replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from streamapp.app import App
from streamapp.runners.worker.agents import subscriptions


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_COLLECT_SECONDS", 0.01)


class Rebalancing:
    """The registry of topics of an application that rebalances, and the topics to which it subscribes."""

    def __init__(self) -> None:
        self.app = App("asking")
        self.topics: Any = self.app.topics
        self.subscribed: asyncio.Queue[set[str]] = asyncio.Queue()

        async def subscribe(topics: Iterable[str]) -> None:
            await self.subscribed.put(set(topics))

        async def started() -> None: ...

        self.topics.app = SimpleNamespace(
            client_only=False,
            producer_only=False,
            rebalancing=True,
            agents=SimpleNamespace(wait_until_agents_started=started),
            tables=SimpleNamespace(wait_until_tables_registered=started),
            consumer=SimpleNamespace(subscribe=subscribe),
        )
        self.add("orders")
        self.reading = asyncio.ensure_future(self.topics._subscriber(self.topics))

    def add(self, name: str) -> None:
        self.topics.add(self.app.topic(name))

    async def next(self) -> set[str]:
        return await asyncio.wait_for(self.subscribed.get(), 60)


def test_a_topic_that_comes_during_a_rebalance_is_read() -> None:
    """Plain Faust subscribed to it only when a further topic came."""

    async def run() -> None:
        found = Rebalancing()
        assert await found.next() == {"orders"}
        found.add("replies")
        found.add("more")
        assert await found.next() == {"orders", "replies", "more"}
        found.reading.cancel()

    asyncio.run(run())


def test_a_topic_of_a_pattern_that_comes_while_another_is_made_is_not_given_up() -> None:
    async def run() -> None:
        found = Rebalancing()
        assert await found.next() == {"orders"}

        async def make(update: Any = found.topics._update_indices) -> None:
            await update()
            found.topics._topics.add(found.app.topic("by-pattern"))

        found.topics._update_indices = make
        found.add("replies")
        assert await found.next() == {"orders", "replies", "by-pattern"}
        found.reading.cancel()

    asyncio.run(run())


def test_a_worker_that_loses_its_last_isolated_partition_reads_the_topic_on() -> None:
    """The worker read the topic no longer, so the group never gave it a partition again."""

    async def run() -> None:
        found = Rebalancing()
        assert await found.next() == {"orders"}
        isolated = found.app.topic("isolated").clone(active_partitions={TP("isolated", 0)})
        found.topics.add(isolated)
        assert await found.next() == {"orders", "isolated"}
        found.topics.discard(isolated)
        assert await found.next() == {"orders", "isolated"}
        found.reading.cancel()

    asyncio.run(run())
