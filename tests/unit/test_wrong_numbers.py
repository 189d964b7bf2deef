"""Durations and counts of public constructors: a wrong type, unit or sign is a clear error where the value is given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamapp import Backoff, ConfigError, Retry, StreamsConfig, UnlimitedWindows
from streamapp.consumer import Batch, SyncReliableConsumer
from streamapp.producer import SyncReliableProducer

WRONG = ["5", -1, 1.5, None, True, object(), timedelta(seconds=-1), float("nan"), []]
"""Values that are no count."""
NONE_IS_NO_LIMIT = {"times"}


def consumer(**settings: Any) -> SyncReliableConsumer:
    return SyncReliableConsumer("group", "topic", print, **settings)


def producer(**settings: Any) -> SyncReliableProducer[Any, Any]:
    return SyncReliableProducer("orders", **settings)


COUNTS = [
    *(
        (make, name)
        for make in (Retry.by_key, Retry.in_place)
        for name in ("times", "max_records", "max_bytes")
    ),
    *((Batch, name) for name in ("records", "bytes", "linger_ms", "target_ms")),
    *((consumer, name) for name in ("parallelism", "buffer_records", "close_timeout_ms")),
    *((producer, name) for name in ("close_timeout_ms", "linger_ms", "buffer_records")),
]


@pytest.mark.parametrize(("make", "name"), COUNTS)
def test_a_wrong_count_is_a_clear_error(make: Callable[..., Any], name: str) -> None:
    for wrong in WRONG:
        if wrong is None and name in NONE_IS_NO_LIMIT:
            continue
        with pytest.raises(ConfigError, match=f"{name}.* has to be an int of at least [01], not"):
            make(**{name: wrong})


@pytest.mark.parametrize("make", [Retry.by_key, Retry.in_place])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 100}, r"takes no first: give backoff=Backoff\(first=...\)"),
        ({"by": "key"}, "takes no by: its options are times, backoff"),
        ({"delays": (5,)}, "takes no delays: its options are"),
        ({"max_age": "1 h"}, "max_age of Retry has to be a timedelta or an int of milliseconds, got '1 h'"),
        ({"max_age": -5}, "max_age of Retry has to be at least 1 ms, not -5"),
    ],
)
def test_a_wrong_option_of_a_retry_is_a_clear_error(
    make: Callable[..., Retry], options: dict[str, Any], message: str
) -> None:
    """An unknown option was a TypeError of Python, which named a class that the user had not called."""
    with pytest.raises(ConfigError, match=message):
        make(**options)


@pytest.mark.parametrize("name", ["factor", "jitter"])
def test_a_wrong_number_of_a_backoff_is_a_clear_error(name: str) -> None:
    for wrong in ("5", -1, None, object(), timedelta(seconds=1), float("nan"), []):
        with pytest.raises(ConfigError, match="factor of Backoff is between 1 and 1000"):
            Backoff(**{name: wrong})  # type: ignore[arg-type]


def test_a_wrong_start_of_a_window_is_a_clear_error() -> None:
    for wrong in ("5", -1, None, 1.5, []):
        with pytest.raises(ConfigError, match="the window start"):
            UnlimitedWindows(wrong)  # type: ignore[arg-type]


def test_dead_letter_drops_that_are_no_tuple_are_a_clear_error() -> None:
    for wrong in ("late", None, 5, ("soon",), ([],)):
        with pytest.raises(ConfigError, match="dead_letter_drops is a tuple of reasons"):
            StreamsConfig("app", dead_letter_queue_topic="dead", dead_letter_drops=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [consumer, producer])
def test_client_properties_that_are_no_dict_are_a_clear_error(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="client_properties has to be"):
        make(client_properties=5)


def test_a_backoff_grows_up_to_its_limit() -> None:
    """A small factor did not grow any more after 61 attempts, and a large one did not overflow."""
    slow, flat = (
        Backoff(1_000, factor=1.05, limit=60_000, jitter=0),
        Backoff(500, factor=1, limit=60_000, jitter=0),
    )
    assert [slow.delay_ms(attempt) for attempt in (1, 2, 61, 84, 85, 10**9)] == [
        1_000, 1_050, 18_679, 57_374, 60_000, 60_000,
    ]  # fmt: skip
    assert [flat.delay_ms(attempt) for attempt in (1, 10**9)] == [500, 500]
    assert Backoff(1, factor=1_000, limit=5, jitter=0).delay_ms(10**9) == 5
