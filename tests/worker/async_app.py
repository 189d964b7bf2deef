"""Counts behind an asynchronous step, which takes its time now and then; re-keyed by it if REKEY is set."""

from __future__ import annotations

import asyncio
import json
import os
from zlib import crc32

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.serdes import LongSerde, StringSerde

TEXT, NUMBER = StringSerde(), LongSerde()
calls = 0


async def look_up(key: str, value: str) -> tuple[str, str]:
    global calls
    calls += 1
    slow = crc32(f"{key}{calls}".encode()) % 50 == 0
    if os.environ.get("HANG") == key:
        await asyncio.sleep(600)
    await asyncio.sleep(0.2 if slow else 0.001)
    return key, value


async def look_up_value(key: str, value: str) -> str:
    return (await look_up(key, value))[1]


def describe(builder: StreamsBuilder) -> None:
    env = os.environ
    source = builder.stream(env["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    if "REKEY" in env:
        found = source.map_async(look_up, concurrency=64)
    else:
        found = source.map_values_async(look_up_value, with_key=True, concurrency=64)
    found.group_by_key(key_serde=TEXT, value_serde=TEXT).count(
        materialized=Materialized("counts", key_serde=TEXT, value_serde=NUMBER, caching=False)
    ).to_stream().to(env["SINK"], key_serde=TEXT, value_serde=NUMBER)


if "APP_ID" in os.environ:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        **{"commit_interval_ms": 200, "session_timeout_ms": 6_000, **json.loads(env.get("CONFIG", "{}"))},
    )
    app = App(
        env["APP_ID"], topology=describe, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )
