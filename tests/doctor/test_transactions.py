"""SA7xx: transactions that are left open, and one that no coordinator knows."""

from __future__ import annotations

import asyncio

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer

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


async def _write_without_adding(bootstrap: str, topic: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        node = client.get_random_node()
        name = f"{topic}-hanging"
        for _ in range(100):
            await client.send(
                node, FindCoordinatorRequest(name, 1)
            )  # which makes Kafka's topic of transactions
            started = await client.send(node, InitProducerIdRequest(name, 5_000))
            if started.error_code == 0:
                break
            await asyncio.sleep(0.1)
        assert started.error_code == 0
        batch = DefaultRecordBatchBuilder(2, 0, 1, started.producer_id, started.producer_epoch, 0, 16_384)
        batch.append(0, 1_700_000_000_000, b"k", b"v", [])
        written = await client.send(
            node, ProduceRequest(name, -1, 10_000, [(topic, [(1, bytes(batch.build()))])])
        )
        ((_, ((_, error, *_),)),) = written.topics
        assert error == 0
    finally:
        await client.close()
