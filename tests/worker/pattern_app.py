"""Counts the records of all topics whose names begin with SOURCE. The worker looks for new topics twice a second."""

from __future__ import annotations

import os
import re

from streamapp import App, BytesSerde, LongSerde, Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.runners.worker import pattern_topics

env = os.environ
TEXT = StringSerde()


def describe(builder: StreamsBuilder) -> None:
    records = builder.stream(re.compile(env["SOURCE"] + ".*"), key_serde=TEXT, value_serde=BytesSerde())
    counts = records.group_by_key().count(materialized=Materialized("counts", value_serde=LongSerde()))
    counts.to_stream().to(env["SINK"], key_serde=TEXT, value_serde=LongSerde())


if "APP_ID" in env:
    pattern_topics.LOOK_SECONDS = 0.5
    app = App(
        env["APP_ID"],
        topology=describe,
        config=StreamsConfig(
            env["APP_ID"],
            bootstrap_servers=env["BOOTSTRAP"],
            processing_guarantee="exactly_once_v2",
            num_standby_replicas=1,
            session_timeout_ms=6_000,
        ),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
    )
