"""The application that the live test runs in processes of its own: tables of each kind over one topic."""

from __future__ import annotations

import os

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.serdes import LongSerde, StringSerde
from streamapp.windows import SessionWindows, TimeWindows

TEXT, NUMBER, DAY = StringSerde(), LongSerde(), 86_400_000


def flights(builder: StreamsBuilder) -> None:
    source = os.environ["SOURCE"]
    builder.global_table(
        f"{source}-planes", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("planes")
    )
    by_airport = builder.stream(source, key_serde=TEXT, value_serde=TEXT).group_by_key(
        key_serde=TEXT, value_serde=TEXT
    )
    by_airport.count(materialized=Materialized("counts", key_serde=TEXT, value_serde=NUMBER))
    hourly = by_airport.windowed_by(TimeWindows.of_size_with_no_grace(3_600_000))
    counts = hourly.count(
        materialized=Materialized("hourly", key_serde=TEXT, value_serde=NUMBER, retention=DAY)
    )
    counts.filter(lambda key, value: value > 1, materialized=Materialized("busy"))
    sessions = by_airport.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(60_000))
    sessions.count(materialized=Materialized("sessions", key_serde=TEXT, value_serde=NUMBER, retention=DAY))


if "SOURCE" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=flights,
        config=StreamsConfig(
            os.environ["APP_ID"],
            bootstrap_servers=os.environ["BOOTSTRAP"],
            commit_interval_ms=200,
            session_timeout_ms=6_000,
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
