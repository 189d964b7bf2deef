"""The application that the broker tests run in processes of their own: it counts records by key, told by its
environment."""

from __future__ import annotations

import os

from streamapp.app import App
from streamapp.config import StreamsConfig

from .counting import counting


def from_environment() -> App:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        processing_guarantee=env.get("GUARANTEE", "at_least_once"),  # type: ignore[arg-type]
        commit_interval_ms=int(env.get("COMMIT_MS", "200")),
        session_timeout_ms=6_000,
    )
    topology = counting(
        env["SOURCE"].split(","), env["SINK"], persistent=env.get("STORE", "rocksdb") == "rocksdb"
    )
    return App(
        env["APP_ID"], topology=topology, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )


if "APP_ID" in os.environ:
    app = from_environment()

    if "PLAIN_TOPIC" in os.environ:

        @app.agent(app.topic(os.environ["PLAIN_TOPIC"], value_serializer="raw"))
        async def shout(stream):  # type: ignore[no-untyped-def]
            """A plain Faust agent beside the topology."""
            async for value in stream:
                await app.topic(os.environ["PLAIN_TOPIC"] + "-out", value_serializer="raw").send(
                    value=value.upper()
                )
