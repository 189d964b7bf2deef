"""An application that reads its own dead letters makes no new letters of those that fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamapp import App, ConfigError, Retry, StreamsBuilder, StreamsConfig, StringSerde, Topology
from streamapp.consumer import SyncReliableConsumer
from streamapp.runners.worker.agents.demands import check_agents

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}
LETTERS = StreamsConfig("app", dead_letter_queue_topic="flights-dead")
CONTINUE = LETTERS.replace(processing_exception_handler="continue")


def mapped(config: StreamsConfig, topic: Any, on_error: Any = None, **source: Any) -> Topology:
    builder = StreamsBuilder(config)
    stream = builder.stream(topic, **TEXTS, **source, name="letters")
    stream.map_values(str.upper, name="upper", on_error=on_error).to("out", **TEXTS)
    return builder.build()


def behind_a_topic(config: StreamsConfig) -> Topology:
    builder = StreamsBuilder(config)
    letters = builder.stream("flights-dead", **TEXTS).select_key(lambda _, value: value, on_error="skip")
    letters.repartition(**TEXTS).map_values(str.upper, name="upper", on_error="dead_letter").to(
        "out", **TEXTS
    )
    return builder.build()


def in_a_global_table(config: StreamsConfig) -> Topology:
    builder = StreamsBuilder(config)
    builder.global_table("flights-dead", **TEXTS, on_error="dead_letter")
    builder.stream("in", **TEXTS).to("out", **TEXTS)
    return builder.build()


def counted(config: StreamsConfig) -> Topology:
    builder = StreamsBuilder(config)
    builder.stream("flights-dead", **TEXTS).group_by_key().count(name="count")
    return builder.build()


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        (lambda: mapped(LETTERS, "flights-dead", "dead_letter"), 'upper has the answer "dead_letter"'),
        (lambda: mapped(LETTERS, "flights-dead", "continue"), 'upper has the answer "continue"'),
        (
            lambda: mapped(LETTERS, "flights-dead", Retry.by_key(times=1, then="dead_letter")),
            'upper has the answer "dead_letter"',
        ),
        (
            lambda: mapped(CONTINUE, "flights-dead"),
            'upper has no on_error, and processing_exception_handler is "con',
        ),
        (
            lambda: mapped(LETTERS, re.compile("flights.*"), "dead_letter"),
            r"letters \(topic flights.*\) reads flights-dead, .* A pattern may leave the topic out",
        ),
        (
            lambda: mapped(
                LETTERS.replace(deserialization_exception_handler="continue"), "flights-dead", "skip"
            ),
            "letters has no on_error, and deserialization_exception_handler is",
        ),
        (lambda: behind_a_topic(LETTERS), 'upper has the answer "dead_letter"'),
        (lambda: in_a_global_table(LETTERS), 'has the answer "dead_letter"'),
        (lambda: counted(LETTERS.replace(dead_letter_drops=("null_key",))), "dead_letter_drops is"),
    ],
)
def test_a_topology_that_makes_letters_of_its_own_letters_is_refused(describe: Any, message: str) -> None:
    """Each letter that failed became a new letter in the same topic, without end."""
    with pytest.raises(ConfigError, match=message):
        describe().plan()


@pytest.mark.parametrize(
    "describe",
    [
        lambda: mapped(LETTERS, "flights-dead"),
        lambda: mapped(CONTINUE, "flights-dead", "skip"),
        lambda: mapped(CONTINUE, "flights-dead", "fail"),
        lambda: mapped(CONTINUE, "flights-dead", Retry.by_key(then="skip")),
        lambda: mapped(CONTINUE, "flights-dead", lambda context, error: "skip"),
        lambda: mapped(CONTINUE, "flights", "dead_letter"),
        lambda: mapped(CONTINUE, re.compile("flights"), "dead_letter"),
        lambda: counted(LETTERS),
    ],
)
def test_a_reader_that_makes_no_letters_is_welcome(describe: Any) -> None:
    describe().plan()


def test_another_part_of_the_topology_may_make_the_letters() -> None:
    builder = StreamsBuilder(LETTERS)
    builder.stream("in", **TEXTS).map_values(str.upper, on_error="dead_letter").to("out", **TEXTS)
    builder.stream("flights-dead", **TEXTS).foreach(print, on_error="skip")
    builder.build().plan()


@pytest.mark.parametrize("handler", ["continue", "dead_letter"])
def test_steps_that_take_no_on_error_do_not_have_to_answer(handler: Any) -> None:
    """With the handler "continue", no answer allowed a reader with a merge or a repartition topic."""
    config = LETTERS.replace(processing_exception_handler=handler)
    builder = StreamsBuilder(config)
    letters = builder.stream("flights-dead", **TEXTS).select_key(lambda _, value: value, on_error="skip")
    merged = letters.repartition(**TEXTS).merge(builder.stream("alarms", **TEXTS))
    merged.group_by_key(**TEXTS).reduce(lambda _, value: value, on_error="skip")
    builder.build().plan()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "dead_letter"}, 'on_error is "dead_letter"'),
        ({"on_error": "continue"}, 'on_error is "continue"'),
        ({"config": CONTINUE}, 'on_error is "continue"'),
        ({"on_error": Retry.by_key(then="dead_letter")}, 'on_error is "dead_letter"'),
        (
            {"on_error": Retry.by_key(then="skip", when_full="dead_letter")},
            'when_full of the Retry is "dead_letter"',
        ),
        (
            {"config": LETTERS.replace(deserialization_exception_handler="continue")},
            'the answer to records that cannot be decoded is "continue"',
        ),
    ],
)
def test_a_consumer_that_makes_letters_of_its_own_letters_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SyncReliableConsumer("alerts", "flights-dead", print, **{"config": LETTERS, **settings})


@pytest.mark.parametrize(
    "on_error", [None, "skip", "fail", Retry.by_key(then="skip"), lambda context, error: "dead_letter"]
)
def test_a_consumer_of_letters_that_makes_none_is_welcome(on_error: Any) -> None:
    settings = {} if on_error is None else {"on_error": on_error}
    SyncReliableConsumer("alerts", "flights-dead", print, config=LETTERS, **settings)
    SyncReliableConsumer("alerts", "flights", print, config=CONTINUE, on_error="dead_letter")


async def nothing(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("setting", ["deserialization_exception_handler", "processing_exception_handler"])
def test_an_agent_that_makes_letters_of_its_own_letters_is_refused(tmp_path: Path, setting: str) -> None:
    for answer in ("skip", "continue"):
        app = App("app", config=LETTERS.replace(**{setting: answer}), datadir=tmp_path)
        app.agent(app.topic("flights-dead"), name="alert")(nothing)
        app.agent(app.topic("flights"), name="other")(nothing)
        if answer == "skip":
            check_agents(app, app.agents.values(), lambda topic: False)
            continue
        with pytest.raises(
            ConfigError, match=f'the agent .*alert reads flights-dead.*{setting} is "continue"'
        ):
            check_agents(app, app.agents.values(), lambda topic: False)
