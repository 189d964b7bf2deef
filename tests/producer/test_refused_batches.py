"""Brokers refuse a request with many records: only the records to blame fail, and the order of each partition stays."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from streamapp.producer import DeliveryError, DeliveryReport, SyncReliableProducer, UnsentRecords

from ..processes import until
from .topics import Topics

TOGETHER: dict[str, Any] = {"compression_type": "none", "linger_ms": 200}
"""Settings with which the records of a test share a request."""
COUNT = 200


def padded(number: int, size: int = 100) -> bytes:
    return b"%d " % number + b"x" * size


def numbers(values: list[bytes | None]) -> list[int]:
    return [int((value or b"").split()[0]) for value in values]


def failed(reports: list[Future[DeliveryReport]]) -> list[int]:
    """The indexes of the reports that are errors. All of them are refusals, and no topic has the record."""
    found: list[int] = []
    for index, report in enumerate(reports):
        error = report.exception(30)
        if error is not None:
            assert isinstance(error, DeliveryError)
            assert (error.refused, error.written) == (True, False), error
            found.append(index)
    return found


def test_records_that_are_only_together_too_large_arrive_in_order(topics: Topics) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **TOGETHER) as producer:
        reports = [producer.send_soon(topic, key=b"k", value=padded(each)) for each in range(COUNT)]
        assert failed(reports) == []
    assert numbers(topics.values(topic)) == list(range(COUNT))
    metrics = producer.metrics
    assert (metrics.events, metrics.confirmed, metrics.failed, metrics.buffered_records) == (
        COUNT,
        COUNT,
        0,
        0,
    )


def test_only_the_record_that_is_too_large_fails(topics: Topics) -> None:
    topic = topics.create(1, max_message_bytes="20000")
    guilty = [7, 111]
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **TOGETHER) as producer:
        reports = [
            producer.send_soon(topic, key=b"k", value=padded(each, 30_000 if each in guilty else 20))
            for each in range(COUNT)
        ]
        assert failed(reports) == guilty
        assert producer.metrics.failed == len(guilty)
    assert numbers(topics.values(topic)) == [each for each in range(COUNT) if each not in guilty]


def test_batches_are_smaller_also_if_another_topic_refuses_a_record_at_the_same_moment(
    topics: Topics,
) -> None:
    small, other = topics.create(1, max_message_bytes="2000"), topics.create(1, max_message_bytes="20000")
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **TOGETHER) as producer:

        def send_small() -> list[Future[DeliveryReport]]:
            return [producer.send_soon(small, key=b"k", value=padded(each, 150)) for each in range(20)]

        sent = send_small()
        reports = [
            producer.send_soon(other, key=b"k", value=padded(each, 30_000 if each == 3 else 20))
            for each in range(20)
        ]
        assert (failed(sent), failed(reports)) == ([], [3])
        until(lambda: producer.metrics.retries > 0, 30, lambda: f"{producer.metrics}")
        retries = producer.metrics.retries
        assert failed(send_small()) == []
        assert failed([producer.send_soon(small, value=b"the last")]) == []
        assert producer.metrics.retries == retries


def test_only_the_record_with_the_refused_timestamp_fails(topics: Topics) -> None:
    topic = topics.create(1, message_timestamp_before_max_ms="3600000")
    guilty = [7, 111]
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **TOGETHER) as producer:
        reports = [
            producer.send_soon(
                topic, key=b"k", value=padded(each), timestamp=1_000 if each in guilty else None
            )
            for each in range(COUNT)
        ]
        assert failed(reports) == guilty
    assert numbers(topics.values(topic)) == [each for each in range(COUNT) if each not in guilty]


def test_only_the_record_without_a_key_fails_in_a_compacted_topic(topics: Topics) -> None:
    topic = topics.create(1, cleanup_policy="compact")
    guilty = [7, 111]
    with SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **TOGETHER) as producer:
        reports = [
            producer.send_soon(topic, key=None if each in guilty else b"%d" % each, value=padded(each))
            for each in range(COUNT)
        ]
        assert failed(reports) == guilty
    assert numbers(topics.values(topic)) == [each for each in range(COUNT) if each not in guilty]


def test_nothing_passes_a_refused_request(topics: Topics) -> None:
    """Threads send on while requests are refused: to the same partitions, and to a topic that refuses nothing."""
    small, wide = topics.create(2, max_message_bytes="3000"), topics.create(1)
    count, guilty = 3_000, set(random.Random(3).sample(range(3_000), 6))
    reports: dict[str, list[Future[DeliveryReport]]] = {}
    with SyncReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, **{**TOGETHER, "linger_ms": 2}
    ) as producer:

        def send(key: str, topic: str) -> None:
            for each in range(count):
                large = topic == small and each in guilty
                value = padded(each, 5_000 if large else 50)
                reports.setdefault(key, []).append(producer.send_soon(topic, key=key.encode(), value=value))
                metrics = producer.metrics
                assert metrics.events == metrics.confirmed + metrics.unconfirmed + metrics.failed

        threads = [
            threading.Thread(target=send, args=each)
            for each in (("a", small), ("b", small), ("c", small), ("d", wide))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed(reports["d"]) == []
        for key in "abc":
            assert failed(reports[key]) == sorted(guilty)
    assert numbers(topics.values(wide)) == list(range(count))
    rows = [row for partition in topics.read(small).values() for row in partition]
    for key in (b"a", b"b", b"c"):
        found = numbers([value for name, value in rows if name == key])
        assert found == [each for each in range(count) if each not in guilty], key


def test_a_stop_in_the_middle_leaves_no_record_without_an_answer(topics: Topics) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    producer: SyncReliableProducer[bytes, bytes] = SyncReliableProducer(
        "orders", bootstrap_servers=topics.bootstrap, close_timeout_ms=0, **{**TOGETHER, "linger_ms": 0}
    )
    with suppress(UnsentRecords), producer:
        reports = [producer.send_soon(topic, key=b"k", value=padded(each)) for each in range(5_000)]
        until(lambda: producer.metrics.retries > 0, 60)
    arrived = set(numbers(topics.values(topic)))
    for each, report in enumerate(reports):
        error = report.exception(0)
        if error is None:
            assert each in arrived
        else:
            assert isinstance(error, DeliveryError)
            assert error.written is None or each not in arrived
    metrics = producer.metrics
    assert (metrics.events, metrics.unconfirmed, metrics.buffered_records) == (5_000, 0, 0)
