"""How requests of librdkafka's admin client are made: without a time-out of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

__all__ = ["NO_TIMEOUT", "ask"]

S = TypeVar("S")
T = TypeVar("T")

NO_TIMEOUT = 3_600.0
"""The ``request_timeout`` of every request of an admin client, in seconds: librdkafka 2.x ends the process (an assertion, or
a segmentation fault) when one runs out while it looks for a broker or coordinator. So a request may take as long as
it likes, and whoever wants its answer stops waiting."""


def ask(
    request: Callable[..., Mapping[S, Future[T]]], what: Any, /, *, seconds: float, **options: Any
) -> dict[S, Future[T]]:
    """Makes one request of an admin client and waits at most ``seconds`` for all of its answers.

    The futures are done: ``result()`` returns at once, or raises `KafkaException`, whose code is ``_TIMED_OUT`` where
    no answer has come.

        (described,) = ask(admin.describe_consumer_groups, ["flights"], seconds=10).values()
        members = described.result().members
    """
    asked = request(what, request_timeout=NO_TIMEOUT, **options)
    wait(asked.values(), max(0.0, seconds))
    return {subject: future if future.done() else _unanswered() for subject, future in asked.items()}


def _unanswered() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    return future
