"""The doctor on a broker with an authorizer: a part that its user may not see is named, and is never called well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from streamapp.cli import main
from streamapp.operations.acls import Acl

from ..consumer.feeding import Feed
from ..group_offsets import commit_offsets
from ..secured import USER
from .guarded import allow


def grant(feed: Feed, *acls: tuple[str, str, str]) -> None:
    allow(feed.bootstrap, [Acl(*acl).as_dict(f"User:{USER}") for acl in acls])  # type: ignore[arg-type]


def doctor(feed: Feed, baseline: Path) -> tuple[int, dict[str, Any]]:
    """The exit code and the report, without findings that the test has accepted."""
    done = CliRunner().invoke(main, ["doctor", "--group", feed.group, "--baseline", str(baseline), "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return tmp_path / "accepted.json"


def commit(feed: Feed) -> None:
    commit_offsets(feed.bootstrap, feed.group, [TopicPartition(feed.topic, 0, 0)])


def accept(feed: Feed, baseline: Path) -> None:
    arguments = ["doctor", "--group", feed.group, "--baseline", str(baseline), "--accept"]
    assert CliRunner().invoke(main, arguments).exit_code == 0


def test_a_transaction_that_the_user_may_not_see_is_neither_hanging_nor_well(
    feed: Feed, baseline: Path
) -> None:
    feed.send([("k", "0")])
    commit(feed)
    grant(feed, ("group", feed.group, "Read"), ("topic", feed.topic, "Read"))
    accept(feed, baseline)
    producer = Producer({"bootstrap.servers": feed.bootstrap, "transactional.id": f"{feed.group}-of-another"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(feed.topic, b"v", b"k")
    assert producer.flush(30) == 0
    code, report = doctor(feed, baseline)
    assert (code, report["findings"]) == (2, [])
    held = [line for line in report["unseen"] if line.startswith("the transaction that holds")]
    assert len(held) == 1
    assert f"{feed.topic}-0 at offset 1: it hangs, or this client has no DESCRIBE" in held[0]
    producer.abort_transaction(30)


def test_settings_records_and_topics_that_the_user_may_not_see_are_named(feed: Feed, baseline: Path) -> None:
    feed.send([("k", "0")])
    commit(feed)
    grant(
        feed, ("group", feed.group, "Read"), ("topic", feed.topic, "Write")
    )  # includes DESCRIBE, and not READ
    accept(feed, baseline)
    code, report = doctor(feed, baseline)
    assert (code, report["findings"]) == (2, [])
    begins = {line.split(":")[0] for line in report["unseen"]}
    assert {
        "the settings of broker 1",
        f"the settings of {feed.topic}",
        f"the last records of {feed.topic}",
        "the topic __consumer_offsets",
        "the topic __transaction_state",
    } <= begins
