"""`planned_schemas` has each subject that tasks register, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    AvroSerde,
    BufferConfig,
    FixedKeyProcessor,
    JoinWindows,
    Materialized,
    Record,
    Retry,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    TopologyTestDriver,
)
from streamapp.serdes import Serde
from streamapp.serdes.schema_registry import Schema, SchemaFormat
from streamapp.topology.compat import Need, compare_topologies
from streamapp.topology.plan import Plan
from streamapp.topology.schemas import planned_schemas


class NotingRegistry:
    """A registry that notes the subjects for which a writer asks."""

    def __init__(self) -> None:
        self.subjects: set[str] = set()

    def id_of(self, subject: str, schema: Schema, format: SchemaFormat = "AVRO") -> int:
        self.subjects.add(subject)
        return 1

    def schema_of(self, schema_id: int, format: SchemaFormat = "AVRO") -> Schema:
        return "string"


REGISTRY = NotingRegistry()


def text() -> Serde[str]:
    return AvroSerde("string", registry=REGISTRY)


def both() -> dict[str, Any]:
    return {"key_serde": text(), "value_serde": text()}


def latest(old: str, new: str) -> str:
    return new


def reduced(b: StreamsBuilder, **options: Any) -> Any:
    return (
        b.stream("in", **both()).group_by_key().reduce(latest, materialized=Materialized("store", **options))
    )


def windowed(b: StreamsBuilder, windows: Any, **options: Any) -> Any:
    grouped = b.stream("in", **both()).group_by_key().windowed_by(windows)
    table = grouped.reduce(latest, materialized=Materialized("store", **options))
    return table.to_stream().select_key(lambda window, _: window.key)


def with_windowed_keys(b: StreamsBuilder) -> None:
    grouped = b.stream("in", **both()).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    grouped.reduce(latest).to_stream().to("out", key_serde=TimeWindowedSerde(text(), 10), value_serde=text())


def tables(b: StreamsBuilder, join: str = "join", **options: Any) -> Any:
    left, right = b.table("in", **both()), b.table("other", **both())
    return getattr(left, join)(right, "{}{}".format, **options).to_stream()


def by_foreign_key(b: StreamsBuilder, join: str = "join") -> Any:
    return tables(b, join, foreign_key=lambda value: value, name="fk")


def streams(b: StreamsBuilder) -> Any:
    left, right = b.stream("in", **both()), b.stream("other", **both())
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    return left.outer_join(right, "{}{}".format, windows, stream_joined=StreamJoined("j", "j"))


def buffered(b: StreamsBuilder) -> Any:
    table = b.table("other", **both(), materialized=Materialized("store", history_retention=100))
    return b.stream("in", **both()).join(table, "{}{}".format, grace=10, name="slow")


def of_global_table(b: StreamsBuilder) -> Any:
    table = b.global_table("other", **both())
    return b.stream("in", **both()).join(table, "{}{}".format, key_selector=lambda key, _: key)


def regrouped(b: StreamsBuilder) -> Any:
    table = b.table("in", **both())
    return table.group_by(lambda key, value: (value, key), **both()).reduce(latest, latest).to_stream()


def suppressed(b: StreamsBuilder) -> Any:
    until = Suppressed.until_time_limit(5, BufferConfig.unbounded(), name="late")
    return reduced(b).suppress(until).to_stream()


def fails(value: str) -> str:
    if value == "x":
        raise ValueError(value)
    return value


def retried(b: StreamsBuilder, retry: Retry) -> Any:
    return b.stream("in", **both()).map_values(fails, name="call", on_error=retry)


def in_a_processor(b: StreamsBuilder) -> Any:
    b.add_state_store(Stores.key_value("own", text(), text(), logging=False))
    return b.stream("in", **both()).process_values(Keep, "own")


class Keep(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("own").put(record.key, record.value)
        self.context.forward(record)


CASES: dict[str, Callable[[StreamsBuilder], Any]] = {
    "records": lambda b: b.stream("in", **both()),
    "records that are keyed anew": lambda b: (
        b.stream("in", **both()).select_key(lambda k, v: v).repartition()
    ),
    "a table": lambda b: reduced(b).to_stream(),
    "a table in memory": lambda b: reduced(b, store_type="in_memory").to_stream(),
    "a table without a changelog": lambda b: reduced(b, logging=False).to_stream(),
    "a table in memory without a changelog": lambda b: reduced(
        b, logging=False, store_type="in_memory"
    ).to_stream(),
    "a table whose changelog is its topic": lambda b: tables(b),
    "a versioned table": lambda b: reduced(b, history_retention=50).to_stream(),
    "windows": lambda b: windowed(b, TimeWindows.of_size_with_no_grace(10)),
    "windows without a changelog": lambda b: windowed(
        b, TimeWindows.of_size_with_no_grace(10), logging=False
    ),
    "windows as keys": with_windowed_keys,
    "sessions": lambda b: windowed(b, SessionWindows.of_inactivity_gap_with_no_grace(10)),
    "a table that is grouped anew": regrouped,
    "a join of tables": tables,
    "a join of streams": streams,
    "a join by a foreign key": by_foreign_key,
    "a left join by a foreign key": lambda b: by_foreign_key(b, "left_join"),
    "a buffer of a join with grace": buffered,
    "a global table": of_global_table,
    "a suppression": suppressed,
    "a retry in a store": lambda b: retried(b, Retry.by_key(then="skip")),
    "a retry in topics": lambda b: retried(b, Retry.topics(1, then="skip")),
    "a store of a processor": in_a_processor,
}

RECORDS = (
    ("other", "k", "o"),
    ("in", "k", "x"),
    ("in", "l", "y"),
    ("in", "k", "y"),
    ("other", "y", "p"),
    ("in", "z", "k"),
    ("in", "k", "x"),
    ("other", "q", "q"),
    ("in", "z", "a"),
)


@pytest.mark.parametrize("case", CASES)
def test_the_plan_has_each_subject_that_tasks_register(case: str) -> None:
    optimized = "all" if case == "a table whose changelog is its topic" else "none"
    config = StreamsConfig(
        "app", default_key_serde=text(), default_value_serde=text(), topology_optimization=optimized
    )
    b = StreamsBuilder(config)
    stream = CASES[case](b)
    if stream is not None:
        stream.to("out", **both())
    topology = b.build()
    encode = text().bind("somewhere", False).serialize
    data = {(key, value): (encode(key), encode(value)) for _, key, value in RECORDS}
    REGISTRY.subjects.clear()
    plan = topology.plan()
    with TopologyTestDriver(topology) as driver:
        for time, (topic, key, value) in enumerate(RECORDS):
            if topic in plan.source_topics:
                driver.pipe_raw(topic, *data[key, value], time * 7)
    assert {each.subject for each in planned_schemas(plan) if each.writes} == REGISTRY.subjects


def counted_as_records(kind: str) -> Plan:
    """A topic and a store share a schema, with a field of this type, under one subject."""
    record = {"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": kind}]}
    value: Serde[Any] = AvroSerde(record, registry=REGISTRY, subject_strategy="record")
    b = StreamsBuilder(StreamsConfig("app"))
    grouped = b.stream("in", key_serde=text(), value_serde=value).group_by_key()
    grouped.reduce(lambda old, new: new, materialized=Materialized("store", value_serde=value))
    return b.build().plan()


def test_a_schema_of_a_topic_and_of_a_store_counts_as_the_stores() -> None:
    """`streamapp compat` forgot that the store has such values, and said "migration"."""
    old, new = counted_as_records("long"), counted_as_records("string")
    internal = {each.subject: each.internal for each in planned_schemas(old)}
    assert internal == {"in-key": False, "Flight": True, "app-store-changelog-key": True}
    found = compare_topologies(old, new).findings
    assert [each.need for each in found if each.subject == "schema Flight"] == [Need.RESET]
