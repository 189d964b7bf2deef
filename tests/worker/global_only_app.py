"""A table that each worker has completely, and nothing else: a topology without tasks."""

from __future__ import annotations

import os

from streamapp import App, Materialized, StreamsBuilder, StreamsConfig, StringSerde

TEXT = StringSerde()


def rates(builder: StreamsBuilder) -> None:
    topic = os.environ["SOURCE"]
    builder.global_table(topic, key_serde=TEXT, value_serde=TEXT, materialized=Materialized("rates"))


app = App(
    os.environ["APP_ID"],
    topology=rates,
    config=StreamsConfig(os.environ["APP_ID"], bootstrap_servers=os.environ["BOOTSTRAP"]),
    datadir=os.environ["DATADIR"],
    web_port=int(os.environ["WEB_PORT"]),
)


@app.timer(interval=0.5, on_leader=True)
async def on_leader() -> None:
    print("leads", flush=True)
