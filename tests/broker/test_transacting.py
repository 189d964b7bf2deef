"""Calls into a transactional producer while its broker stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamapp.broker import KafkaAdmin, KafkaSettings
from tests.brokers import LightKafka

pytestmark = pytest.mark.broker


SCRIPT = """
import sys
from threading import Thread
from confluent_kafka import KafkaException, Producer
from streamapp.broker.transacting import abandon_transaction, retrying

def begin(number):
    producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": f"worker-{number}", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("out", b"v", partition=0)
    assert producer.flush(60) == 0
    return producer

def commit(producer):
    try:
        # librdkafka waits for a whole number of ms, so a part of a ms is left for another call.
        retrying(producer.commit_transaction, 1.0009)
    except KafkaException:
        abandon_transaction(producer)

producers = [begin(number) for number in range(12)]
print("written", flush=True)
input()
threads = [Thread(target=commit, args=(producer,)) for producer in producers]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("not answered", flush=True)
input()
"""


def committed(kafka: LightKafka, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("out", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 60)]
    finally:
        consumer.close()


def test_commits_that_are_answered_late_do_not_end_the_process(tmp_path: Path) -> None:
    with LightKafka(tmp_path, port=0) as kafka:
        KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics([("out", 1, {})])
        pid = kafka.status().brokers[0].pid
        assert pid is not None
        client = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, kafka.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdin is not None
        try:
            assert client.stdout.readline() == "written\n"
            os.kill(pid, signal.SIGSTOP)
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "not answered\n"
            os.kill(pid, signal.SIGCONT)
            assert committed(kafka, 12) == 12 * [b"v"]
            client.communicate("\n", timeout=60)
            assert client.returncode == 0
        finally:
            os.kill(pid, signal.SIGCONT)
            client.kill()
            client.wait()
