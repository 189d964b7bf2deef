"""A store that is filled from a topic as it is (KIP-813), and orders that are priced by its rows."""

from __future__ import annotations

import os

from streamapp import App, Processor, ProcessorContext, Record, Stores, StreamsConfig, StringSerde, Topology

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


class Keep(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.rates = context.get_state_store("rates")

    def process(self, record: Record) -> None:
        self.rates.put(record.key, record.value)


class Price(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.rates = context.get_state_store("rates")

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(f"{record.value} at {self.rates.get(record.key)}"))


def priced(rates: str, orders: str, out: str) -> Topology:
    topology = Topology()
    spec = Stores.key_value("rates", StringSerde(), StringSerde())
    topology.add_read_only_state_store(spec, "read", rates, "keep", Keep, **TEXT)
    topology.add_source("orders", orders, **TEXT).add_processor("price", Price, "orders")
    topology.connect_processor_and_state_stores("price", "rates")
    return topology.add_sink("out", out, "price", **TEXT)


if "APP_ID" in os.environ:
    app = App(
        os.environ["APP_ID"],
        topology=priced(f"{os.environ['SOURCE']}-rates", os.environ["SOURCE"], os.environ["SINK"]),
        config=StreamsConfig(
            os.environ["APP_ID"],
            bootstrap_servers=os.environ["BOOTSTRAP"],
            commit_interval_ms=100,
            auto_offset_reset="latest",
        ),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
