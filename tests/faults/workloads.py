"""The application that the fault runs start in processes of their own. Environment variables choose its workload.

Variables also make the application misbehave. With ``HANG_AT=value``, the function of a record with this value never
returns. With ``SLOW_AT=number:seconds``, the first record with at least this number takes so long. With
``BUSY=seconds``, a timer blocks the event loop for so long, again and again. With ``ON_PRODUCTION``, poison is
processed, so that brokers can refuse the result.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from streamapp import (
    App,
    Backoff,
    BufferConfig,
    FixedKeyProcessor,
    KStream,
    Materialized,
    ProcessorContext,
    PunctuationType,
    Record,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
)

from .models import GRACE_MS, GROUPS, PARKS, POISON, WINDOW_MS

__all__ = ["TOPOLOGIES", "WORKLOADS", "Workload", "describe"]

TEXT = StringSerde()
SLOW = list(map(int, filter(None, os.environ.get("SLOW_AT", "").split(":"))))
_WINDOWS = TimeWindows.of_size_and_grace(timedelta(milliseconds=WINDOW_MS), timedelta(milliseconds=GRACE_MS))


class Workload(NamedTuple):
    """An application for the fault runs.

    Each stage has the suffix of its source topic, its model, and the suffix of its output topic.
    """

    stages: tuple[tuple[str, str, str], ...]
    store: str | None = None
    """The store whose changelog, and for ``counts`` whose views, are compared with the last stage."""


TOPOLOGIES = {
    "copy": Workload((("-in", "copy", "-out"),)),
    "count": Workload((("-in", "count", "-out"),), "counts"),
    "window": Workload((("-in", "window", "-out"),), "windows"),
    "final": Workload((("-in", "final", "-out"),)),
    "join": Workload((("-in", "join", "-out"),)),
    "retried": Workload((("-in", "retried", "-out"),)),
    "desk": Workload((("-in", "desk", "-out"),)),
    "staged": Workload((("-in", "staged", "-out"),)),
    "rekeyed": Workload(
        (
            ("-in", "regroup", "-regrouped-repartition"),
            ("-regrouped-repartition", "count", "-out"),
        ),
        "counts",
    ),
}
WORKLOADS = {**TOPOLOGIES, "agent": TOPOLOGIES["copy"]}


def describe(builder: StreamsBuilder, workload: str, source: str, sink: str) -> None:
    """Describes the topology of a workload. The module `models` has the right outputs."""
    records = builder.stream(source, key_serde=TEXT, value_serde=TEXT)
    if workload not in PARKS:
        records = records.peek(misbehave)
    match workload:
        case "copy":
            results = records.filter(lambda key, value: value.startswith(POISON) or int(value) % 3 != 0)
        case "count":
            results = counted(records.process_values(Ticking) if "TICKS" in os.environ else records)
        case "window" | "final":
            results = windowed(records, final=workload == "final")
        case "join":
            table = builder.table(f"{source}-rows", key_serde=TEXT, value_serde=TEXT)
            results = records.join(table, lambda value, row: f"{value}:{row}")
        case "retried" | "desk":
            results = records.map_values(look_up, with_key=True, on_error=retry(), name="look-up")
        case "staged":
            results = records.map_values(look_up, with_key=True, on_error=stages(), name="look-up")
        case "rekeyed":
            regrouped = records.select_key(lambda key, value: f"g{int(value) % GROUPS}")
            results = counted(regrouped, "regrouped")
    results.to(sink, key_serde=TEXT, value_serde=TEXT)


class Ticking(FixedKeyProcessor[str, str, str]):
    """Passes records on, and has a punctuator of the wall clock that is called every 100 ms."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, lambda time: None)

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def add_agent(app: App, source: str, sink: str) -> None:
    """Adds the workload ``copy`` as an agent, to an application without a topology.

    The agent gives its results no timestamp.
    """
    records, results = (
        app.topic(name, key_serializer="raw", value_serializer="raw") for name in (source, sink)
    )

    @app.agent(records)
    async def copy(stream: Any) -> None:
        async for event in stream.events():
            value = event.value.decode()
            misbehave(event.key.decode(), value)
            if value.startswith(POISON) or int(value) % 3 != 0:
                await results.send(key=event.key, value=event.value)


def retry() -> Retry:
    """A retry by key without end, unless the environment has other settings."""
    times, most = os.environ.get("TIMES"), os.environ.get("MOST", "10000")
    wait = Retry.in_place if "IN_PLACE" in os.environ else Retry.by_key
    return wait(
        times=None if times is None else int(times),
        backoff=Backoff(100, limit=500),
        then="fail" if times is None else "dead_letter",
        max_records=int(most),
    )


def stages() -> Retry:
    """Five retry topics.

    ``SHAKY`` makes a record fail twice in each process. With two processes, these four failures do not use up the
    attempts.
    """
    then: Any = "dead_letter" if "DEAD_LETTERS" in os.environ else "fail"
    return Retry.topics(*[2_000] * 5, then=then)


def look_up(key: str, value: str) -> str:
    """Asks a service, which fails as the file ``TROUBLE`` says."""
    file = os.environ.get("TROUBLE")
    trouble = json.loads(Path(file).read_text()) if file else {"down": False, "keys": ()}
    if trouble["down"]:
        raise ConnectionError("the service is down")
    poisoned = value.startswith(POISON) and "CURED" not in os.environ
    calls[value] += 1
    every = int(os.environ.get("SHAKY", "0"))
    shaky = every and not poisoned and int(value) % every == 7 and calls[value] <= 2
    if key in trouble["keys"] or poisoned or shaky:
        raise ValueError(f"{value} cannot be looked up")
    return value


calls = Counter[str]()
"""The calls of `look_up` in this process, by value. With ``SHAKY=n``, the first two calls for every nth value fail."""


def counted(records: KStream[str, str], name: str | None = None) -> KStream[str, str]:
    return (
        records.group_by_key(key_serde=TEXT, value_serde=TEXT, name=name)
        .aggregate(lambda: "0", next_count, materialized=stored("counts"))
        .to_stream()
    )


def windowed(records: KStream[str, str], *, final: bool) -> KStream[str, str]:
    table = (
        records.group_by_key(key_serde=TEXT, value_serde=TEXT)
        .windowed_by(_WINDOWS)
        .aggregate(lambda: "0", next_count, materialized=stored("windows"))
    )
    if final:
        table = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    return table.to_stream().map(lambda window, value: (window.key, f"{window.start}:{value}"))


def next_count(key: str, value: str, count: str) -> str:
    return f"{int(count.partition(':')[0]) + 1}:{value}"


def stored(name: str) -> Materialized:
    return Materialized(name, key_serde=TEXT, value_serde=TEXT, caching=False)


def misbehave(key: str, value: str) -> None:
    if value.startswith(POISON) and "ON_PRODUCTION" not in os.environ:
        raise ValueError(f"{value} cannot be processed")
    if value == os.environ.get("HANG_AT"):
        while True:
            time.sleep(1.0)
    if SLOW and int(value) >= SLOW[0]:
        _, seconds = SLOW
        SLOW.clear()
        time.sleep(seconds)


def _application(env: os._Environ[str]) -> App:
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        processing_guarantee=env["GUARANTEE"],  # type: ignore[arg-type]
        commit_interval_ms=int(env.get("COMMIT_MS", "200")),
        session_timeout_ms=int(env.get("SESSION_MS", "6000")),
        repartition_purge_interval_ms=int(env.get("PURGE_MS", "30000")),
        max_poll_interval_ms=int(env.get("POLL_MS", "300000")),
        statestore_cache_max_bytes=0,
        processing_exception_handler=env.get("ON_ERROR", "fail"),  # type: ignore[arg-type]
        deserialization_exception_handler=env.get("ON_ERROR", "fail"),  # type: ignore[arg-type]
        production_exception_handler=env.get("ON_PRODUCTION", "fail"),  # type: ignore[arg-type]
        dead_letter_queue_topic=env.get("DEAD_LETTERS"),
        # A quota belongs to the name of a client. By default, the name has the id of the worker's process.
        client_properties={"client.id": env["APP_ID"]},
    )
    workload, source, sink = env["WORKLOAD"], env["SOURCE"], env["SINK"]
    only_agent = workload == "agent"
    app = App(
        env["APP_ID"],
        topology=None if only_agent else lambda builder: describe(builder, workload, source, sink),
        config=config,
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
        shutdown_timeout=float(env.get("SHUTDOWN_SECONDS", "30")),
        consumer_metadata_max_age_ms=int(env.get("METADATA_MS", "60000")),
    )
    if only_agent:
        add_agent(app, source, sink)
    if "BUSY" in env:

        @app.timer(interval=1.0)  # type: ignore[untyped-decorator]
        async def block() -> None:
            time.sleep(float(env["BUSY"]))

    return app


if "WORKLOAD" in os.environ:
    app = _application(os.environ)
