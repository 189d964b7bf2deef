"""Exceptions whose text cannot be read: the class is the user's, and its ``__str__`` raises. The answer still holds."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import Retry, StreamsBuilder, TopologyTestDriver
from streamapp.engine.judging import ProcessingFailed

from .support import CONFIG, TEXT


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("the text needs a connection")


def fail(value: str) -> str:
    raise NoText


def bench(on_error: Any) -> TopologyTestDriver:
    builder = StreamsBuilder(CONFIG.replace(dead_letter_queue_topic="dead"))
    flights = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    flights.map_values(fail, on_error=on_error, name="fails").to("out", value_serde=TEXT)
    return TopologyTestDriver(builder.build())


@pytest.mark.parametrize(
    "on_error",
    [
        "dead_letter",
        lambda context, error: "dead_letter",
        Retry.by_key(times=1),
        Retry.in_place(times=1),
        Retry.topics(10),
    ],
    ids=["dead_letter", "function", "by key", "in place", "topics"],
)
def test_the_record_becomes_a_dead_letter(on_error: Any) -> None:
    with bench(on_error) as driver:
        driver.pipe_raw("in", b"k", b"v", 5)
        driver.advance_wall_clock_time(10_000)
        (letter,) = driver.produced["dead"]
    headers = dict(letter.headers)
    assert headers["__streams.errors.exception"] == f"{__name__}.NoText".encode()
    assert headers["__streams.errors.message"] == (
        b"the exception has no text, because its __str__ raises RuntimeError"
    )


def test_the_worker_that_ends_says_so() -> None:
    with bench("fail") as driver, pytest.raises(ProcessingFailed, match="NoText: the exception has no text"):
        driver.pipe_raw("in", b"k", b"v", 5)
