"""An application of which each start may run another version, which VERSION names."""

from __future__ import annotations

import os

from streamapp import (
    App,
    BytesSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
)

TEXT = StringSerde()


def topology(version: str, source: str, sink: str) -> StreamsBuilder:
    builder = StreamsBuilder(StreamsConfig("versions", default_key_serde=TEXT, default_value_serde=TEXT))
    if version == "none":
        builder.stream(source).foreach(lambda key, value: None)
        return builder
    if version == "wide":
        builder.stream(source).foreach(lambda key, value: None)
        builder.stream(f"{source}-more").foreach(lambda key, value: None)
        return builder
    if version.startswith("rekeyed"):
        stream = builder.stream(source)
        if version == "rekeyed-later":
            stream = stream.filter(lambda key, value: True)
        by_value = stream.select_key(lambda key, value: key).group_by_key()
        by_value.count().to_stream().to(sink, value_serde=LongSerde())
        return builder
    if version.startswith("named"):
        serdes = {"key_serde": TEXT, "value_serde": BytesSerde() if version == "named-bytes" else TEXT}
        grouped = builder.stream(source, **serdes).group_by(lambda key, value: key, name="by-key", **serdes)
        counts = grouped.count(materialized=Materialized("all"))
        counts.to_stream().to(sink, value_serde=LongSerde())
        return builder
    stream = builder.stream(source)
    if version == "one-loud":
        stream = stream.peek(lambda key, value: print(key, flush=True))
    grouped = stream.group_by_key()
    if version in ("ten", "five"):
        minutes = 10 if version == "ten" else 5
        windows = TimeWindows.of_size_with_no_grace(minutes * 60_000)
        counts = grouped.windowed_by(windows).count(materialized=Materialized("counts"))
        counts.to_stream().map(lambda key, value: (key.key, value)).to(sink, value_serde=LongSerde())
        return builder
    counts = grouped.count(materialized=Materialized("all"))
    if version == "two":
        grouped.count(materialized=Materialized("more"))
    counts.to_stream().to(sink, value_serde=LongSerde())
    return builder


if "APP_ID" in os.environ:
    env = os.environ
    app = App(
        env["APP_ID"],
        topology=topology(env["VERSION"], env["SOURCE"], env["SINK"]).build(),
        config=StreamsConfig(
            env["APP_ID"],
            bootstrap_servers=env["BOOTSTRAP"],
            commit_interval_ms=200,
            session_timeout_ms=int(env.get("SESSION_MS", "6000")),
            group_instance_id=env.get("INSTANCE"),
        ),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
    )
