"""A member that the group has removed begins no call of the handler, and commits nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamapp import StreamsConfig, StringSerde
from streamapp.consumer import KafkaOutput
from streamapp.consumer.subscription import Subscription

from ..processes import until
from .feeding import Feed
from .test_consuming import SECONDS, consumer, numbers

STRINGS = KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())


class Blocked:
    """The thread of one consumer that polls: it stands still in `poll` until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.stands, self.go_on = threading.Event(), threading.Event(), threading.Event()
        poll: Callable[[Subscription], None] = Subscription.poll

        def slow(subscription: Subscription) -> None:
            if self.at.is_set() and not self.stands.is_set():
                self.stands.set()
                assert self.go_on.wait(SECONDS)
            poll(subscription)

        monkeypatch.setattr(Subscription, "poll", slow)


@pytest.mark.parametrize(
    ("kind", "protocol"), [("at_least_once", "classic"), ("at_most_once", "consumer"), ("output", "classic")]
)
def test_a_member_that_polls_too_late_begins_no_call(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, kind: str, protocol: str
) -> None:
    """The handler got records that another member had finished, until the revocation arrived."""
    feed.create(partitions=1)
    feed.send(numbers(20))
    settings: dict[str, Any] = {"guarantee": kind}
    if kind == "output":
        settings = {"guarantee": "exactly_once", "output": STRINGS}
    settings["client_properties"] = {"group.protocol": protocol}
    blocked, begun, proceed = Blocked(monkeypatch), threading.Event(), threading.Event()
    calls = Counter[int]()

    def slow(record: Any, *transaction: Any) -> None:
        calls[int(record.value)] += 1
        if not begun.is_set():
            blocked.at.set()
            begun.set()
            assert proceed.wait(SECONDS)

    others = Counter[int]()

    def handle(record: Any, *transaction: Any) -> None:
        others[int(record.value)] += 1

    config = StreamsConfig(feed.group, session_timeout_ms=1_000, max_poll_interval_ms=1_500)
    with consumer(feed, slow, config=config, parallelism=1, **settings) as first:
        until(blocked.stands.is_set, SECONDS, lambda: first.status)
        feed.send(numbers(100)[20:])
        with consumer(feed, handle, **settings) as second:
            until(lambda: feed.position() == 100, SECONDS, lambda: second.status)
        proceed.set()
        until(lambda: first.metrics.in_work == 0, SECONDS, lambda: first.status)
        blocked.go_on.set()
        feed.send(numbers(150)[100:])
        until(lambda: feed.position() == 150, SECONDS, lambda: first.status)
    twice = sorted(number for number in calls if number and others[number])
    assert not twice
    assert sorted(calls | others) == list(range(150))
