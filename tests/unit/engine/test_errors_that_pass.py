"""A service that is away, such as the registry of a serde, makes no answer drop a record."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import (
    Serde,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyTestDriver,
)
from tests.unit.engine.support import TEXTS, Sent, feed, task_of

TEXT = StringSerde()
MESSAGE = "ConnectionError: no registry.*; a service failed and not the record: the record comes again"


class Away(Serde[str]):
    """A serde whose registry does not answer."""

    def serialize(self, value: str) -> bytes:
        raise ConnectionError("no registry")

    def deserialize(self, data: bytes) -> str:
        raise ConnectionError("no registry")


def ask(value: str) -> str:
    raise ConnectionError("no registry")


def driver(where: str, answer: str, *, handlers: bool) -> TopologyTestDriver:
    settings = {
        f"{kind}_exception_handler": answer for kind in ("deserialization", "processing", "production")
    }
    config = StreamsConfig("app", dead_letter_queue_topic="dead", **(settings if handlers else {}))  # type: ignore[arg-type]
    on_error: Any = {} if handlers else {"on_error": answer}
    away, builder = Away(), StreamsBuilder(config)
    of: dict[str, Any] = {
        name: away if where == name else TEXT for name in ("source", "table", "global", "sink")
    }
    if where == "table":
        builder.table("in", key_serde=TEXT, value_serde=away, **on_error)
    elif where == "global":
        builder.global_table("in", key_serde=TEXT, value_serde=away, **on_error)
        builder.stream("other", key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)
    else:
        stream = builder.stream("in", key_serde=TEXT, value_serde=of["source"], **on_error)
        stream = stream.map_values(ask if where == "operator" else str.upper, **on_error)
        stream.to("out", key_serde=TEXT, value_serde=of["sink"], **on_error)
    return TopologyTestDriver(builder.build())


@pytest.mark.parametrize("handlers", [False, True])
@pytest.mark.parametrize("answer", ["skip", "dead_letter"])
@pytest.mark.parametrize("where", ["source", "table", "global", "operator", "sink"])
def test_an_outage_stops_the_worker_and_drops_nothing(where: str, answer: str, handlers: bool) -> None:
    """Sources, sinks and the handlers of the configuration dropped all records of the outage."""
    running = driver(where, answer, handlers=handlers)
    with pytest.raises(StreamsError, match=MESSAGE):
        running.pipe_raw("in", b"k", b"v", 1)
    assert running.drops == {}


@pytest.mark.parametrize("where", ["source", "operator", "sink"])
def test_continue_goes_on_as_in_kafka_streams(where: str) -> None:
    running = driver(where, "continue", handlers=True)
    running.pipe_raw("in", b"k", b"v", 1)
    assert sum(running.drops.values()) == 1


@pytest.mark.parametrize("answer", ["skip", "dead_letter"])
def test_an_outage_leaves_no_letter_of_a_record_that_comes_again(answer: Any) -> None:
    """With at_least_once, each restart during the outage wrote a letter, and a replay made a second record of it."""
    config, sent = StreamsConfig("app", dead_letter_queue_topic="dead"), Sent()
    builder = StreamsBuilder(config)
    builder.stream("in", **TEXTS).map_values(ask, on_error=answer)
    task, _ = task_of(builder, config=config, collector=sent)
    feed(task, "in", [("k", "v", 1)])
    with pytest.raises(StreamsError, match=MESSAGE):
        task.process()
    assert sent.records == []
