"""An application with every kind of store, and a year of events for it.

``flights`` are keyed by tail number, in the order of time, as are ``delays``; ``weather`` is a table by tail number,
whose records all lie in Kafka before the first flight.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from streamapp import (
    App,
    BufferConfig,
    JoinWindows,
    LongSerde,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
)
from streamapp._base.partitioning import partition_for
from streamapp.serdes import TimeWindowedSerde

TEXT, NUMBER = StringSerde(), LongSerde()
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YEAR = 400 * DAY
PARTITIONS = 3
INPUTS = ("weather", "flights", "delays")
OUTPUTS = ("seen", "explained", "monthly")


def ms(month: int, day: int = 1) -> int:
    return int(datetime(2013, month, day, tzinfo=UTC).timestamp() * 1000)


def table(name: str, **more: object) -> Materialized:
    return Materialized(name, key_serde=TEXT, value_serde=NUMBER, **more)  # type: ignore[arg-type]


def describe(builder: StreamsBuilder, prefix: str) -> None:
    given = {"key_serde": TEXT, "value_serde": TEXT}
    flights = builder.stream(f"{prefix}-flights", **given)
    weather = builder.table(
        f"{prefix}-weather", **given, materialized=Materialized("weather", **given, history_retention=YEAR)
    )

    flights.group_by(lambda tail, carrier: carrier, **given).count(materialized=table("carriers"))
    daily = TimeWindows.of_size_and_grace(DAY, YEAR)
    by_carrier = flights.select_key(lambda tail, carrier: carrier).group_by_key(**given, name="daily")
    by_carrier.windowed_by(daily).count(materialized=table("daily", retention=YEAR + DAY))

    by_tail = flights.group_by_key(**given)
    by_tail.windowed_by(SessionWindows.of_inactivity_gap_and_grace(2 * DAY, DAY)).count(
        materialized=table("journeys", retention=YEAR)
    )
    by_tail.reduce(lambda old, new: new, materialized=Materialized("latest", **given))

    flights.join(weather, lambda carrier, sky: f"{carrier} in {sky}").to(f"{prefix}-seen", **given)
    near = JoinWindows.of_time_difference_and_grace(HOUR, 20 * DAY)
    delays = builder.stream(f"{prefix}-delays", **given)
    flights.left_join(delays, lambda carrier, why: f"{carrier}: {why}", near).to(
        f"{prefix}-explained", **given
    )

    monthly = TimeWindows.of_size_and_grace(30 * DAY, DAY)
    counts = by_tail.windowed_by(monthly).count(materialized=table("months"))
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream()
    final.to(f"{prefix}-monthly", key_serde=TimeWindowedSerde(TEXT, 30 * 86_400_000), value_serde=NUMBER)


def config(application_id: str, servers: str, folder: str) -> StreamsConfig:
    return StreamsConfig(
        application_id,
        bootstrap_servers=servers,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=200,
        session_timeout_ms=6_000,
        state_dir=folder,
        statestore_cache_max_bytes=0,
    )


class Event(NamedTuple):
    topic: str
    key: str
    value: str
    time: int

    @property
    def partition(self) -> int:
        return partition_for(self.key.encode(), PARTITIONS)


def events(seed: int = 1, flights: int = 1_500) -> list[Event]:
    """In the order of time. No two are of the same moment: what is joined does not depend on chance."""
    rng = random.Random(seed)
    step = (ms(12, 31) - ms(1)) // flights // 10 * 10
    found = []
    for number in range(flights):
        time, tail = ms(1) + number * step, f"N{rng.randrange(40)}"
        if rng.random() < 0.3:
            found.append(Event("weather", tail, rng.choice(["rain", "sun", "fog"]), time + 1))
        found.append(Event("flights", tail, rng.choice("ABCDEF"), time + 2))
        if rng.random() < 0.5:
            found.append(Event("delays", tail, rng.choice(["late crew", "storm"]), time + 3))
    return found


if "TRAVELS_ID" in os.environ:
    app = App(
        os.environ["TRAVELS_ID"],
        topology=lambda builder: describe(builder, os.environ["TRAVELS_PREFIX"]),
        config=config(
            os.environ["TRAVELS_ID"], os.environ["TRAVELS_BOOTSTRAP"], os.environ["TRAVELS_DATA"] + "/state"
        ),
        datadir=os.environ["TRAVELS_DATA"],
        web_port=int(os.environ["TRAVELS_PORT"]),
    )
