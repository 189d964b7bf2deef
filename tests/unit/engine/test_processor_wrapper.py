"""The setting ``processor_wrapper`` (KIP-1112): a function around each processor of a topology."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamapp import (
    FixedKeyProcessor,
    JoinWindows,
    LongSerde,
    Materialized,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.errors import ConfigError

TEXT: dict[str, Any] = {"key_serde": StringSerde(), "value_serde": StringSerde()}
Process = Callable[[Record], None]


class Keep(Processor):
    def process(self, record: Record) -> None:
        self.context.get_state_store("rows").put(record.key, record.value)


class Exclaim(FixedKeyProcessor):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(f"{record.value}!"))


def driver(
    describe: Callable[[StreamsBuilder], Any], wrapper: Callable[[str, Process], Process], **settings: Any
) -> TopologyTestDriver:
    config = StreamsConfig("wrapped", statestore_cache_max_bytes=0, processor_wrapper=wrapper, **settings)
    builder = StreamsBuilder(config)
    describe(builder)
    return TopologyTestDriver(builder.build())


def pipe(driver: TopologyTestDriver, *records: tuple[Any, ...], topic: str = "in") -> None:
    written = driver.create_input_topic(topic, StringSerde(), StringSerde())
    for record in records:
        written.pipe_input(*record)


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return driver.create_output_topic(topic, StringSerde(), StringSerde()).read_values()


def test_a_wrapper_sees_each_record_of_each_processor_in_order() -> None:
    seen: list[tuple[Any, ...]] = []

    def noting(name: str, process: Process) -> Process:
        def note(record: Record) -> None:
            seen.append((name, record.value))
            process(record)
            seen.append((name, "done"))

        return note

    def describe(builder: StreamsBuilder) -> None:
        words = builder.stream("in", **TEXT)
        loud = words.process_values(Exclaim, name="exclaim")
        loud.merge(words, name="merge").group_by_key(**TEXT).count(
            materialized=Materialized("counts"), name="count"
        ).to_stream(name="changes").to("out", key_serde=StringSerde(), value_serde=LongSerde())

    with driver(describe, noting) as running:
        pipe(running, ("a", "to"))
        assert running.store("counts").get("a") == (2, 0)
    assert seen == [
        ("exclaim", "to"),
        ("merge", "to!"),
        ("count", "to!"),
        ("changes", (1, None, True)),
        ("changes", "done"),
        ("count", "done"),
        ("merge", "done"),
        ("exclaim", "done"),
        ("merge", "to"),
        ("count", "to"),
        ("changes", (2, None, True)),
        ("changes", "done"),
        ("count", "done"),
        ("merge", "done"),
    ]


def test_a_wrapper_sees_processors_of_global_stores_and_both_sides_of_a_join() -> None:
    seen: list[str] = []

    def noting(name: str, process: Process) -> Process:
        return lambda record: (seen.append(name), process(record))[1]

    def describe(builder: StreamsBuilder) -> None:
        spec = replace(Stores.key_value("rows", StringSerde(), StringSerde()), logged=False)
        builder.add_global_store(spec, "rates", Keep, **TEXT, name="keep")
        left, right = builder.stream("in", **TEXT), builder.stream("right", **TEXT)
        windows = JoinWindows.of_time_difference_with_no_grace(10)
        left.join(right, lambda a, b: a + b, windows).to("out", **TEXT)

    with driver(describe, noting) as running:
        pipe(running, ("a", "1"), topic="rates")
        pipe(running, ("a", "1", 5))
        pipe(running, ("a", "2", 6), topic="right")
        assert running.store("rows").get("a") == "1"
        assert values(running) == ["12"]
    assert seen[0] == "keep"
    assert [name.rstrip("0123456789-") for name in seen[1:]] == [
        "KSTREAM-WINDOWED",
        "KSTREAM-JOINTHIS",
        "KSTREAM-WINDOWED",
        "KSTREAM-JOINOTHER",
        "KSTREAM-MERGE",
    ]


def test_a_wrapper_may_drop_repeat_and_change_records() -> None:
    def changing(name: str, process: Process) -> Process:
        def change(record: Record) -> None:
            if record.value != "drop":
                process(record.with_value(record.value * 2).with_timestamp(7))
                process(record)

        return change if name == "map" else process

    with driver(
        lambda builder: builder.stream("in", **TEXT).map_values(str.upper, name="map").to("out", **TEXT),
        changing,
    ) as running:
        pipe(running, ("a", "to", 3), ("a", "drop", 4))
        records = running.create_output_topic("out", StringSerde(), StringSerde()).read_records()
    assert [(record.value, record.timestamp) for record in records] == [("TOTO", 7), ("TO", 3)]


def raising(name: str, process: Process) -> Process:
    def check(record: Record) -> None:
        if record.value == "BAD":
            raise ValueError("refused")
        process(record)

    return check if name == "second" else process


def two_steps(builder: StreamsBuilder) -> None:
    first = builder.stream("in", **TEXT).map_values(str.upper, name="first")
    first.map_values(lambda value: value + str(1 // len(value)), name="second").to("out", **TEXT)


def test_an_exception_of_a_wrapper_belongs_to_its_processor() -> None:
    with (
        driver(two_steps, raising) as running,
        pytest.raises(StreamsError, match=r"^second .* failed: .*refused"),
    ):
        pipe(running, ("a", "bad"))
    with driver(two_steps, raising) as running, pytest.raises(StreamsError, match=r"^second .* failed: Zero"):
        pipe(running, ("a", ""))
    with driver(two_steps, raising, processing_exception_handler="skip") as running:
        pipe(running, ("a", "bad"), ("a", "x"))
        assert values(running) == ["X1"]
        assert running.dropped_records == 1


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (
            lambda name, process: None,
            "processor_wrapper returned None for first: it has to return a function",
        ),
        (
            lambda name, process: lambda record: process(record.value),
            "processor_wrapper gave first a str in place of a Record",
        ),
        (
            lambda name, process: lambda record: process(record._replace(timestamp=1.5)),
            "a timestamp is an int",
        ),
    ],
)
def test_wrong_results_of_a_wrapper_name_the_processor(wrapper: Any, message: str) -> None:
    def run() -> None:
        with driver(
            lambda builder: (
                builder.stream("in", **TEXT).map_values(str.upper, name="first").to("out", **TEXT)
            ),
            wrapper,
        ) as running:
            pipe(running, ("a", "b"))

    with pytest.raises(StreamsError, match=message):
        run()


@pytest.mark.parametrize("wrapper", ["org.example.Tracing", len, lambda name: name])
def test_wrong_wrappers_are_refused(wrapper: Any) -> None:
    with pytest.raises(ConfigError, match="processor_wrapper must be a function"):
        StreamsConfig.from_properties({"processor.wrapper.class": wrapper})
