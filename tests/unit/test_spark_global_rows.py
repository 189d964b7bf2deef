"""`GlobalRows`, which builds the rows of one global store in an executor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from streamapp import (
    LongSerde,
    Materialized,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopicPartition,
)
from streamapp.records import RecordBatch
from streamapp.runners.spark.table_rows import GlobalRows

TEXT = StringSerde()
NOW = 1_700_000_000_000


class Arrival:
    """Keeps the time at which each key came."""

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store("arrivals")

    def process(self, record: Any) -> None:
        self.store.put(record.key, self.context.current_system_time_ms())

    def close(self) -> None: ...


class Counted(StringSerde):
    """Keeps the values that were read."""

    read: ClassVar[list[bytes]] = []

    @staticmethod
    def deserialize(data: bytes) -> str:
        Counted.read.append(data)
        return data.decode()


def test_processors_see_the_clock_of_the_run_and_only_the_records_of_their_topic() -> None:
    builder = StreamsBuilder(StreamsConfig("app"))
    spec = replace(Stores.key_value("arrivals", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "arrivals", Arrival, key_serde=TEXT, value_serde=TEXT)
    builder.global_table("other", key_serde=TEXT, value_serde=Counted(), materialized=Materialized("other"))
    plan = builder.build().plan(StreamsConfig("app"))
    one = RecordBatch([b"a"], [b"1"], [5], range(1), [()])
    records = [(TopicPartition("other", 0), one), (TopicPartition("arrivals", 0), one)]
    (rows,) = GlobalRows(plan, "arrivals", lambda: records, NOW)(iter(()))
    (value,) = rows.column("value").to_pylist()
    assert rows.column("key").to_pylist() == [b"a"]
    assert LongSerde().deserialize(value) == NOW
    assert Counted.read == []
