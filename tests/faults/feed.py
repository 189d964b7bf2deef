"""The input of a run: sends the records, and writes their places in the log into the history."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from .history import History
from .models import POISON
from .watch import LogReader, text

__all__ = ["KEYS", "PARTITIONS", "Feed", "key_of", "poison_every", "poison_where"]

PARTITIONS, KEYS = 4, 40
_BASE_MS = 1_700_000_000_000
_MOST = 50_000
"""The most records that wait for their acknowledgement."""


def key_of(number: int, keys: int = KEYS) -> str:
    """The key of a record by its number. The keys come in turn, so that each comes equally often."""
    return f"k{number * 7919 % keys}"


def poison_where(bad: Callable[[int], bool]) -> Callable[[int], str]:
    """A function for `Run.feed` that gives the number as value, or poison for a number that is ``bad``."""
    return lambda number: f"{POISON}-{number}" if bad(number) else str(number)


def poison_every(count: int, at: int = 7) -> Callable[[int], str]:
    """A function as of `poison_where`, with poison for one of ``count`` numbers."""
    return poison_where(lambda number: number % count == at % count)


class Feed:
    """Sends numbered records to a topic, and writes their places into the history."""

    def __init__(self, history: History, bootstrap: str, topic: str) -> None:
        self._history = history
        self._bootstrap = bootstrap
        self._topic = topic
        self._number = 0
        self.replays: bool = False
        """True if replays also write to the topic, in transactions, some of which are aborted."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "acks": "all",
                "max.in.flight": 1,
                "log_level": 0,
            }
        )
        self.ends: dict[str, int] = {}
        """``topic-partition`` -> the offset after the last record that brokers have acknowledged."""

    def send(
        self, count: int, value: Callable[[int], str] = str, ahead_ms: int | None = None, keys: int = KEYS
    ) -> None:
        """Sends records and waits until the brokers have them; see `Run.feed`."""
        for _ in range(count):
            self._send(value, ahead_ms, keys)
        self._producer.flush()

    @contextmanager
    def sending(self, per_second: int) -> Iterator[None]:
        """Sends records as long as the body runs."""
        stop = threading.Event()

        def send() -> None:
            while not stop.wait(0.25):
                for _ in range(per_second // 4):
                    self._send(str)
                self._producer.poll(0)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._producer.flush()

    def send_rows(self, topic: str) -> None:
        """Sends a row of a table for each key. The time of the rows is before that of all records."""
        for number in range(KEYS):
            self._producer.produce(topic, f"row-of-k{number}", f"k{number}", timestamp=_BASE_MS - 1)
        self._producer.flush()

    def look(self) -> None:
        """Adds the records of the log that are not in the history. A killed broker may have kept them without an
        acknowledgement."""
        known = {(e["partition"], e["offset"]) for e in self._history.of("sent")}
        partitions = [TopicPartition(self._topic, p) for p in range(PARTITIONS)]
        reader = LogReader(self._bootstrap, partitions, read_committed=self.replays)
        for message in reader.rest():
            if (message.partition(), message.offset()) not in known:
                self._note(message)
        reader.close()

    def _send(self, value: Callable[[int], str], ahead_ms: int | None = None, keys: int = KEYS) -> None:
        number = self._number
        self._number += 1
        # Most timestamps are in order. Some are late, but within the grace period, and some too late for any window.
        late = 8_000 if number % 10 == 3 else 60_000 if number % 37 == 5 else 0
        content = value(number)
        timestamp = _BASE_MS + max(0, number * 100 - late)
        if ahead_ms is not None and (content.startswith(POISON) or value is str):
            timestamp = int(time.time() * 1000) + ahead_ms
        self._produce(content, key_of(number, keys), timestamp)

    def _produce(self, value: str, key: str, timestamp: int) -> None:
        while len(self._producer) > _MOST:
            self._producer.poll(0.01)
        self._producer.produce(
            self._topic,
            value,
            key,
            timestamp=timestamp,
            on_delivery=self._on_delivery,
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:  # after an error, only the log tells: see `look`
            partition = f"{message.topic()}-{message.partition()}"
            self.ends[partition] = max(message.offset() + 1, self.ends.get(partition, 0))
            self._note(message)

    def _note(self, message: Message) -> None:
        self._history.add(
            "sent",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=text(message.key()),
            value=text(message.value()),
            timestamp=message.timestamp()[1],
            **({"again": True} if _is_replay(message) else {}),
        )


def _is_replay(message: Message) -> bool:
    return any(name == "__streamapp.replay.letter" for name, _ in message.headers() or ())
