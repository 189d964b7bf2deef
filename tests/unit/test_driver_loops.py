"""A topology that reads its own results: the test driver follows a loop that ends, and stops one that does not."""

from __future__ import annotations

import pytest

from streamapp import (
    LongSerde,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.errors import StreamsError
from streamapp.runners.local import driver as driver_module

TEXT, NUMBER = StringSerde(), LongSerde()


def counting_down(to: int | None) -> TopologyTestDriver:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key_serde=TEXT, value_serde=NUMBER).map_values(lambda n: n - 1)
    numbers.filter(lambda key, n: to is None or n >= to).to("numbers", value_serde=NUMBER)
    return TopologyTestDriver(builder.build())


def test_a_loop_that_ends_is_followed() -> None:
    with counting_down(to=0) as driver:
        driver.create_input_topic("numbers", TEXT, NUMBER).pipe_input("k", 3)
        assert driver.create_output_topic("numbers", TEXT, NUMBER).read_values() == [2, 1, 0]


def test_a_loop_without_an_end_is_an_error_that_names_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pipe_input` never returned, and its memory grew."""
    monkeypatch.setattr(driver_module, "_MOST_IN_LOOPS", 50)
    with counting_down(to=None) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, NUMBER)
        with pytest.raises(StreamsError, match=r"more than 50 results .* through topic numbers"):
            numbers.pipe_input("k", 3)


def test_the_bound_is_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_MOST_IN_LOOPS", 3)
    with counting_down(to=0) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, NUMBER)
        for _ in range(5):
            numbers.pipe_input("k", 3)


def test_many_results_of_one_record_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any result that was read again counted, so a `flat_map` of 100,000 results before a `group_by` was an error."""
    monkeypatch.setattr(driver_module, "_MOST_IN_LOOPS", 3)
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key_serde=TEXT, value_serde=NUMBER)
    many = numbers.flat_map(lambda key, n: [(str(i), i) for i in range(n)])
    for number in range(3):
        many = many.repartition(name=f"again-{number}", key_serde=TEXT, value_serde=NUMBER)
    many.to("out", key_serde=TEXT, value_serde=NUMBER)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("numbers", TEXT, NUMBER).pipe_input("k", 50)
        assert len(driver.create_output_topic("out", TEXT, NUMBER).read_values()) == 50


def test_a_loop_that_grows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_MOST_IN_LOOPS", 50)
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key_serde=TEXT, value_serde=NUMBER)
    numbers.flat_map_values(lambda n: [n, n + 1]).to("numbers", value_serde=NUMBER)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("numbers", TEXT, NUMBER)
        with pytest.raises(StreamsError, match="loop of topics"):
            topic.pipe_input("k", 1)


def test_a_loop_through_a_punctuator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A punctuator has no record, but a record has moved stream time and so caused its results."""
    monkeypatch.setattr(driver_module, "_MOST_IN_LOOPS", 50)

    class Ticking(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            context.schedule(
                1, PunctuationType.STREAM_TIME, lambda now: context.forward(Record("k", 1, now + 1))
            )

        def process(self, record: Record[str, int]) -> None:
            pass

    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key_serde=TEXT, value_serde=NUMBER)
    numbers.process(Ticking).to("numbers", key_serde=TEXT, value_serde=NUMBER)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("numbers", TEXT, NUMBER)
        with pytest.raises(StreamsError, match="loop of topics"):
            topic.pipe_input("k", 1, 5)
