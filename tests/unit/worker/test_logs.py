"""What is repeated, by Kafka's clients in an outage or for each poison record, is said once in a while, with how often it was."""

from __future__ import annotations

import importlib
import inspect
import logging

import pytest

from streamapp._base.repetitions import LOGGERS_OF_DROPS, Repetitions, quieten_drops


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def chatty(clock: Clock) -> logging.Logger:
    logger = logging.Logger("chatty")  # not in the tree, so that it is this test's alone
    logger.addFilter(Repetitions(30.0, clock))
    return logger


@pytest.fixture
def said(chatty: logging.Logger) -> list[str]:
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    chatty.addHandler(Listener())
    return messages


def test_a_repetition_is_left_out_and_counted(chatty: logging.Logger, said: list[str], clock: Clock) -> None:
    for milliseconds in range(5):
        chatty.error("connect to 127.0.0.1:%d failed after %d ms", 9092, milliseconds)
    chatty.error("the coordinator is dead")
    clock.now += 29
    chatty.error("connect to 127.0.0.1:9092 failed after 9 ms")
    clock.now += 1
    chatty.error("connect to 127.0.0.1:9092 failed after 7 ms")
    clock.now += 30
    chatty.error("connect to 127.0.0.1:9092 failed after 8 ms")
    assert said == [
        "connect to 127.0.0.1:9092 failed after 0 ms",
        "the coordinator is dead",
        "connect to 127.0.0.1:9092 failed after 7 ms (5 more like this since the last)",
        "connect to 127.0.0.1:9092 failed after 8 ms",
    ]


def test_what_is_no_warning_is_always_said(chatty: logging.Logger, said: list[str]) -> None:
    for generation in (1, 2):
        chatty.info("joined in generation %d", generation)
    assert said == ["joined in generation 1", "joined in generation 2"]


def test_a_message_may_say_of_which_kind_it_is(chatty: logging.Logger, said: list[str], clock: Clock) -> None:
    for value in ("one", "two", "100 %s"):
        chatty.warning("parse: %r is no number", value, extra={"kind": "parse ValueError"})
    chatty.warning("look up: %r is no key", "one", extra={"kind": "look up KeyError"})
    clock.now += 30
    chatty.warning("parse: %r is no number", "5 %d", extra={"kind": "parse ValueError"})
    assert said == [
        "parse: 'one' is no number",
        "look up: 'one' is no key",
        "parse: '5 %d' is no number (2 more like this since the last)",
    ]


def test_dropped_records_pass_through_one_filter_however_often_it_is_asked_for() -> None:
    loggers = [logging.getLogger(name) for name in LOGGERS_OF_DROPS]
    quieten_drops.cache_clear()
    quieten_drops()
    quieten_drops()
    assert all([type(each) for each in logger.filters] == [Repetitions] for logger in loggers)
    assert len({logger.filters[0] for logger in loggers}) == 1


@pytest.mark.parametrize("name", LOGGERS_OF_DROPS)
def test_each_logger_of_drops_is_one_that_names_the_kind_of_a_drop(name: str) -> None:
    module = importlib.import_module(name)
    assert module.logger is logging.getLogger(name)
    assert 'extra={"kind":' in inspect.getsource(module)
