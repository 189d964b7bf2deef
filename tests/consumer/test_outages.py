"""Brokers are killed (kill -9) under consumers while records flow: each promise holds, and consumers go on by themselves."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from streamapp import Retry, StringSerde
from streamapp.broker import LocalKafka
from streamapp.consumer import (
    ConsumerRecord,
    KafkaOutput,
    OutputTransaction,
    SqliteOffsets,
    SyncReliableConsumer,
)
from streamapp.on_error import Backoff
from streamapp.producer import SyncReliableProducer

from ..brokers import LightKafka
from ..processes import until
from .feeding import Feed

pytestmark = [pytest.mark.broker, pytest.mark.slow]
SECONDS = 120.0
PARALLELISM = 4
STEP = 60
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Brokers that tests of this module may kill."""
    with LightKafka(tmp_path_factory.mktemp("mortal"), brokers=len(BROKERS), port=0, heap_mb=256) as kafka:
        yield kafka


class Flow:
    """The same numbers into several topics, without an end."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self._producer = SyncReliableProducer(
            "numbers", bootstrap_servers=bootstrap, key_serde=StringSerde(), value_serde=StringSerde()
        )
        self._topics, self._over = topics, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._producer:
            while not self._over.wait(0.01):
                for topic in self._topics:
                    self._producer.send_soon(topic, key=f"k{self.sent % 12}", value=str(self.sent))
                self.sent += 1
            assert self._producer.flush(60_000)


class Consumers:
    """A consumer for each promise."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.feeds = {name: Feed(bootstrap) for name in ("at least", "at most", "database", "output")}
        for feed in self.feeds.values():
            feed.create()
        self.seen: dict[str, list[int]] = {"at least": [], "at most": []}
        self.database = folder / "orders.db"
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("CREATE TABLE handled (value INTEGER)")
            connection.commit()
        strings = KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())
        retry = Retry.by_key(times=None, backoff=Backoff(50, jitter=0), then="fail")
        self.running = {
            "at least": self._consumer("at least", self._note("at least")),
            "at most": self._consumer("at most", self._note("at most"), guarantee="at_most_once"),
            "database": self._consumer(
                "database",
                self._to_database,
                guarantee="exactly_once",
                offsets=SqliteOffsets(self.database),
                on_error=retry,
            ),
            "output": self._consumer("output", self._to_topic, guarantee="exactly_once", output=strings),
        }

    def _consumer(self, name: str, handler: Any, **settings: Any) -> SyncReliableConsumer:
        feed = self.feeds[name]
        return SyncReliableConsumer(
            feed.group,
            feed.topic,
            handler,
            bootstrap_servers=feed.bootstrap,
            key_serde=StringSerde(),
            value_serde=StringSerde(),
            parallelism=PARALLELISM,
            **settings,
        )

    def _note(self, name: str) -> Any:
        return lambda record: self.seen[name].append(int(record.value))

    def _to_database(self, record: ConsumerRecord[str, str], connection: Any) -> None:
        connection.execute("INSERT INTO handled VALUES (?)", (int(record.value),))

    def _to_topic(self, record: ConsumerRecord[str, str], transaction: OutputTransaction[str, str]) -> None:
        transaction.send(self.feeds["output"].out, key=record.key, value=record.value)

    def go_on(self) -> None:
        """Returns when every consumer has got further, and has committed it."""
        reached = {name: self._progress(each) for name, each in self.running.items()}
        until(
            lambda: all(self._progress(each) >= reached[name] + STEP for name, each in self.running.items()),
            SECONDS,
            lambda: [each.status for each in self.running.values()],
        )

    def _progress(self, running: SyncReliableConsumer) -> int:
        metrics = running.metrics
        return metrics.outputs if metrics.outputs else metrics.done

    def check(self, sent: int, kills: int) -> None:
        for feed in self.feeds.values():
            until(lambda feed=feed: feed.position() == sent, SECONDS, feed.committed)  # type: ignore[misc]
        numbers = list(range(sent))
        assert set(self.seen["at least"]) == set(numbers)
        assert max(Counter(self.seen["at most"]).values()) == 1
        assert len(self.seen["at most"]) >= sent - PARALLELISM * kills
        with closing(sqlite3.connect(self.database)) as connection:
            rows = connection.execute("SELECT value FROM handled ORDER BY value")
            assert [value for (value,) in rows] == numbers
        written = self.feeds["output"].written()
        assert sorted(number for _, number in written) == numbers
        for key in range(12):
            of_key = [number for found, number in written if found == f"k{key}"]
            assert of_key == sorted(of_key)


def test_brokers_are_killed_while_records_flow(mortal: LocalKafka, tmp_path: Path) -> None:
    consumers = Consumers(mortal.bootstrap_servers, tmp_path)
    rounds = [(1,), (2,), BROKERS]
    with ExitStack() as stack:
        flow = stack.enter_context(
            Flow(mortal.bootstrap_servers, [feed.topic for feed in consumers.feeds.values()])
        )
        for each in consumers.running.values():
            stack.enter_context(each)
        for kills in rounds:
            consumers.go_on()
            for number in kills:
                mortal.kill_broker(number)
            with ThreadPoolExecutor() as threads:  # one alone does not get ready
                list(threads.map(mortal.start_broker, kills))
            consumers.go_on()
        flow.__exit__()
        consumers.check(flow.sent, len(rounds))
