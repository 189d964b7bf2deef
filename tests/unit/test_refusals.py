"""Refused results: of a batch that brokers refuse as a whole, the record to blame is found, and no other."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from streamapp.engine.collector import ResultRefused
from streamapp.errors import BrokerError
from streamapp.runners import refusals as refusals_module
from streamapp.runners.refusals import Failure, Refusals
from streamapp.runners.spark.streaming_transaction import Deliveries

NOW = int(time.time() * 1000)
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def clock_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long run, a test may begin half an hour after the import of this file."""
    monkeypatch.setattr(refusals_module, "time", SimpleNamespace(time=lambda: NOW / 1000))


def refused(code: int, *records: tuple[bytes | None, int], topic: str = "out") -> list[Failure]:
    return [Failure(KafkaError(code), topic, 0, key, b"v", timestamp) for key, timestamp in records]


def blamed(refusals: Refusals, failures: list[Failure]) -> list[bytes | None]:
    for failure in failures:
        refusals.add(failure)
    assert refusals.take() is not None
    return [f.key for f in failures if refusals.find(f.topic, f.key, f.value, f.timestamp) is not None]


@pytest.mark.parametrize(
    ("records", "culprits"),
    [
        ([(b"a", NOW), (b"b", NOW + 2 * HOUR), (b"c", NOW + 1000)], [b"b"]),
        ([(b"a", NOW + 2 * HOUR), (b"b", NOW + 2 * HOUR), (b"c", NOW)], [b"a", b"b"]),
        ([(b"a", NOW - HOUR), (b"b", 5), (b"c", NOW - 2 * HOUR)], [b"b"]),
        ([(b"a", NOW)], [b"a"]),
    ],
    ids=["ahead", "two of one time", "behind", "alone"],
)
def test_the_timestamp_that_is_furthest_away_is_to_blame(records, culprits):
    assert blamed(Refusals(), refused(KafkaError.INVALID_TIMESTAMP, *records)) == culprits


def test_a_record_without_key_is_to_blame_where_others_have_one():
    batch = refused(KafkaError.INVALID_RECORD, (b"a", 1), (None, 2), (b"c", 3))
    assert blamed(Refusals(), batch) == [None]


def test_what_brokers_tell_apart_is_believed():
    refusals = Refusals()
    (other,) = refused(KafkaError._INVALID_DIFFERENT_RECORD, (b"good", 1))
    refusals.spare(other)
    batch = refused(KafkaError.INVALID_RECORD, (b"a", NOW + 2 * HOUR), (b"b", NOW + 3 * HOUR))
    assert blamed(refusals, batch) == [b"a", b"b"]


def test_what_nothing_tells_apart_is_sent_in_smaller_batches():
    refusals = Refusals()
    batch = refused(KafkaError.INVALID_RECORD, (b"a", 1), (b"b", 2))
    assert blamed(refusals, batch) == []
    assert refusals.batch_bytes == 1


def test_a_record_a_little_ahead_is_not_blamed_for_an_old_one():
    """Under "continue", the record was dropped, although brokers refused only the old one."""
    refusals = Refusals()
    batch = refused(KafkaError.INVALID_TIMESTAMP, (b"a", NOW + HOUR // 2), (b"b", NOW - 1000 * HOUR))
    assert blamed(refusals, batch) == []
    assert refusals.batch_bytes == 1
    assert blamed(refusals, batch[1:]) == [b"b"]


def test_the_next_one_is_found_when_the_first_is_gone():
    refusals, later, last = Refusals(), (b"later", NOW + 2 * HOUR), (b"last", NOW + 3 * HOUR)
    assert blamed(refusals, refused(KafkaError.INVALID_TIMESTAMP, (b"a", NOW), later, last)) == [b"last"]
    both = refused(KafkaError.INVALID_TIMESTAMP, (b"a", NOW), later)
    assert blamed(refusals, both) == [b"later"]
    refusals.clear()
    assert not refusals


def test_a_commit_of_others_forgets_no_refusal():
    """With at_least_once a commit that had nothing to do forgot them: a result was refused, and rolled back, for ever."""
    refusals = Refusals()
    (late, other) = refused(KafkaError.MSG_SIZE_TOO_LARGE, (b"late", 1), (b"other", 1))
    refusals.add(late)
    refusals.take()
    refusals.committed()
    assert refusals.find("out", late.key, late.value, late.timestamp) is not None
    refusals.rolled_back()  # what the handler has decided is rolled back
    refusals.committed()
    assert refusals
    assert refusals.find("out", late.key, late.value, late.timestamp) is not None
    assert refusals.find("out", other.key, other.value, other.timestamp) is None
    refusals.committed()
    assert not refusals


def test_batches_of_several_partitions_are_too_large():
    """The batch of one partition made the records of the next ones look as if they filled a batch."""
    refusals = Refusals()
    failures = [
        Failure(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "out", partition, b"k%d" % number, b"v", 1)
        for partition in range(4)
        for number in range(20)
    ]
    assert blamed(refusals, failures) == []
    assert refusals.batch_bytes is not None
    assert refusals.batch_bytes > 3


def test_a_micro_batch_whose_refused_result_differs_each_time_ends() -> None:
    """The task repeated its work for ever, and so the run stood still without an error."""
    deliveries = Deliveries({}, "dead")
    assert not deliveries.refused()
    with pytest.raises(BrokerError, match=r"brokers refused 1 result for out: .* after 30 repetitions"):
        for number in range(100):
            (differs,) = refused(KafkaError.INVALID_RECORD, (str(number).encode(), NOW))
            deliveries.refusals.add(differs)
            assert deliveries.refused()
    assert number == 30


def test_a_letter_that_a_client_on_spark_does_not_take_is_refused_where_its_record_is_known() -> None:
    """The error named neither the record nor its own error, other than on a worker."""
    deliveries = Deliveries({"app-counts-changelog": "counts"}, "dead")
    (letter,) = refused(KafkaError.MSG_SIZE_TOO_LARGE, (b"k", NOW), topic="dead")
    assert isinstance(deliveries.not_taken(letter), ResultRefused)
    change = letter._replace(topic="app-counts-changelog")
    assert "a change of the store counts could not be written" in str(deliveries.not_taken(change))
