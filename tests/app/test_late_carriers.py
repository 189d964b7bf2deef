from __future__ import annotations

import faust

from agents import late_carriers
from streamapp.testing import AgentTest
from tables.events import LATE_DEPARTURE
from tables.results import LateDeparture


def late(carrier: str) -> bytes:
    return LATE_DEPARTURE.serialize(LateDeparture(carrier, 15, "JFK", "LAX", 75))


async def test_late_departures_are_counted_by_carrier() -> None:
    app = faust.App("test", broker="kafka://localhost:1", store="memory://")
    async with AgentTest(late_carriers.register(app)) as test:
        for carrier in ("UA", "DL", "UA"):
            await test.put(late(carrier))
    assert test.results == [("UA", 1), ("DL", 1), ("UA", 2)]
