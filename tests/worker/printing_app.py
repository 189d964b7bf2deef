"""Prints each record, and writes nothing."""

from __future__ import annotations

import os

from streamapp import App, StreamsBuilder, StreamsConfig, StringSerde, Topology

TEXT = StringSerde()


def describe(builder: StreamsBuilder, topic: str | None = None) -> None:
    builder.stream(topic or os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT).foreach(print)


def printing(topic: str) -> Topology:
    builder = StreamsBuilder()
    describe(builder, topic)
    return builder.build()


if "APP_ID" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=describe,
        config=StreamsConfig(commit_interval_ms=200, processing_guarantee=os.environ["GUARANTEE"]),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
