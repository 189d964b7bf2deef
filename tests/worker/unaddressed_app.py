"""An application that says nothing of where Kafka is: records counted by key, topics as its environment has them."""

from __future__ import annotations

import os

from streamapp import App, LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde

TEXT, NUMBER = StringSerde(), LongSerde()


def refuse_poison(key: str, value: str) -> bool:
    if value == "poison":
        raise ValueError("this record cannot be counted")
    return True


def describe(builder: StreamsBuilder) -> None:
    records = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    kept = Materialized("counts", key_serde=TEXT, value_serde=NUMBER)
    counts = records.filter(refuse_poison, name="check").group_by_key().count(materialized=kept)
    counts.to_stream().to(os.environ["SINK"], key_serde=TEXT, value_serde=NUMBER)


if "UNADDRESSED" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=describe,
        config=StreamsConfig(commit_interval_ms=200, processing_guarantee="exactly_once_v2"),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )

    @app.timer(interval=0.2)
    async def report() -> None:
        print("a timer", "prints", 42)
        if "FAULT" in os.environ:
            print(1 / 0)
