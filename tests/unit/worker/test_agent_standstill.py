"""Faust's line about a partition that does not move: not too early, and not many times a second."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import codec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streamapp.errors import StreamsError
from streamapp.runners.topic_ids import LostTopic
from streamapp.runners.worker.agents.consumer import AgentConsumer
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread

ORDERS = TP("orders", 0)
TIMEOUT = 300.0


class Thread(AgentConsumerThread):
    """A thread whose partition has more records than were handed out. Nothing runs in it."""

    def __init__(self) -> None:
        state = SimpleNamespace(highwater=50, position=7, timestamp=0)
        assignment = SimpleNamespace(active=True, state_value=lambda tp: state)
        subscriptions = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
        self._consumer = SimpleNamespace(_fetcher=SimpleNamespace(_subscriptions=subscriptions))
        self._polled = state
        self.consumer = SimpleNamespace(
            app=SimpleNamespace(
                monitor=SimpleNamespace(stream_inbound_time={}),
                topics=SimpleNamespace(acks_enabled_for=lambda topic: True),
            )
        )
        self.time_started = time.monotonic()
        self.tp_stream_timeout_secs = self.tp_fetch_request_timeout_secs = TIMEOUT
        self.said: list[str] = []

    def _ensure_consumer(self) -> Any:
        self._polled.timestamp = time.monotonic() * 1_000
        return self._consumer

    def _log_slow_processing_stream(self, message: str, *args: Any) -> None:
        self.said.append(message)


class Consumer(AgentConsumer):
    def __init__(self) -> None:
        self.app = SimpleNamespace(
            should_stop=False, tables={}, topics=SimpleNamespace(acks_enabled_for=lambda topic: True)
        )
        self._membership: Any = SimpleNamespace(current=lambda: SimpleNamespace(member_id="me"))
        self._thread: Any = Thread()
        self._verified_at = 0.0
        self._topic_ids: Any = SimpleNamespace(lost=lambda: self.lost, watch=lambda topics: None)
        self.lost: LostTopic | None = None
        self.failures: list[str] = []

    async def fail(self, error: StreamsError, record: Any) -> None:
        self.failures.append(str(error))

    should_stop = False

    def assignment(self) -> set[TP]:
        return {ORDERS}

    async def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def assigned(*_: Any) -> None: ...

    monkeypatch.setattr(driver.Consumer, "on_partitions_assigned", assigned)
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver, "monotonic", lambda: now[0], raising=False)
    monkeypatch.setattr("faust.transport.consumer.monotonic", lambda: now[0])

    def add(seconds: float) -> None:
        now[0] += seconds

    return add


def test_a_partition_waits_for_its_first_record_from_its_assignment_on(pass_time: Any) -> None:
    """After each later rebalance, every partition with a backlog "had not started" at once."""

    async def check() -> None:
        consumer = Consumer()
        pass_time(2 * TIMEOUT)
        await consumer.on_partitions_assigned({ORDERS}, 2)
        await consumer.verify_all_partitions_active()
        assert consumer._thread.said == []
        pass_time(TIMEOUT)
        await consumer.verify_all_partitions_active()
        assert consumer._thread.said == [driver.SLOW_PROCESSING_STREAM_IDLE_SINCE_START]

    asyncio.run(check())


def test_the_line_is_not_repeated_with_every_commit(pass_time: Any) -> None:
    async def check() -> None:
        consumer = Consumer()
        pass_time(TIMEOUT)
        for _ in range(100):
            await consumer.verify_all_partitions_active()
            pass_time(0.5)
        assert len(consumer._thread.said) == 2

    asyncio.run(check())


def test_a_topic_that_was_created_anew_ends_the_worker() -> None:
    """Agents went on at their offset in the new topic, and never got the records before."""

    async def check() -> None:
        consumer = Consumer()
        await consumer.verify_all_partitions_active()
        assert consumer.failures == []
        consumer.lost = LostTopic("orders", anew=True)
        await consumer.verify_all_partitions_active()
        assert "the topic orders was deleted and created anew while this worker ran" in consumer.failures[0]

    asyncio.run(check())


def test_a_deleted_topic_is_noticed_also_if_agents_read_further_topics(
    pass_time: Any, monkeypatch: Any
) -> None:
    """With each further topic, the worker forgot the ids of the others, and opened one more client."""
    known, admins, assigned = {"orders": "1", "bills": "2"}, [], {ORDERS}

    def describe_topics(topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for name, answer in answers.items():
            if name in known:
                answer.set_result(SimpleNamespace(topic_id=known[name], partitions=[]))
            else:
                answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return answers

    def admin_client(config: Any) -> Any:
        admins.append(config)
        return SimpleNamespace(describe_topics=describe_topics)

    monkeypatch.setattr("streamapp.runners.worker.agents.consumer.admin_client", admin_client)

    async def check() -> None:
        consumer = Consumer()
        consumer.app.config = None
        consumer._topic_ids = None
        consumer.assignment = lambda: assigned  # type: ignore[method-assign]
        for _ in range(2):
            await consumer.verify_all_partitions_active()
            pass_time(31)
        assigned.add(TP("bills", 0))
        assigned.discard(ORDERS)
        del known["orders"]
        for _ in range(4):
            await consumer.verify_all_partitions_active()
            pass_time(31)
        assert "the topic orders was deleted while this worker ran" in consumer.failures[0]
        assert len(admins) == 1

    asyncio.run(check())


def test_agents_read_records_of_each_codec() -> None:
    """Without cramjam, the worker ended at the first record in lz4, snappy or zstd."""
    assert codec.has_gzip()
    assert codec.has_lz4()
    assert codec.has_snappy()
    assert codec.has_zstd()
