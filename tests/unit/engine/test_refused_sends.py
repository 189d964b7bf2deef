"""A function of a topology awaits a producer of its own, and brokers refuse the record: an error of the source record."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import (
    Backoff,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.engine.judging import ProcessingFailed
from streamapp.errors import BrokerError
from streamapp.producer import DeliveryError

TEXT = StringSerde()
RETRY = Retry.by_key(times=1, then="dead_letter", backoff=Backoff(10, limit=10, jitter=0))
BROKEN = Retry.in_place(
    times=1, then="dead_letter", failures=(BrokerError,), backoff=Backoff(10, limit=10, jitter=0)
)
ON_ERROR = pytest.mark.parametrize(
    "on_error", [None, "dead_letter", RETRY, BROKEN], ids=["config", "word", "retry", "failures"]
)


class Sends:
    """A function whose producer has no place for "bad"."""

    def __init__(self, refused: bool) -> None:
        self.refused = refused

    def __call__(self, value: str) -> str:
        if value == "bad":
            raise DeliveryError("small", "Broker: Message size too large", False, refused=self.refused)
        return value

    async def later(self, value: str) -> str:
        return self(value)


def driven(sends: Sends, on_error: Any, *, awaits: bool = False) -> TopologyTestDriver:
    config = StreamsConfig("app", dead_letter_queue_topic="dead", processing_exception_handler="continue")
    builder = StreamsBuilder(config)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    mapped = (
        stream.map_values_async(sends.later, on_error=on_error)
        if awaits
        else stream.map_values(sends, on_error=on_error)
    )
    mapped.to("out", value_serde=TEXT)
    driver = TopologyTestDriver(builder.build())
    for time, value in enumerate(("1", "bad", "2")):
        driver.pipe_raw("in", b"k", value.encode(), time)
        driver.advance_wall_clock_time(100)
    return driver


def values(driver: TopologyTestDriver, topic: str) -> list[bytes | None]:
    return [record.value for record in driver.produced.get(topic, [])]


@ON_ERROR
def test_a_refused_record_is_an_error_of_its_source_record(on_error: Any) -> None:
    driver = driven(Sends(refused=True), on_error)
    assert (values(driver, "out"), values(driver, "dead")) == ([b"1", b"2"], [b"bad"])
    (letter,) = driver.produced["dead"]
    assert dict(letter.headers)["__streams.errors.exception"].endswith(b"DeliveryError")


@pytest.mark.parametrize("on_error", [None, "dead_letter"])
def test_a_refused_record_of_a_coroutine_is_an_error_of_its_source_record(on_error: Any) -> None:
    driver = driven(Sends(refused=True), on_error, awaits=True)
    assert (values(driver, "out"), values(driver, "dead")) == ([b"1", b"2"], [b"bad"])


def test_without_an_answer_the_message_has_the_place_of_the_record() -> None:
    with pytest.raises(ProcessingFailed, match="record of in-0 at offset 1 failed: DeliveryError"):
        driven(Sends(refused=True), "fail")


@pytest.mark.parametrize("on_error", [None, "dead_letter", RETRY])
def test_a_record_without_an_answer_of_brokers_is_no_fault_of_its_source_record(on_error: Any) -> None:
    with pytest.raises(DeliveryError):
        driven(Sends(refused=False), on_error)
