"""A topic that is deleted and created anew, under consumers that stand still and under consumers that run."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp import StringSerde
from streamapp._base.names import NO_TOPIC_ID
from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.settings import KafkaSettings
from streamapp.cli import main
from streamapp.consumer import ConsumerRecord, SqliteOffsets, SyncReliableConsumer
from streamapp.engine.metadata import metadata_of
from streamapp.errors import BrokerError
from streamapp.runners import topic_ids

from ..group_offsets import commit_offsets
from ..processes import until
from .feeding import Feed
from .test_consuming import SECONDS, Seen, consumer, numbers


def recreate(feed: Feed) -> None:
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=feed.bootstrap))
    admin.delete_topics([feed.topic])
    until(lambda: feed.topic not in admin.topics(), SECONDS, lambda: "the topic is still there")
    feed.create(feed.partitions)


class Booked:
    """A consumer that writes numbers into SQLite, in the transaction of its offsets."""

    def __init__(self, feed: Feed, file: Path) -> None:
        self.feed, self.file = feed, file
        self.run("CREATE TABLE booked (number INTEGER)")

    def run(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        rows = connection.execute(statement).fetchall()
        connection.close()
        return rows

    @property
    def count(self) -> int:
        return int(self.run("SELECT count(*) FROM booked")[0][0])

    def consumer(self) -> SyncReliableConsumer:
        def book(record: ConsumerRecord, connection: Any) -> None:
            connection.execute("INSERT INTO booked VALUES (?)", (int(record.value),))

        return consumer(self.feed, book, guarantee="exactly_once", offsets=SqliteOffsets(self.file))

    def book(self, count: int) -> None:
        """Runs a consumer until so many numbers are booked in all."""
        with self.consumer() as running:
            until(lambda: self.count == count, SECONDS, lambda: running.status)


def refusal(running: SyncReliableConsumer) -> str:
    with pytest.raises(BrokerError) as caught, running:
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    return str(caught.value)


def test_offsets_in_a_database_are_refused_in_a_topic_that_was_created_anew(
    feed: Feed, tmp_path: Path
) -> None:
    """The consumer passed over as many new records as the old topic had, without a word."""
    feed.create(1)
    feed.send(numbers(200))
    booked = Booked(feed, tmp_path / "booked.db")
    booked.book(200)
    recreate(feed)
    feed.send(numbers(400))
    said = refusal(booked.consumer())
    assert f"the topic {feed.topic} was deleted and created anew" in said
    assert booked.count == 200
    (statement,) = [part for part in said.split("`") if "position = 0" in part]
    booked.run(statement)
    booked.book(600)


def test_offsets_in_a_database_go_on_if_the_operator_says_so(feed: Feed, tmp_path: Path) -> None:
    feed.create(1)
    feed.send(numbers(20))
    booked = Booked(feed, tmp_path / "booked.db")
    booked.book(20)
    recreate(feed)
    feed.send(numbers(30))
    statements = [part for part in refusal(booked.consumer()).split("`") if part.startswith("UPDATE")]
    booked.run(statements[1])
    booked.book(30)


def test_an_offset_of_an_older_version_gets_an_id(feed: Feed, tmp_path: Path) -> None:
    feed.create(1)
    feed.send(numbers(20))
    booked = Booked(feed, tmp_path / "booked.db")
    booked.book(20)
    booked.run("UPDATE streamapp_offsets SET metadata = ''")
    with booked.consumer() as running:
        until(
            lambda: booked.run("SELECT metadata FROM streamapp_offsets")[0][0] != "",
            SECONDS,
            lambda: running.status,
        )
    recreate(feed)
    assert "was deleted and created anew" in refusal(booked.consumer())


@pytest.mark.parametrize("target", ["--to-earliest", "--shift-by 0"])
def test_offsets_in_kafka_are_refused_in_a_topic_that_was_created_anew(feed: Feed, target: str) -> None:
    feed.create(1)
    feed.send(numbers(100))
    seen = Seen()
    with consumer(feed, seen) as running:
        until(lambda: not any(feed.lags().values()), SECONDS, lambda: running.status)
    metadata = feed.commits()[0][1]
    recreate(feed)
    feed.send(numbers(100))
    # Brokers delete the offsets together with the topic. A consumer that runs meanwhile may commit again.
    commit_offsets(feed.bootstrap, feed.group, [KafkaPartition(feed.topic, 0, 60, metadata=metadata)])
    said = refusal(consumer(feed, seen))
    assert f"the topic {feed.topic} was deleted and created anew" in said
    (command,) = [part for part in said.split("`") if target in part]
    env = {"STREAMAPP_BOOTSTRAP_SERVERS": feed.bootstrap}
    moved = CliRunner().invoke(main, command.split()[1:], env=env)
    assert moved.exit_code == 0, moved.output
    with consumer(feed, seen) as running:
        until(lambda: not any(feed.lags().values()), SECONDS, lambda: running.status)
    assert seen.count == (200 if target == "--to-earliest" else 140)


def test_a_topic_that_is_created_anew_ends_a_consumer_that_reads_it(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 0.2)
    feed.create(1)
    feed.send(numbers(100))
    seen = Seen()
    with pytest.raises(BrokerError, match="was deleted and created anew"), consumer(feed, seen) as running:
        until(lambda: not any(feed.lags().values()), SECONDS, lambda: running.status)
        time.sleep(1.0)
        assert running.status.state == "running"
        recreate(feed)
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)


def test_a_consumer_that_began_with_the_new_topic_goes_on_there(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "_ASK_SECONDS", 5.0)
    feed.create(1)
    feed.send(numbers(100))
    seen = Seen()
    with pytest.raises(BrokerError, match="was deleted and created anew"), consumer(feed, seen) as running:
        until(lambda: not any(feed.lags().values()), SECONDS, lambda: running.status)
        recreate(feed)
        feed.send(numbers(10))
        until(lambda: running.status.state == "failed", SECONDS, lambda: running.status)
    with consumer(feed, seen) as running:
        feed.send(numbers(5))
        until(lambda: seen.count == 115, SECONDS, lambda: running.status)


def test_metadata_of_another_client_is_no_hindrance(feed: Feed) -> None:
    feed.create(1)
    feed.send(numbers(10))
    for metadata in ("somebody else's", metadata_of(NO_TOPIC_ID)):
        commit_offsets(feed.bootstrap, feed.group, [KafkaPartition(feed.topic, 0, 5, metadata=metadata)])
        seen = Seen()
        with consumer(feed, seen, value_serde=StringSerde()) as running:
            until(lambda: not any(feed.lags().values()), SECONDS, lambda: running.status)
        assert seen.count == 5
