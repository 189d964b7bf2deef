"""Features beyond Kafka Streams, side by side: late records, an idle time-out, rows that expire.

The changes of windows that have expired leave the changelog.

Each reads a topic of its own, one partition wide: ``SOURCE-late``, ``SOURCE-idle``, ``SOURCE-ttl``.
"""

from __future__ import annotations

import os
from datetime import timedelta

from streamapp import (
    App,
    EmitStrategy,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
)

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}
SECONDS = TimeWindows.of_size_with_no_grace(timedelta(seconds=1))


def describe(builder: StreamsBuilder) -> None:
    source, sink = os.environ["SOURCE"], os.environ["SINK"]
    stream = builder.stream(f"{source}-late", **TEXT)
    counts = stream.group_by_key().windowed_by(SECONDS).count(materialized=Materialized("seconds"))
    counts.late_records(name="late").to(f"{sink}-late", **TEXT)

    quiet = builder.stream(f"{source}-idle", **TEXT).group_by_key().windowed_by(SECONDS)
    final = quiet.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_timeout=timedelta(seconds=1)).count()
    final.to_stream().map(lambda window, count: (window.key, str(count))).to(f"{sink}-idle", **TEXT)

    rows = Materialized("rows", ttl=timedelta(seconds=10))
    table = builder.table(f"{source}-ttl", **TEXT, materialized=rows, on_error="skip", name="kept")
    table.to_stream().to(f"{sink}-ttl", **TEXT)


if "APP_ID" in os.environ:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        commit_interval_ms=100,
        session_timeout_ms=6_000,
        repartition_purge_interval_ms=300,
    )
    app = App(
        env["APP_ID"], topology=describe, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )
