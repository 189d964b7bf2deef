"""Two sub-topologies with a repartition topic between them, and a global table: departures by airport."""

from __future__ import annotations

import os

from streamapp import App, LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde

TEXT, NUMBER = StringSerde(), LongSerde()


def departures(builder: StreamsBuilder) -> None:
    planes = builder.global_table(
        f"{os.environ['SOURCE']}-planes",
        key_serde=TEXT,
        value_serde=TEXT,
        on_error="dead_letter" if "DEAD" in os.environ else "fail",
    )
    flights = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    known = flights.join(planes, lambda flight, plane: plane, key_selector=lambda key, flight: key)
    by_airport = known.group_by(lambda key, airport: airport, key_serde=TEXT, value_serde=TEXT)
    counts = by_airport.count(materialized=Materialized("departures", key_serde=TEXT, value_serde=NUMBER))
    counts.to_stream().to(os.environ["SINK"], key_serde=TEXT, value_serde=NUMBER)


if "APP_ID" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=departures,
        config=StreamsConfig(
            os.environ["APP_ID"],
            bootstrap_servers=os.environ["BOOTSTRAP"],
            processing_guarantee=os.environ.get("GUARANTEE", "at_least_once"),  # type: ignore[arg-type]
            commit_interval_ms=100,
            session_timeout_ms=6_000,
            dead_letter_queue_topic=os.environ.get("DEAD"),
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
