"""A plain Faust agent beside the topology: it counts late departures by carrier in a Faust table of its own."""

from __future__ import annotations

from typing import Any

import faust

from agents.late_departures import TOPIC
from tables.events import LATE_DEPARTURE


def register(app: faust.App) -> Any:
    """Adds the agent and its table to the application."""
    departures = app.topic(TOPIC, value_serializer="raw", key_serializer="raw", partitions=4)
    late_carriers = app.Table("late-carriers", default=int, partitions=4)

    @app.agent(departures, name="late-carriers")
    async def count_late_departures(stream: Any) -> None:
        async for raw in stream:
            late_carriers[LATE_DEPARTURE.deserialize(raw).carrier] += 1

    return count_late_departures
