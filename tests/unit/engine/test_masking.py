"""``show_record`` masks records in messages: neither log nor exception quotes the record."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from streamapp import JsonSerde, StreamsBuilder, StreamsConfig, StreamsError, StringSerde, TopologyTestDriver
from streamapp.desk.trial import try_record
from streamapp.serdes import LongSerde

TEXT = StringSerde()
BAD = {"deserialization": b'"secret', "processing": b'"secret"', "production": b'{"secret": 1}'}
"""No JSON; no number; no long."""


def config(**more: Any) -> StreamsConfig:
    return StreamsConfig("app", show_record=lambda key, value: f"{len(value or b'')} bytes", **more)


def described() -> Any:
    def number(value: Any) -> Any:
        return value if isinstance(value, dict) else int(value)

    builder = StreamsBuilder()
    numbers = builder.stream("in", key_serde=TEXT, value_serde=JsonSerde()).map_values(number, name="number")
    numbers.to("out", key_serde=TEXT, value_serde=LongSerde())
    return builder.build()


@pytest.mark.parametrize("kind", BAD)
def test_the_error_does_not_quote_the_record(kind: str) -> None:
    with (
        TopologyTestDriver(described(), config()) as driver,
        pytest.raises(StreamsError, match=rf"Record: {len(BAD[kind])} bytes") as caught,
    ):
        driver.pipe_raw("in", b"k", BAD[kind], 1)
    whole = "".join(traceback.format_exception(caught.value, chain=True))
    assert "secret" not in whole.replace("test_masking", "")
    assert "(its text is hidden, because show_record is set)" in str(caught.value)


@pytest.mark.parametrize("kind", BAD)
def test_the_log_does_not_quote_the_record(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    handlers: Any = {f"{each}_exception_handler": "dead_letter" for each in BAD}
    with TopologyTestDriver(described(), config(dead_letter_queue_topic="dead", **handlers)) as driver:
        driver.pipe_raw("in", b"k", BAD[kind], 1)
        (letter,) = driver.produced["dead"]
    (message,) = caplog.messages
    assert "secret" not in message
    assert b"secret" in (letter.value or b"")  # the letter is the record
    assert dict(letter.headers)["__streams.errors.message"]


def test_a_service_that_fails_is_named() -> None:
    def ask(value: str) -> str:
        raise ConnectionError("no route to the registry of planes")

    builder = StreamsBuilder(config())
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(ask, on_error="skip").foreach(print)
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match="ConnectionError: no route to the registry of planes"),
    ):
        driver.pipe_raw("in", b"k", b"secret", 1)


@pytest.mark.parametrize("kind", BAD)
def test_a_trial_shows_what_a_log_hides(kind: str) -> None:
    with pytest.raises(StreamsError, match="secret") as caught:
        try_record(described(), config(), "in", b"k", BAD[kind], 1, raises=True)
    assert caught.value.__cause__ is not None  # the place that a debugger opens
