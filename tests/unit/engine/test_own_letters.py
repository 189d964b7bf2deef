"""Handlers that make their own dead letters (KIP-1034): for deserialization, processing and production alike."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import (
    ConfigError,
    ErrorContext,
    OutputRecord,
    Response,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.engine.collector import ResultRefused
from streamapp.serdes import LongSerde

TEXT = StringSerde()
KINDS = ("deserialization", "processing", "production")
BAD = {"deserialization": b"\xff", "processing": b"-", "production": b"5000000000000000000"}
"""Not text; not a number; twice the number is no long."""


def double(value: str) -> int:
    return 2 * int(value)


def described(config: StreamsConfig, **on_error: Any) -> TopologyTestDriver:
    builder = StreamsBuilder(config)
    source = builder.stream(
        "in", key_serde=TEXT, value_serde=TEXT, on_error=on_error.get("deserialization"), name="source"
    )
    doubled = source.map_values(double, name="double", on_error=on_error.get("processing"))
    doubled.to(
        "out", key_serde=TEXT, value_serde=LongSerde(), on_error=on_error.get("production"), name="sink"
    )
    return TopologyTestDriver(builder.build())


def two_letters(context: ErrorContext, error: Exception) -> Response:
    about = f"{context.processor} {context.topic}@{context.offset} {type(error).__name__}".encode()
    return Response.resume(
        OutputRecord("bad", context.key, context.value, context.timestamp),
        OutputRecord("about", context.key, about, None, (("kind", b"x"),), 0),
    )


@pytest.mark.parametrize("where", ["configuration", "operator"])
@pytest.mark.parametrize("kind", KINDS)
def test_its_letters_are_sent_and_no_other(kind: str, where: str) -> None:
    if where == "operator":
        driver = described(StreamsConfig("app", dead_letter_queue_topic="dead"), **{kind: two_letters})
    else:
        handler: Any = {f"{kind}_exception_handler": two_letters}
        driver = described(StreamsConfig("app", dead_letter_queue_topic="dead", **handler))
    driver.pipe_raw("in", b"k", BAD[kind], 5)
    driver.pipe_raw("in", b"k", b"1", 6)
    assert driver.produced["bad"] == [OutputRecord("bad", b"k", BAD[kind], 5)]
    (about,) = driver.produced["about"]
    operator = {"deserialization": "source", "processing": "double", "production": "sink"}[kind]
    assert about.value is not None
    assert about.value.startswith(f"{operator} in@0 ".encode())
    assert about.headers == (("kind", b"x"),)
    assert "dead" not in driver.produced
    assert len(driver.produced["out"]) == 1
    assert list(driver.drops.values()) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_its_letters_are_sent_before_the_worker_ends(kind: str) -> None:
    letter = OutputRecord("bad", b"k", b"v", 5)
    handler: Any = {f"{kind}_exception_handler": lambda context, error: Response.fail(letter)}
    driver = described(StreamsConfig("app", dead_letter_queue_topic="dead", **handler))
    with pytest.raises(StreamsError, match="record of in-0 at offset 0"):
        driver.pipe_raw("in", b"k", BAD[kind], 5)
    driver._redeliver()
    assert driver.produced == {"bad": [letter]}


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_without_letters_drops_the_record(kind: str) -> None:
    handler: Any = {f"{kind}_exception_handler": lambda context, error: Response.resume()}
    driver = described(StreamsConfig("app", dead_letter_queue_topic="dead", **handler))
    driver.pipe_raw("in", b"k", BAD[kind], 5)
    assert driver.produced == {}
    (reason,) = (reason for _, reason in driver.drops)
    assert reason == {"processing": "failed", "deserialization": "undecodable"}.get(kind, "unserializable")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("skip",), 'action of a Response is "fail" or "continue", not \'skip\''),
        (("continue", OutputRecord("bad", None, None, None)), "dead_letters .* are OutputRecords, not 'bad'"),
        (("continue", (b"value",)), "dead_letters of a Response are OutputRecords, not b'value'"),
        (("continue", [OutputRecord("", None, None, None)]), "the topic of a letter must not be empty"),
        (("continue", [OutputRecord("my letters", None, None, None)]), '"my letters" is illegal'),
        (
            ("continue", [OutputRecord("bad", "k", None, None)]),
            "for topic 'bad', has the key 'k': give bytes",
        ),
        (("continue", [OutputRecord("bad", None, {"n": 1}, None)]), "has the value {'n': 1}: give bytes"),
        (("continue", [OutputRecord("bad", None, None, 1.5)]), "has the timestamp 1.5: give an int or None"),
        (("continue", [OutputRecord("bad", None, None, 5, (), "0")]), "has the partition '0': give an int"),
    ],
)
def test_a_response_that_is_none_is_refused_where_it_is_made(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Response(*arguments)


def test_a_letter_that_no_topic_can_have_is_a_failure_of_the_handler() -> None:
    """The test driver took such a letter. A worker asked the handler again, about the letter in place of the record."""

    def choose(context: ErrorContext, error: Exception) -> Response:
        return Response.resume(OutputRecord("bad", None, "text", None))  # type: ignore[arg-type]

    driver = described(StreamsConfig("app", processing_exception_handler="continue"), processing=choose)
    with pytest.raises(
        StreamsError, match="exception handler itself failed .ConfigError: a letter of the Response"
    ):
        driver.pipe_raw("in", b"k", BAD["processing"], 5)


def test_letters_may_be_a_list() -> None:
    letter = OutputRecord("bad", None, None, None)
    assert Response("continue", [letter]).dead_letters == (letter,)  # type: ignore[arg-type]


def test_a_letter_that_brokers_refuse_ends_the_worker_with_the_place_of_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = TopologyTestDriver.send

    def refusing(driver: TopologyTestDriver, topic: str, *record: Any) -> None:
        if topic == "bad":
            raise ResultRefused("too large", "Write less")
        send(driver, topic, *record)

    monkeypatch.setattr(TopologyTestDriver, "send", refusing)
    driver = described(StreamsConfig("app"), processing=two_letters)
    message = (
        "double .*: record of in-0 at offset 0 has a dead letter that bad does not take: .* too large. Write less. "
        "The record failed: ValueError: invalid literal"
    )
    with pytest.raises(StreamsError, match=message):
        driver.pipe_raw("in", b"k", BAD["processing"], 5)
