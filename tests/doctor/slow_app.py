"""A worker whose records take long, or cannot be handled; as its environment says."""

from __future__ import annotations

import os
import time

from streamapp import App, StreamsBuilder, StreamsConfig, StringSerde

TEXT = StringSerde()


def describe(builder: StreamsBuilder) -> None:
    def work(value: str) -> str:
        time.sleep(float(os.environ["SLOW_SECONDS"]))
        if value == "v" and "REFUSES" in os.environ:
            raise ValueError("cannot be handled")
        return value

    stream = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    stream.map_values(work).to(os.environ["SINK"], key_serde=TEXT, value_serde=TEXT)


if "SLOW_SECONDS" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=describe,
        config=StreamsConfig(
            os.environ["APP_ID"],
            bootstrap_servers=os.environ["BOOTSTRAP"],
            max_poll_interval_ms=1_500,
            session_timeout_ms=6_000,
            commit_interval_ms=200,
            processing_exception_handler="continue",
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
