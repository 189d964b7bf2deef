"""The reference application for rights: repartition topic, table, output and dead letters, exactly once."""

from __future__ import annotations

import os

from streamapp import App, LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde

TEXT, NUMBER = StringSerde(), LongSerde()


def check(value: str) -> str:
    if value == "poison":
        raise ValueError("this record cannot be counted")
    return value


def describe(builder: StreamsBuilder) -> None:
    records = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    kept = Materialized("counts", key_serde=TEXT, value_serde=NUMBER)
    rekeyed = records.map_values(check, name="check").select_key(lambda key, _: key[::-1])
    rekeyed.group_by_key().count(materialized=kept).to_stream().to(
        os.environ["SINK"], key_serde=TEXT, value_serde=NUMBER
    )


if "REFERENCE_ID" in os.environ:
    app = App(
        os.environ["REFERENCE_ID"],
        topology=describe,
        config=StreamsConfig(
            os.environ["REFERENCE_ID"],
            default_key_serde=TEXT,
            default_value_serde=TEXT,
            commit_interval_ms=200,
            processing_guarantee="exactly_once_v2",
            processing_exception_handler="continue",
            dead_letter_queue_topic=os.environ["DEAD"],
            repartition_purge_interval_ms=300,
            session_timeout_ms=6_000,
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
