"""Several workers in one process, one after the other."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import Any

from streamapp import App

from .conftest import Cluster
from .counting import counting


def test_a_worker_frees_the_clients_of_an_earlier_worker_of_its_process(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The garbage collector passed over them, so their threads asked brokers until the process ended."""

    async def run() -> weakref.ref[Any]:
        app = App(
            cluster.id,
            topology=counting(cluster.source, cluster.sink),
            bootstrap_servers=cluster.bootstrap,
            datadir=tmp_path,
            web_enabled=False,
        )
        await app.start()
        try:
            async with asyncio.timeout(60):
                while app.streams.state != "running":
                    await asyncio.sleep(0.05)
            return weakref.ref(app.streams._plane)
        finally:
            await app.stop()

    first, _ = asyncio.run(run()), asyncio.run(run())
    assert first() is None
