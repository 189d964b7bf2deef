"""Small things that a user of Kafka Streams counts on."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamapp import (
    App,
    ConfigError,
    FixedKeyProcessor,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    Topology,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.testing import try_out

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}


def by_first_letter(key: str, value: str) -> tuple[str, str] | None:
    return None if value == "" else (value[0], value)


def test_a_row_without_pair_takes_no_part_in_a_grouped_table() -> None:
    rows = [("r1", "ant"), ("r2", ""), ("r1", ""), ("r2", "ape"), ("r2", "bee"), ("r1", None)]
    counts = try_out(lambda stream: stream.to_table().group_by(by_first_letter).count(), rows)
    assert counts == [("a", 1), ("a", 0), ("a", 1), ("a", 0), ("b", 1)]


class Remembering(Processor[str, str, str, str]):
    stores = (Stores.key_value("seen", TEXT, TEXT),)

    def __init__(self, mark: str = "!") -> None:
        self._mark = mark

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("seen")
        before = store.get(record.key)
        store.put(record.key, record.value)
        self.context.forward(record.with_value(f"{before}{self._mark}"))


class RememberingValues(FixedKeyProcessor[str, str, str]):
    stores = Remembering.stores
    process = Remembering.process
    _mark = "!"


@pytest.mark.parametrize("supplier", [Remembering, lambda: Remembering(), partial(Remembering, "!")])
def test_the_stores_of_a_processor_come_with_any_supplier(supplier: Any) -> None:
    def of_values() -> RememberingValues:
        return RememberingValues()

    def low_level(_: StreamsBuilder) -> Topology:
        return (
            Topology()
            .add_source("source", "in", **TEXTS)
            .add_processor("remember", supplier, "source")
            .add_sink("sink", "out", "remember", **TEXTS)
        )

    def process(builder: StreamsBuilder) -> Topology:
        builder.stream("in", **TEXTS).process(supplier).to("out", **TEXTS)
        return builder.build()

    def process_values(builder: StreamsBuilder) -> Topology:
        builder.stream("in", **TEXTS).process_values(of_values).to("out", **TEXTS)
        return builder.build()

    for described in (low_level, process, process_values):
        with TopologyTestDriver(described(StreamsBuilder())) as driver:
            piped = driver.create_input_topic("in", TEXT, TEXT)
            piped.pipe_key_values([("k", "a"), ("k", "b")])
            assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["None!", "a!"]


def test_a_class_is_not_called_while_the_topology_is_built() -> None:
    """Its objects may open connections. (Java calls ``get`` of a supplier twice, as streamapp calls a function.)"""
    made: list[object] = []

    class Counted:
        """No subclass of `Processor`, so no attribute ``stores``."""

        def __init__(self) -> None:
            made.append(self)

        def init(self, context: Any) -> None: ...

        def process(self, record: Record[str, str]) -> None: ...

        def close(self) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).process(Counted)
    builder.build()
    topology = Topology().add_source("source", "in", **TEXTS).add_processor("count", Counted, "source")
    assert made == []
    TopologyTestDriver(topology).close()
    assert len(made) == 1
    made.clear()
    builder.stream("other", **TEXTS).process(lambda: Counted())
    assert len(made) == 2


@pytest.mark.parametrize("chosen", [0, 7, None])
def test_a_partitioner_may_choose_what_the_driver_does_not_have(chosen: int | None) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).repartition(**TEXTS, partitioner=lambda *_: chosen).to(
        "out", partitioner=lambda topic, key, value, partitions: chosen
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert driver.create_output_topic("out", TEXT, TEXT).read_key_value() == ("k", "v")
        assert driver.produced["out"][0].partition == chosen


def test_no_partition_is_below_zero() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).to("out", partitioner=lambda *_: -1)
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match=r"chose partition -1 of out"),
    ):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")


@pytest.mark.parametrize(
    ("chosen", "partitions"),
    [({7, 0}, [0, 7]), ([2, 1, 2], [1, 2]), (np.array([3, 1]), [1, 3]), ((), [])],
)
def test_a_partitioner_may_choose_several_partitions_or_none(chosen: Any, partitions: list[int]) -> None:
    """KIP-837. Each partition gets the record; a record without a partition is dropped."""
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).to("out", partitioner=lambda *_: chosen, name="spread")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert [record.partition for record in driver.produced.get("out", [])] == partitions
        assert driver.drops == ({} if partitions else {("spread", "no_partition"): 1})


def test_a_record_without_a_partition_may_become_a_dead_letter() -> None:
    config = StreamsConfig("none", dead_letter_queue_topic="letters", dead_letter_drops=("no_partition",))
    builder = StreamsBuilder(config)
    builder.stream("in", **TEXTS).to("out", partitioner=lambda *_: ())
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert [(letter.key, letter.value) for letter in driver.produced["letters"]] == [(b"k", b"v")]


@pytest.mark.parametrize("chosen", [0.0, "0", [0, "1"], {None}])
def test_a_partitioner_gives_numbers(chosen: Any) -> None:
    """The driver took 0.0 as a partition."""
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).to("out", partitioner=lambda *_: chosen)
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match=r"partitioner of \S+ gave .*number of a partition, a collection"),
    ):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")


def foreign_key_join(other_partitioner: Any) -> StreamsBuilder:
    builder = StreamsBuilder(StreamsConfig("join"))
    flights, airlines = builder.table("flights", **TEXTS), builder.table("airlines", **TEXTS)
    joined = flights.join(
        airlines,
        "{} of {}".format,
        foreign_key=lambda flight: flight[:2],
        other_partitioner=other_partitioner,
        name="of",
    )
    joined.to_stream().to("out", **TEXTS)
    return builder


@pytest.mark.parametrize("choose", [lambda key: 3, lambda key: {3}])
def test_subscriptions_go_where_the_other_table_has_its_rows(choose: Any) -> None:
    """As ``TableJoined.otherPartitioner`` of Kafka Streams. The value is None, as in Java."""
    asked = []

    def by_airline(topic: str, key: Any, value: Any, partitions: int) -> Any:
        asked.append((topic, key, value, partitions))
        return choose(key)

    with TopologyTestDriver(foreign_key_join(by_airline).build()) as driver:
        driver.create_input_topic("airlines", TEXT, TEXT).pipe_input("UA", "United")
        driver.create_input_topic("flights", TEXT, TEXT).pipe_input("N1", "UA7")
        assert driver.create_output_topic("out", TEXT, TEXT).read_key_value() == ("N1", "UA7 of United")
        topic = "join-of-subscription-registration-topic"
        assert [record.partition for record in driver.produced[topic]] == [3]
    assert asked == [(topic, "UA", None, 1)]


def test_a_row_of_the_other_table_is_in_one_partition() -> None:
    with (
        TopologyTestDriver(foreign_key_join(lambda *_: {0, 1}).build()) as driver,
        pytest.raises(StreamsError, match="a row of the other table is in one partition"),
    ):
        driver.create_input_topic("flights", TEXT, TEXT).pipe_input("N1", "UA7")


def test_a_join_by_the_same_key_needs_no_other_partitioner() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXTS), builder.table("right", **TEXTS)
    with pytest.raises(TopologyError, match="other_partitioner without foreign_key"):
        left.join(right, str.__add__, other_partitioner=lambda *_: 0)


def with_handler() -> StreamsBuilder:
    return StreamsBuilder(
        StreamsConfig("built", processing_exception_handler="continue", statestore_cache_max_bytes=0)
    )


def failing() -> Topology:
    builder = with_handler()
    builder.stream("in", **TEXTS).map_values(int).map_values(str).to("out", **TEXTS)
    return builder.build()


def test_the_drivers_configuration_goes_on_top_of_the_builders() -> None:
    config = StreamsConfig("driven", commit_interval_ms=5)
    with TopologyTestDriver(failing(), config) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_key_values([("k", "no"), ("k", "1")])
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["1"]
        merged = driver.plan.config
    assert merged == with_handler()._context.config.replace(application_id="driven", commit_interval_ms=5)


def test_a_setting_that_is_given_counts_also_if_it_is_the_default() -> None:
    config = pickle.loads(pickle.dumps(StreamsConfig(processing_exception_handler="fail")))
    with (
        TopologyTestDriver(failing(), config) as driver,
        pytest.raises(StreamsError, match="invalid literal"),
    ):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "no")
    again = StreamsConfig("other").replace(processing_exception_handler="fail")
    assert failing().plan(again).config.processing_exception_handler == "fail"


def test_an_app_has_the_builders_settings_too() -> None:
    app = App(
        "driven",
        topology=failing(),
        config=StreamsConfig(bootstrap_servers="kafka-1:9092"),
        web_enabled=False,
    )
    assert app.config == app.streams.plan.config
    assert app.config.application_id == "driven"
    assert app.config.bootstrap_servers == "kafka-1:9092"
    assert app.config.processing_exception_handler == "continue"


@pytest.mark.parametrize(
    "setting",
    [
        {"topology_optimization": "all"},
        {"dsl_store_type": "in_memory"},
        {"dsl_store_format": "headers"},
        {"ensure_explicit_internal_resource_naming": True},
    ],
)
def test_a_setting_of_the_builder_that_comes_with_the_driver_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"comes too late: the topology was built with .* StreamsBuilder\(StreamsConfig\("
    ):
        TopologyTestDriver(failing(), StreamsConfig(**setting))
    builder = StreamsBuilder(StreamsConfig(**setting))
    builder.stream("in", **TEXTS).foreach(print)
    TopologyTestDriver(builder.build(), StreamsConfig(**setting)).close()
    TopologyTestDriver(Topology().add_source("in", "in", **TEXTS), StreamsConfig(**setting)).close()


def test_a_serde_that_is_missing_is_for_the_builders_configuration() -> None:
    builder = StreamsBuilder()
    with pytest.raises(
        TopologyError, match="set default_key_serde in the StreamsConfig that StreamsBuilder gets"
    ):
        builder.stream("in")
