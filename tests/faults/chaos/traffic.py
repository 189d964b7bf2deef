"""The input of a chaos run. The seed decides which records are sent. The log has the place of each record."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from .application import INPUTS

__all__ = ["CLOSING_MS", "KEYS", "STEP_MS", "New", "Traffic", "closing", "draw_record"]

KEYS = 40
CLOSING_MS = 5 * 3_600_000
"""The time of the last records, later than any other event. These records close all earlier windows, and the stores,
which keep a day, still have the rows."""
STEP_MS = 100
_AHEAD_MS = 3 * 3_600_000
"""By default, brokers take records up to one hour ahead of the clock (``message.timestamp.after.max.ms``)."""
_PRODUCERS = 3
_SHARES = {"events": 50, "others": 20, "left": 8, "right": 8, "refs": 4, "copies": 10, "asked": 15}
_HOSTILE = [
    b"\xff\xfe\x00{",
    b"[" * 3_000 + b"]" * 3_000,
    b'"no event"',
    b'{"n": "not a number"}',
    b'{"n": 1',
]


class New(NamedTuple):
    """A record to be sent."""

    topic: str
    key: str
    value: bytes | None
    event_ms: int
    """The time since the first event of the run."""
    ahead: bool = False


def draw_record(number: int, draw: random.Random) -> New:
    """Draws a record. About one in 120 cannot be processed, and some are late for the windows.

    About one in 60 of the copies is ahead of the clock.
    """
    (topic,) = draw.choices(INPUTS, [_SHARES[name] for name in INPUTS])
    late = 8_000 if number % 10 == 3 else 60_000 if number % 37 == 5 else 0
    event_ms = max(0, number * STEP_MS - late)
    key = f"r{draw.randrange(8)}" if topic == "refs" else f"k{draw.randrange(KEYS)}"
    if draw.random() < 1 / 120:
        # A table has no function that could refuse a record whose JSON can be read.
        broken = _HOSTILE[:1] if topic in ("left", "right", "refs") else _HOSTILE
        return New(topic, key, draw.choice(broken), event_ms)
    if topic in ("left", "right", "refs") and draw.random() < 0.15:
        return New(topic, key, None, event_ms)
    row: dict[str, int | str | bool] = {"n": number}
    if topic == "left":
        row["ref"] = f"r{draw.randrange(10)}"
    ahead = topic == "copies" and draw.random() < 1 / 60
    if ahead:
        row["ahead"] = True
    return New(topic, key, json.dumps(row).encode(), event_ms, ahead)


def closing(turn: int, numbers: Iterator[int]) -> list[New]:
    """The last events: one of each key, in two turns. The second turn closes the windows of the first one."""
    return [
        New(
            "events",
            f"k{key}",
            json.dumps({"n": next(numbers), "closing": turn}).encode(),
            CLOSING_MS + turn * 120_000,
        )
        for key in range(KEYS)
    ]


class Traffic:
    """Several producers that send all the time."""

    def __init__(self, bootstrap: str, prefix: str, seed: int) -> None:
        self._prefix, self._seed = prefix, seed
        # All event times are in the past, and young enough for any store.
        self._first_ms = int(time.time() * 1_000) - CLOSING_MS - 3_600_000
        self._settings = {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight": 1,
            "log_level": 0,
        }
        self.numbers = count(1)
        self.sent = 0
        self.ends: dict[str, int] = {}
        """``topic-partition`` -> the offset behind the last record that brokers have acknowledged."""

    @contextmanager
    def flowing(self, per_second: int) -> Iterator[None]:
        """Sends records as long as the body runs, and then waits until the brokers have them."""
        stop = threading.Event()
        each = [
            threading.Thread(target=self._flow, args=(number, per_second / _PRODUCERS, stop), daemon=True)
            for number in range(_PRODUCERS)
        ]
        for thread in each:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in each:
                thread.join()

    def close_windows(self, turn: int) -> None:
        producer = Producer(self._settings)
        for record in closing(turn, self.numbers):
            self._send(producer, record)
        producer.flush()

    def _flow(self, producer_number: int, per_second: float, stop: threading.Event) -> None:
        producer = Producer(self._settings)
        draw = random.Random(f"{self._seed}-{producer_number}")
        while not stop.wait(1 / per_second):
            self._send(producer, draw_record(next(self.numbers), draw))
            producer.poll(0)
        producer.flush()

    def _send(self, producer: Producer, record: New) -> None:
        timestamp = int(time.time() * 1_000) + _AHEAD_MS if record.ahead else self._first_ms + record.event_ms
        topic = f"{self._prefix}-{record.topic}"
        producer.produce(topic, record.value, record.key, timestamp=timestamp, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:  # after an error, only the log tells: it is read at the end
            self.sent += 1
            partition = f"{message.topic()}-{message.partition()}"
            self.ends[partition] = max(message.offset() + 1, self.ends.get(partition, 0))
