"""An application that says nothing of where Kafka is: counting, as its environment has it."""

from __future__ import annotations

import os

from streamapp import App, StreamsConfig

from .counting_app import counting

if "UNADDRESSED" in os.environ:
    env = os.environ
    app = App(
        env["APP_ID"],
        topology=counting(env["SOURCE"], env["SINK"]),
        config=StreamsConfig(env["APP_ID"], commit_interval_ms=200, processing_guarantee="exactly_once_v2"),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
    )

    @app.timer(interval=0.2)
    async def report() -> None:
        print("a timer", "prints", 42)
        if "FAULT" in env:
            print(1 / 0)
