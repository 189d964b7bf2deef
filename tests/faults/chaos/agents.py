"""The agents of the chaos application: one has a table of its own, the other one reads results of the topology."""

from __future__ import annotations

from typing import Any

from streamapp import App

from ..feed import PARTITIONS
from .application import check, is_forgotten

__all__ = ["add_agents"]


def add_agents(app: App, prefix: str) -> None:
    """Adds the agents to an application. The module `expected` computes their right results."""
    asked, counted, told, seen = (
        app.topic(f"{prefix}-{name}", key_serializer="raw", value_serializer=values)
        for name, values in (("asked", "json"), ("counted", "raw"), ("told", "raw"), ("seen", "raw"))
    )
    numbers = app.Table("numbers-told", default=int, partitions=PARTITIONS)

    @app.agent(asked)
    async def tell(stream: Any) -> None:
        """Numbers the records of each key."""
        async for event in stream.events():
            key = event.key.decode()
            check(key, event.value)
            if not is_forgotten(event.value):
                numbers[key] += 1
                await told.send(key=event.key, value=f"{event.value['n']}={numbers[key]}".encode())

    @app.agent(counted, sink=[seen])
    async def watch(stream: Any) -> Any:
        """Repeats the results of the topology that are committed."""
        async for key, value in stream.items():
            if not is_forgotten({"n": int(value.partition(b":")[0])}):
                yield key + b" " + value
