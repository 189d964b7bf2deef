"""A topology that reads its own results: the test driver follows a loop that ends, and stops one that does not."""

from __future__ import annotations

import pytest

from streamapp import LongSerde, StreamsBuilder, StringSerde, TopologyTestDriver
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
    monkeypatch.setattr(driver_module, "_MOST_RETURNS", 50)
    with counting_down(to=None) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, NUMBER)
        with pytest.raises(StreamsError, match=r"more than 50 results .* from topic numbers"):
            numbers.pipe_input("k", 3)


def test_the_bound_is_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_MOST_RETURNS", 3)
    with counting_down(to=0) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, NUMBER)
        for _ in range(5):
            numbers.pipe_input("k", 3)
