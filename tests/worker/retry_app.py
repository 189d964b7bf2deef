"""Looks each record up in a service that a file puts into trouble: bad keys, or down altogether."""

from __future__ import annotations

import json
import os
from pathlib import Path

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import StreamsBuilder
from streamapp.on_error import Backoff, Retry
from streamapp.serdes import StringSerde

TEXT = StringSerde()


def look_up(key: str, value: str) -> str:
    trouble = json.loads(Path(os.environ["TROUBLE"]).read_text())
    if trouble["down"]:
        raise ConnectionError("the service is down")
    if key in trouble["bad"]:
        raise ValueError(f"no {key}")
    return value


def describe(builder: StreamsBuilder) -> None:
    env = os.environ
    times = json.loads(env.get("TIMES", "null"))
    if env.get("RETRY") == "topics":
        retry = Retry.topics(500, 500)
    else:
        by = Retry.in_place if env.get("RETRY") == "in_place" else Retry.by_key
        retry = by(times=times, backoff=Backoff(100, limit=400), max_records=int(env.get("MOST", "10000")))
    source = builder.stream(env["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    source.map_values(look_up, with_key=True, on_error=retry, name="look-up").to(
        env["SINK"], key_serde=TEXT, value_serde=TEXT
    )


if "APP_ID" in os.environ:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        dead_letter_queue_topic=env["DEAD"],
        **{"commit_interval_ms": 200, "session_timeout_ms": 6_000, **json.loads(env.get("CONFIG", "{}"))},
    )
    app = App(
        env["APP_ID"], topology=describe, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )
