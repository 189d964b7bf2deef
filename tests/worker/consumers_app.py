"""A consumer in an application, with a topology beside it or without one; a record "poison" ends it."""

from __future__ import annotations

import os

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.consumer import ConsumerRecord
from streamapp.dsl import StreamsBuilder
from streamapp.serdes import StringSerde

TEXT = StringSerde()


def describe(builder: StreamsBuilder) -> None:
    source = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    source.group_by_key().count()


if "APP_ID" in os.environ:
    env = os.environ
    app = App(
        env["APP_ID"],
        topology=describe if env.get("TOPOLOGY") else None,
        config=StreamsConfig(
            env["APP_ID"],
            bootstrap_servers=env["BOOTSTRAP"],
            session_timeout_ms=6_000,
            dead_letter_queue_topic=env["DEAD"],
        ),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
    )

    @app.consume(env["SOURCE"], key_serde=TEXT, value_serde=TEXT, commit_interval_ms=100)
    async def handle(record: ConsumerRecord[str, str]) -> None:
        if record.value == "poison":
            raise ValueError("poison")
        with open(env["OUT"], "a") as file:
            file.write(f"{record.key} {record.value}\n")

    @app.consume(env["SOURCE"], name="sync", on_error="dead_letter", value_serde=TEXT)
    def handle_too(record: ConsumerRecord[bytes, str]) -> None:
        if record.value == "poison":
            raise ValueError("poison")
