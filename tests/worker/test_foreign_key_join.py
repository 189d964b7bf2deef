"""A foreign-key join on a worker, with record caches and commits at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streamapp import App
from streamapp.broker import LocalKafka
from streamapp.testing import Backlog

from ..orders_on_kafka import OrdersOnKafka


@pytest.mark.parametrize(("kind", "commit_ms"), [("inner", 40), ("inner", 400), ("left", 100)])
def test_the_table_in_the_end_is_that_of_both_sides(
    kafka: LocalKafka, tmp_path: Path, kind: str, commit_ms: int
) -> None:
    orders = OrdersOnKafka(
        kafka.bootstrap_servers,
        str(tmp_path / "state"),
        kind,
        1200,
        commit_interval_ms=commit_ms,
        foreign_key_join_recheck=True,
    )

    async def run() -> None:
        app = App(
            orders.config.application_id,
            topology=orders.topology(),
            config=orders.config,
            datadir=str(tmp_path),
            web_enabled=False,
        )

        def check() -> None:
            if app.crash_reason is not None:
                raise app.crash_reason

        await app.start()
        try:
            with Backlog(app.streams.plan, orders.settings) as backlog:
                await asyncio.to_thread(orders.feed, check)
                while not await asyncio.to_thread(backlog.empty):
                    check()
                    await asyncio.sleep(0.1)
        finally:
            await app.stop()

    asyncio.run(run())
    assert orders.table() == orders.expected
