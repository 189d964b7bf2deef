"""The application that the broker tests run in processes of their own: it counts records by key, told by its
environment."""

from __future__ import annotations

import os

from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.engine.processor import Processor, ProcessorContext
from streamapp.records import Record
from streamapp.serdes import LongSerde, StringSerde
from streamapp.state.spec import StoreSpec
from streamapp.topology import Topology

TEXT, NUMBER = StringSerde(), LongSerde()


class Count(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")

    def process(self, record: Record) -> None:
        if record.value == "poison":
            raise ValueError("this record cannot be counted")
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


def counting(source: str, sink: str, *, persistent: bool = True) -> Topology:
    topology = Topology()
    topology.add_source("in", source, key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("count", Count, "in")
    counts = StoreSpec(
        name="counts", kind="key_value", key_serde=TEXT, value_serde=NUMBER, persistent=persistent
    )
    topology.add_state_store(counts, "count")
    topology.add_sink("out", sink, "count", key_serde=TEXT, value_serde=NUMBER)
    return topology


def from_environment() -> App:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        processing_guarantee=env.get("GUARANTEE", "at_least_once"),  # type: ignore[arg-type]
        commit_interval_ms=int(env.get("COMMIT_MS", "200")),
        session_timeout_ms=6_000,
    )
    topology = counting(env["SOURCE"], env["SINK"], persistent=env.get("STORE", "rocksdb") == "rocksdb")
    return App(
        env["APP_ID"], topology=topology, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )


if "APP_ID" in os.environ:
    app = from_environment()

    if "PLAIN_TOPIC" in os.environ:

        @app.agent(app.topic(os.environ["PLAIN_TOPIC"], value_serializer="raw"))
        async def shout(stream):  # type: ignore[no-untyped-def]
            """A plain Faust agent beside the topology."""
            async for value in stream:
                await app.topic(os.environ["PLAIN_TOPIC"] + "-out", value_serializer="raw").send(
                    value=value.upper()
                )
