"""SA7xx: transactions that are left open, and one that no coordinator knows."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest, TxnOffsetCommitRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from ..processes import until
from .patient import Patient, provokes


@provokes("SA701")
def test_a_transaction_that_stays_open(patient: Patient) -> None:
    patient.configure(transaction_timeout_ms=1_000)
    settings = {"bootstrap.servers": patient.bootstrap, "transactional.id": f"{patient.id}-tx"}
    producer = Producer({**settings, "transaction.timeout.ms": 60_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(patient.source, b"v", b"k")
    producer.flush(30)
    until(lambda: patient.findings() == {("SA701", f"{patient.id}-tx")}, 30, patient.report)
    producer.commit_transaction(30)
    until(lambda: patient.findings() == set(), 30, patient.report)


@provokes("SA702")
def test_a_transaction_that_hangs(sick_patient: Patient) -> None:
    """As a late request of a producer makes it: records of a transaction, in a partition that was never added to it."""
    patient = sick_patient
    assert "SA702" not in {code for code, _ in patient.findings()}
    asyncio.run(_write_without_adding(patient.bootstrap, patient.source))
    assert ("SA702", f"{patient.source}-1") in patient.findings()
    (seen,) = (each["seen"] for each in patient.report()["findings"] if each["code"] == "SA702")
    assert seen == f"abort --topic {patient.source} --partition 1 --start-offset 0"


@provokes("SA702")
def test_offsets_that_hang(sick_patient: Patient) -> None:
    """A worker of the group waits for them for ever."""
    patient = sick_patient
    patient.commit(0, 0)
    assert "SA702" not in {code for code, _ in patient.findings()}
    asyncio.run(_commit_without_adding(patient.bootstrap, patient.source, patient.id))
    (seen,) = (each for each in patient.report()["findings"] if each["code"] == "SA702")
    assert seen["subject"].startswith("__consumer_offsets-")
    consumer = Consumer({"bootstrap.servers": patient.bootstrap, "group.id": patient.id})
    with pytest.raises(KafkaException, match="Timed out"):
        consumer.committed([KafkaPartition(patient.source, 1)], timeout=3)
    consumer.close()


async def _begin(client: AIOKafkaClient, name: str) -> tuple[int, int]:
    """The id and the epoch of a new producer with this transactional id."""
    node = client.get_random_node()
    for _ in range(100):
        await client.send(node, FindCoordinatorRequest(name, 1))  # which makes Kafka's topic of transactions
        started = await client.send(node, InitProducerIdRequest(name, 5_000))
        if started.error_code == 0:
            return started.producer_id, started.producer_epoch
        await asyncio.sleep(0.1)
    raise AssertionError(started.error_code)


async def _commit_without_adding(bootstrap: str, topic: str, group: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        name = f"{group}-hanging"
        request = TxnOffsetCommitRequest(name, group, *await _begin(client, name), [(topic, [(1, 5, "")])])
        answer = await client.send(client.get_random_node(), request)
        assert answer.errors == [(topic, [(1, 0)])]
    finally:
        await client.close()


async def _write_without_adding(bootstrap: str, topic: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        node = client.get_random_node()
        name = f"{topic}-hanging"
        id, epoch = await _begin(client, name)
        batch = DefaultRecordBatchBuilder(2, 0, 1, id, epoch, 0, 16_384)
        batch.append(0, 1_700_000_000_000, b"k", b"v", [])
        written = await client.send(
            node, ProduceRequest(name, -1, 10_000, [(topic, [(1, bytes(batch.build()))])])
        )
        ((_, ((_, error, *_),)),) = written.topics
        assert error == 0
    finally:
        await client.close()
