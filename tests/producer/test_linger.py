"""Records wait for company at most ``linger_ms``, and go to brokers in batches. The broker's own log shows the batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from streamapp.broker import LocalKafka
from streamapp.producer import SyncReliableProducer

from .topics import Topics

WAYS = pytest.mark.parametrize("way", [{}, {"transactions": True}], ids=["idempotent", "transactions"])
COUNT = 100
LONG = 100_000
_CONTROL = 0x20


def batches(kafka: LocalKafka, topic: str) -> list[int]:
    """The number of records of each batch in the log of partition 0, without the markers of transactions."""
    (log,) = kafka.data_dir.rglob(f"{topic}-0/00000000000000000000.log")
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        (attributes,) = struct.unpack_from(">h", data, at + 21)
        (records,) = struct.unpack_from(">i", data, at + 57)
        if not attributes & _CONTROL:
            found.append(records)
        at += 12 + length
    return found


def producer(topics: Topics, **given: Any) -> SyncReliableProducer[bytes, bytes]:
    return SyncReliableProducer("orders", bootstrap_servers=topics.bootstrap, **given)


@WAYS
def test_records_linger_for_company_until_a_flush(
    kafka: LocalKafka, topics: Topics, way: dict[str, Any]
) -> None:
    topic = topics.create(1)
    with producer(topics, linger_ms=LONG, **way) as orders:
        for number in range(COUNT):
            orders.send_soon(topic, value=b"%d" % number)
        assert orders.flush(60_000)
    assert sum(batches(kafka, topic)) == COUNT
    assert len(batches(kafka, topic)) < COUNT / 10


@WAYS
def test_a_record_waits_no_longer_than_linger_ms(
    kafka: LocalKafka, topics: Topics, way: dict[str, Any]
) -> None:
    topic = topics.create(1)
    with producer(topics, linger_ms=500, **way) as orders:
        reports = [orders.send_soon(topic, value=b"%d" % number) for number in range(2)]
        seconds = [report.result(60).seconds for report in reports]
    assert batches(kafka, topic) == [2]
    assert seconds[0] >= 0.5


@WAYS
def test_without_linger_each_record_goes_at_once(
    kafka: LocalKafka, topics: Topics, way: dict[str, Any]
) -> None:
    topic = topics.create(1)
    with producer(topics, linger_ms=0, **way) as orders:
        for number in range(5):
            orders.send(topic, value=b"%d" % number)
    assert batches(kafka, topic) == [1] * 5
