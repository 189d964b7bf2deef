"""The counting application with any setting of `StreamsConfig`, as JSON in the environment. With HANGS each record
is handled for ten minutes, with RANDOM each result is another one whenever it is made. With LISTENERS, listeners print
their calls; with LISTENERS=raise, one raises."""

from __future__ import annotations

import json
import os
import time
import uuid

from streamapp import StandbyUpdateListener, StateRestoreListener
from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import StreamsBuilder

from .counting import TEXT, counting


def hangs(builder: StreamsBuilder) -> None:
    stream = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    stream.peek(lambda key, value: print("in hand", flush=True)).foreach(lambda key, value: time.sleep(600))


def random(builder: StreamsBuilder) -> None:
    stream = builder.stream(os.environ["SOURCE"], key_serde=TEXT, value_serde=TEXT)
    stream.map_values(lambda value: uuid.uuid4().hex).to(os.environ["SINK"], key_serde=TEXT, value_serde=TEXT)


class Restores(StateRestoreListener):
    def on_restore_start(self, partition, store, start, end):  # type: ignore[no-untyped-def]
        print(f"restore of {store} {partition.partition} starts at {start}", flush=True)

    def on_batch_restored(self, partition, store, batch_end, restored):  # type: ignore[no-untyped-def]
        print(f"restore of {store} {partition.partition} takes {restored} records", flush=True)

    def on_restore_end(self, partition, store, restored):  # type: ignore[no-untyped-def]
        print(f"restore of {store} {partition.partition} ends with {restored} records", flush=True)
        if os.environ["LISTENERS"] == "raise":
            raise RuntimeError("no")


class Copies(StandbyUpdateListener):
    def on_update_start(self, partition, store, start):  # type: ignore[no-untyped-def]
        print(f"copy of {store} {partition.partition} starts at {start}", flush=True)

    def on_update_suspended(self, partition, store, offset, end, reason):  # type: ignore[no-untyped-def]
        print(f"copy of {store} {partition.partition} is {reason}", flush=True)


if "APP_ID" in os.environ:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        **{"commit_interval_ms": 200, "session_timeout_ms": 6_000, **json.loads(env.get("CONFIG", "{}"))},
    )
    topology = (
        hangs
        if "HANGS" in env
        else random
        if "RANDOM" in env
        else counting(env["SOURCE"], env["SINK"], persistent=env.get("STORE", "rocksdb") == "rocksdb")
    )
    app = App(
        env["APP_ID"],
        topology=topology,
        config=config,
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
        shutdown_timeout=float(env.get("SHUTDOWN", "30")),
        state_restore_listener=Restores() if "LISTENERS" in env else None,
        standby_update_listener=Copies() if "LISTENERS" in env else None,
    )
