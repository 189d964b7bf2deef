"""Topics of patterns that come and go: what a look finds, and what the worker then does; without a broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamapp import BytesSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.worker import pattern_topics
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread
from streamapp.runners.worker.membership import FaustMembership
from streamapp.runners.worker.pattern_topics import PatternTopics
from streamapp.runners.worker.runtime import StreamsRuntime
from streamapp.runners.worker.topics import Topics


def patterns(monkeypatch: pytest.MonkeyPatch, cluster: dict[str, int]) -> PatternTopics:
    """A worker that reads in-1, in-2 and rates from the start. ``cluster`` has the topics that brokers know now."""
    builder = StreamsBuilder()
    for source in (re.compile("in-.*"), "rates"):
        builder.stream(source, key_serde=StringSerde(), value_serde=BytesSerde()).foreach(
            lambda key, value: None
        )

    def topics(*_: Any) -> Topics:
        found = tuple(sorted(topic for topic in cluster if topic.startswith("in-")))
        return Topics(dict(cluster), {0: found, 1: ("rates",)})

    monkeypatch.setattr(pattern_topics, "existing_topics", lambda *_: dict(cluster))
    monkeypatch.setattr(pattern_topics, "prepare_topics", topics)
    monkeypatch.setattr(Topics, "ids_of", lambda *_: {})
    plan = builder.build().plan(StreamsConfig("app"))
    return PatternTopics(plan, None, topics())  # type: ignore[arg-type]


def read(topics: Topics | None) -> list[str] | None:
    return topics and sorted(topic for names in topics.sources.values() for topic in names)


@pytest.mark.parametrize("lacks", ["in-1", "rates"])
def test_a_broker_that_lacks_a_topic_for_a_moment_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """A new topic at the same look took the other one away, or ended the worker."""
    cluster = {"in-1": 4, "in-2": 4, "rates": 4}
    looks = patterns(monkeypatch, cluster)
    del cluster[lacks]
    cluster["in-3"] = 4
    assert looks.look() is None
    cluster[lacks] = 4
    assert read(looks.look()) == ["in-1", "in-2", "in-3", "rates"]


def test_a_topic_is_deleted_after_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"in-1": 4, "in-2": 4, "rates": 4}
    looks = patterns(monkeypatch, cluster)
    del cluster["in-2"]
    assert looks.look() is None
    assert read(looks.look()) == ["in-1", "rates"]


def test_a_change_does_not_hide_that_another_topic_has_got_more_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = {"in-1": 4, "rates": 2}
    looks = patterns(monkeypatch, cluster)
    cluster |= {"rates": 4, "in-2": 4}
    found = looks.look()
    assert found is not None
    assert found.partitions == {"in-1": 4, "in-2": 4, "rates": 2}


@pytest.mark.parametrize(
    "outcome",
    [KafkaException(KafkaError(KafkaError._TRANSPORT)), StreamsError("the worker has stopped")],
    ids=["look", "data-plane"],
)
def test_the_worker_goes_on_to_look(monkeypatch: pytest.MonkeyPatch, outcome: Exception) -> None:
    """The data plane reports its own errors, some of which do not end the worker."""
    monkeypatch.setattr(pattern_topics, "LOOK_SECONDS", 0.0)
    looks = 0
    failures: list[BaseException] = []
    self: Any = SimpleNamespace(
        _stopping=False,
        _app=SimpleNamespace(assignor=SimpleNamespace(subscribed=frozenset({"in-1"}))),
        _check_files=lambda topics: None,
        _on_failure=failures.append,
        _settle=lambda future: StreamsRuntime._settle(self, future),
    )

    def look() -> Any:
        nonlocal looks
        looks += 1
        self._stopping = looks == 3
        if isinstance(outcome, KafkaException):
            raise outcome
        return Topics({}, {})

    def change_inputs(change: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(outcome)
        return future

    plane: Any = SimpleNamespace(change_inputs=change_inputs)
    found: Any = SimpleNamespace(look=look, topics=None)
    asyncio.run(StreamsRuntime._follow_patterns(self, plane, found, lambda topics: None))
    assert (looks, failures) == (3, [])


def test_a_member_gives_topics_up_only_between_two_joins() -> None:
    """aiokafka ends if an assignment has a topic to which the member no longer subscribes."""

    class Topic(SimpleNamespace):
        __hash__ = object.__hash__

    async def main() -> None:
        subscription = SimpleNamespace(topics=frozenset({"in-1", "in-2", "other"}))
        rejoins: list[None] = []
        consumer = SimpleNamespace(
            _subscription=SimpleNamespace(subscription=subscription),
            _client=SimpleNamespace(set_topics=lambda topics: None),
            _coordinator=SimpleNamespace(
                _performed_join_prepare=True, request_rejoin=lambda: rejoins.append(None)
            ),
        )
        thread = SimpleNamespace(thread_loop=asyncio.get_running_loop(), _ensure_consumer=lambda: consumer)
        thread.change_subscription = partial(AgentConsumerThread.change_subscription, thread)
        known: set[Any] = set()
        app = SimpleNamespace(
            topics=SimpleNamespace(_topics=known, add=known.add),
            topic=lambda *names, **_: Topic(topics=names),
            consumer=SimpleNamespace(_thread=thread),
        )
        membership = FaustMembership(app)
        membership.subscribe(["in-1", "in-2"])
        membership.subscribe(["in-1", "in-3"])
        await asyncio.sleep(0.2)
        assert not hasattr(subscription, "_topics")
        assert not rejoins
        consumer._coordinator._performed_join_prepare = False
        await asyncio.sleep(0.2)
        assert subscription._topics == {"in-1", "in-3", "other"}
        assert rejoins == [None]

    asyncio.run(main())


def test_an_assignment_is_read_while_topics_change() -> None:
    """The data plane's thread takes a topic away between two steps of the event loop's thread."""
    before = Topics({"in-1": 1, "in-2": 1}, {0: ("in-1", "in-2")})
    self: Any = SimpleNamespace(_topics=before)

    def decisive(topics: Any) -> Any:
        self._topics = Topics({"in-1": 1}, {0: ("in-1",)})
        return topics

    self._decisive = decisive
    owned = {TopicPartition("in-1", 0), TopicPartition("in-2", 0)}
    assert [str(task) for task in StreamsRuntime._tasks_of(self, owned)] == ["0_0"]
