"""A topology, a consumer and an agent that a file puts into trouble: they wait, or their service is down."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.consumer import ConsumerRecord
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.on_error import Backoff, Retry
from streamapp.serdes import StringSerde

TEXT = StringSerde()


def trouble() -> str:
    return Path(os.environ["TROUBLE"]).read_text()


def look_up(value: str) -> str:
    while trouble() == "hang":
        time.sleep(0.05)
    if trouble() == "down":
        raise ConnectionError("the service is down")
    if value == "bad":
        raise ValueError(value)
    return value


def describe(builder: StreamsBuilder) -> None:
    source = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    retry = Retry.in_place(times=1, backoff=Backoff(100, limit=200))
    looked_up = source.map_values(look_up, on_error=retry, name="look-up")
    looked_up.group_by_key(key_serde=TEXT, value_serde=TEXT).count(materialized=Materialized("counts"))


if "TROUBLE" in os.environ:
    env = os.environ
    app = App(
        env["APP_ID"],
        topology=describe,
        config=StreamsConfig(
            env["APP_ID"],
            bootstrap_servers=env["BOOTSTRAP"],
            commit_interval_ms=200,
            session_timeout_ms=6_000,
            max_poll_interval_ms=40_000,  # the worker is stuck after a quarter of it
            dead_letter_queue_topic=env["DEAD"],
            processing_exception_handler="continue",
        ),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
        broker_commit_interval=0.2,
    )

    @app.consume(
        env["ORDERS"],
        on_error="dead_letter",
        value_serde=TEXT,
        commit_interval_ms=200,
        buffer_records=100,
        buffer_bytes=4_096,
    )
    async def charge(record: ConsumerRecord[bytes, str]) -> None:
        while trouble() == "hang":
            await asyncio.sleep(0.05)
        if record.value == "bad":
            raise ValueError(record.value)

    @app.agent(app.topic(env["NOTES"], value_serializer="raw", key_serializer="raw"))
    async def note(stream):  # type: ignore[no-untyped-def]
        async for value in stream:
            while trouble() == "hang":
                await asyncio.sleep(0.05)
            if value == b"bad":
                raise ValueError(value)
