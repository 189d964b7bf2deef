"""Proof by addition: a new kind of store is one file, and everything around takes it. This is that file."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from store_harness import FakeTask

from streamapp import (
    InvalidStoreError,
    ListSerde,
    LongSerde,
    Need,
    Processor,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
    compare_topologies,
)
from streamapp.query import KeyQuery, RangeQuery, TimestampedKeyQuery
from streamapp.records import RecordBatch
from streamapp.runners.spark.handover_write import compacted_topics
from streamapp.runners.spark.result import OutputTable
from streamapp.runners.spark.table_rows import readable, table_batches
from streamapp.state.backend import WriteSet
from streamapp.state.cache import RecordCache
from streamapp.state.key_value import KeyValueStore
from streamapp.state.kinds import KeyValue
from streamapp.state.open import open_store
from streamapp.state.rocks import RocksBackend
from streamapp.state.row_shape import BY_KEY
from streamapp.state.spec import StoreSpec
from streamapp.state.store_kind import StoreKind, register
from streamapp.topology.snapshot import snapshot
from streamapp.web.scan import count, get, read_page, row_to_json
from streamapp.web.table_request import parse_query
from streamapp.web.view_source import TableInfo

TEXT, NUMBER = StringSerde(), LongSerde()


class HighestStore(KeyValueStore):
    """The ``most`` highest values of each key, the highest first."""

    def __init__(self, *opened: Any, most: int) -> None:
        super().__init__(*opened)
        self._most = most

    def offer(self, key: str, value: int) -> bool:
        """Takes a value if it is among the highest of its key."""
        known = self.get(key) or []
        highest = heapq.nlargest(self._most, [*known, value])
        if highest != known:
            self.put(key, highest)
        return highest != known


@register
@dataclass(frozen=True, kw_only=True)
class Highest(StoreKind):
    persistent_name = "toy-highest"
    shape = BY_KEY
    store_class = HighestStore
    drops_rows = True

    most: int

    @property
    def topic_config(self) -> dict[str, str]:
        return super().topic_config | {"min.cleanable.dirty.ratio": "0.1"}

    @property
    def layout_details(self) -> str:
        return str(self.most)


def highest(most: int = 2, **more: Any) -> StoreSpec[HighestStore]:
    return StoreSpec(
        name="highest",
        kind=Highest(most=most),
        key_serde=TEXT,
        value_serde=ListSerde(NUMBER),
        **more,
    )


def built(spec: StoreSpec[HighestStore]):
    class Keep(Processor):
        stores = (spec,)

        def init(self, context):
            self.context, self.highest = context, context.get_state_store(spec)

        def process(self, record):
            if self.highest.offer(record.key, record.value):
                self.context.forward(record)

    builder = StreamsBuilder(StreamsConfig("app"))
    delays = builder.stream("delays", key_serde=TEXT, value_serde=NUMBER)
    delays.process(Keep, name="keep").to("news", key_serde=TEXT, value_serde=NUMBER)
    return builder.build()


@pytest.fixture
def driver():
    with TopologyTestDriver(built(highest()), StreamsConfig("app")) as driver:
        delays = driver.create_input_topic("delays", TEXT, NUMBER, start_ms=0)
        delays.pipe_key_values([("JFK", 5), ("BOS", 1), ("JFK", 3), ("JFK", 4), ("JFK", 1), ("JFK", 9)])
        yield driver


def test_a_processor_works_with_it(driver):
    news = driver.create_output_topic("news", TEXT, NUMBER).read_key_values()
    assert news == [("JFK", 5), ("BOS", 1), ("JFK", 3), ("JFK", 4), ("JFK", 9)]
    assert list(driver.store("highest").all()) == [("BOS", [1]), ("JFK", [9, 5])]


def test_the_plan_has_its_changelog_with_its_settings_and_remembers_its_name():
    plan = built(highest(topic_config={"segment.bytes": "1000000"})).plan()
    (topic,) = (topic for topic in plan.internal_topics if topic.kind == "changelog")
    assert topic.name == "app-highest-changelog"
    assert topic.config == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.bytes": "1000000",
    }
    assert snapshot(plan)["stores"]["highest"]["kind"] == "toy-highest"
    (sub,) = plan.subtopologies
    assert compacted_topics(sub) == {topic.name: "highest"}


def test_it_is_restored_from_its_changelog_on_disk(driver, tmp_path):
    logged = driver.produced["app-highest-changelog"]
    assert [(r.key, r.timestamp) for r in logged] == [
        (key, 0) for key in (b"JFK", b"BOS", b"JFK", b"JFK", b"JFK")
    ]
    keys, values = [r.key for r in logged], [r.value for r in logged]
    spec, backend = replace(driver.store("highest").spec, name="s"), RocksBackend(tmp_path)
    store = open_store(spec, backend.table("s"), FakeTask(), RecordCache(1_000))
    writes = WriteSet()
    store.restore(RecordBatch(keys, values, [0] * 5, range(5), [()] * 5), writes)
    backend.write(writes)
    assert list(store.all()) == list(driver.store("highest").all())
    store.offer("BOS", 7)
    store.log_dirty()
    writes = WriteSet()
    store.drain(writes)
    backend.write(writes)
    backend.close()
    backend = RocksBackend(tmp_path)
    assert open_store(spec, backend.table("s"), FakeTask()).get("BOS") == [7, 1]
    backend.close()


def test_interactive_queries_know_its_rows(driver):
    assert driver.query("highest", KeyQuery("JFK")).value == [9, 5]
    assert list(driver.query("highest", RangeQuery("A", "C")).value) == [("BOS", [1])]
    refused = driver.query("highest", TimestampedKeyQuery("JFK"))
    assert refused.message == "store highest of kind toy-highest cannot answer a TimestampedKeyQuery"


def test_views_show_its_rows(driver):
    store = driver.store("highest")
    table = TableInfo("highest", Highest(most=2), None, TEXT, ListSerde(NUMBER), {0: None}, frozenset({0}))
    page = read_page(store, table, 0, parse_query(table, {"from": "C"}))
    assert [row_to_json(table, row) for row in page.rows] == [{"key": "JFK", "value": [9, 5], "partition": 0}]
    row = get(store, table, 0, parse_query(table, {}, "BOS"))
    assert json.dumps(row_to_json(table, row)) == '{"key": "BOS", "value": [1], "partition": 0}'
    assert count(store) == 2


def test_it_is_a_table_of_spark(driver):
    store = driver.store("highest")
    assert readable(store.spec)
    (batch,) = table_batches({"highest": store}, 0, {})
    rows = batch.to_pydict()
    assert rows["key"] == [b"BOS", b"JFK"]
    assert rows["value"] == [ListSerde(NUMBER).serialize(value) for value in ([1], [9, 5])]
    assert rows["timestamp"] == rows["start"] == [None, None]
    assert OutputTable(store.spec, None).spec.kind.shape.columns == {}


def test_a_change_of_it_is_noticed():
    two, three = built(highest(2)).plan(), built(highest(3)).plan()
    assert two.fingerprint == built(highest(2)).plan().fingerprint
    assert two.fingerprint != three.fingerprint
    assert compare_topologies(snapshot(two), three).need is Need.MIGRATION
    other = StoreSpec(name="highest", kind=KeyValue(), key_serde=TEXT, value_serde=ListSerde(NUMBER))
    assert compare_topologies(snapshot(two), built(other).plan()).need is Need.RESET


def test_a_name_belongs_to_one_kind():
    with pytest.raises(InvalidStoreError, match="'session' of Mine is that of Session"):

        @register
        @dataclass(frozen=True)
        class Mine(StoreKind):
            persistent_name = "session"
