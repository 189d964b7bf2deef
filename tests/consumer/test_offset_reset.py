"""A consumer without offsets begins as its offset reset policy says."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streamapp import StreamsConfig, StringSerde
from streamapp.consumer import KafkaOutput, SqliteOffsets, SyncReliableConsumer
from streamapp.errors import StreamsError

from ..processes import until
from .feeding import Feed
from .test_consuming import SECONDS, Seen, consumer, numbers

NEVER_MS = 600_000


@pytest.mark.parametrize("kind", ["at_least_once", "at_most_once", "output", "database"])
def test_a_begin_at_the_end_is_committed_before_the_first_record(
    feed: Feed, kind: str, tmp_path: Path
) -> None:
    """A consumer that was killed before its first commit began at a later end, and left out the records between."""
    feed.create()
    feed.send(numbers(50))
    settings: dict[str, Any] = {"guarantee": kind}
    seen = Seen()
    handle: Any = seen
    if kind in ("output", "database"):
        settings = {"guarantee": "exactly_once"}

        def handle(record: Any, transaction: Any) -> None:
            seen(record)

    if kind == "output":
        settings |= {"output": KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())}
    if kind == "database":
        settings |= {"offsets": SqliteOffsets(tmp_path / "offsets.db")}
    config = StreamsConfig("any", auto_offset_reset="latest")
    with consumer(feed, handle, config=config, commit_interval_ms=NEVER_MS, **settings) as running:
        until(
            lambda: sum(offset for offset, _ in feed.committed().values()) == 50,
            SECONDS,
            lambda: f"{feed.committed()} {running.status}",
        )
        if kind == "database":
            with sqlite3.connect(tmp_path / "offsets.db") as database:
                assert database.execute("SELECT sum(position) FROM streamapp_offsets").fetchall() == [(50,)]
        feed.send(numbers(60)[50:])
        until(lambda: seen.count == 10, SECONDS, lambda: running.status)


def test_a_duration_begins_with_the_records_of_this_time(feed: Feed) -> None:
    feed.create(1)
    producer = Producer({"bootstrap.servers": feed.bootstrap})
    now = int(time.time() * 1000)
    for number, age in enumerate([7_200_000, 7_100_000, 60_000, 0]):
        producer.produce(feed.topic, str(number), "k", timestamp=now - age)
    assert producer.flush(60) == 0
    seen = Seen()
    config = StreamsConfig("any", auto_offset_reset=timedelta(hours=1))
    with consumer(feed, seen, config=config) as running:
        until(lambda: feed.committed().get(0, (0, []))[0] == 4, SECONDS, lambda: running.status)
    assert seen.by_key == {"k": [2, 3]}


def test_without_an_offset_none_ends_the_consumer(feed: Feed) -> None:
    feed.create(1)
    running: SyncReliableConsumer = consumer(
        feed, Seen(), config=StreamsConfig("any", auto_offset_reset="none")
    )
    with (
        pytest.raises(StreamsError, match=f"the group {feed.group} has no offset in {feed.topic}-0"),
        running,
    ):
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
