"""The topology that the broker tests run: it counts records by key."""

from __future__ import annotations

from streamapp.engine.processor import Processor, ProcessorContext
from streamapp.records import Record
from streamapp.serdes import LongSerde, StringSerde
from streamapp.state.kinds import KeyValue
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


def counting(source: str | list[str], sink: str, *, persistent: bool = True) -> Topology:
    topology = Topology()
    topics = [source] if isinstance(source, str) else source
    topology.add_source("in", *topics, key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("count", Count, "in")
    counts = StoreSpec(
        name="counts", kind=KeyValue(), key_serde=TEXT, value_serde=NUMBER, persistent=persistent
    )
    topology.add_state_store(counts, "count")
    topology.add_sink("out", sink, "count", key_serde=TEXT, value_serde=NUMBER)
    return topology
