"""A stream with an offset reset policy of its own: its records as they are, and with STATEFUL their counts behind a
repartition topic."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from streamapp import App, BytesSerde, LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde

TEXT = StringSerde()


def policy() -> Any:
    reset = os.environ["RESET"]
    return timedelta(seconds=int(reset)) if reset.isdecimal() else reset


def describe(builder: StreamsBuilder) -> None:
    records = builder.stream(
        os.environ["SOURCE"], key_serde=TEXT, value_serde=BytesSerde(), offset_reset=policy()
    )
    if "STATEFUL" not in os.environ:
        records.to(os.environ["SINK"], key_serde=TEXT, value_serde=BytesSerde())
        return
    grouped = records.group_by(lambda key, value: key, key_serde=TEXT, value_serde=BytesSerde())
    counts = grouped.count(materialized=Materialized("counts", key_serde=TEXT, value_serde=LongSerde()))
    counts.to_stream().to(os.environ["SINK"], key_serde=TEXT, value_serde=LongSerde())


if "APP_ID" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=describe,
        config=StreamsConfig(
            os.environ["APP_ID"],
            bootstrap_servers=os.environ["BOOTSTRAP"],
            processing_guarantee=os.environ.get("GUARANTEE", "at_least_once"),  # type: ignore[arg-type]
            commit_interval_ms=int(os.environ.get("COMMIT_MS", "100")),
            session_timeout_ms=6_000,
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
