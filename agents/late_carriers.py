"""A plain Faust agent beside the topology: it counts late departures by carrier in a Faust table of its own."""

from __future__ import annotations

from typing import Any

import faust

from agents.late_departures import TOPIC
from tables.events import LATE_DEPARTURE

PARTITIONS = 4


def register(app: faust.App) -> Any:
    """Adds the agent and its table to the application; returns the agent."""
    departures = app.topic(TOPIC, key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)
    late_carriers = app.Table("late-carriers", default=int, partitions=PARTITIONS)

    @app.agent(departures, name="late-carriers")  # type: ignore[untyped-decorator]
    async def count_late_departures(stream: Any) -> Any:
        async for raw in stream:
            carrier = LATE_DEPARTURE.deserialize(raw).carrier
            late_carriers[carrier] += 1
            yield carrier, late_carriers[carrier]

    return count_late_departures
