"""A local Kafka's life: started, found again, stopped, killed, reset."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, Timer

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka
from streamapp.broker.broker_process import BrokerProcess
from streamapp.broker.cli import broker_group
from streamapp.errors import BrokerError
from tests.brokers import LightKafka

pytestmark = pytest.mark.broker


def admin_of(kafka: LocalKafka) -> KafkaAdmin:
    return KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))


def produce(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not errors


def consume(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    consumer.assign([ClientPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            message = consumer.poll(60)
            assert message is not None, f"only {values} came"
            assert message.error() is None, message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return values


def ends(kafka: LocalKafka, topic: str, partitions: int, isolation: str) -> list[int]:
    """The end of each partition for a reader with this isolation level."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": isolation,
    }
    consumer = Consumer(settings)
    try:
        return [consumer.get_watermark_offsets(ClientPartition(topic, n), 60)[1] for n in range(partitions)]
    finally:
        consumer.close()


def gone(process: BrokerProcess) -> bool:
    """Wait until nothing runs under the pid that the broker's folder names."""
    return process.wait(60)


@pytest.fixture
def invoke(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run ``streamapp broker ...`` on a data folder with a blank, a comma and an umlaut in its path."""
    data_dir = tmp_path / "my data, für Kafka"

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(broker_group, [*arguments, "--data-dir", str(data_dir)])
        return result.exit_code, result.output

    yield run
    LocalKafka(data_dir).stop()


def test_the_commands_start_find_stop_and_reset_a_cluster(invoke: Callable[..., tuple[int, str]]) -> None:
    assert invoke("status")[0] == 1

    code, said = invoke("start", "--port", "0")
    assert code == 0, said
    address = said.split("Kafka listens at ")[1].split()[0]
    assert f"export STREAMAPP_BOOTSTRAP_SERVERS={address}\n" in said
    code, said = invoke("status")
    assert code == 0
    assert address in said

    code, said = invoke("start", "--port", "0")
    assert code == 1
    assert f"runs already at {address}" in said

    assert invoke("stop")[0] == 0
    code, said = invoke("status")
    assert code == 1
    assert "stopped" in said

    assert invoke("reset", "--yes")[0] == 0
    assert "No Kafka was started" in invoke("status")[1]
    assert "No Kafka runs" in invoke("stop")[1]


def test_records_survive_stop_and_start_on_the_same_address(tmp_path: Path) -> None:
    kafka = LightKafka(tmp_path, port=0)
    with kafka:
        address = kafka.bootstrap_servers
        admin_of(kafka).ensure_topics([("kept", 1, {})])
        produce(kafka, "kept", [b"one", b"two"])
    assert not kafka.status().running
    with kafka:
        assert kafka.bootstrap_servers == address
        assert consume(kafka, "kept", 2) == [b"one", b"two"]
        with pytest.raises(BrokerError, match=r"broker 7.*brokers 1 to 1"):
            kafka.kill_broker(7)
        with pytest.raises(BrokerError, match="port"):
            LocalKafka(tmp_path / "other", port=int(address.rpartition(":")[2])).start()


def test_a_killed_parent_leaves_no_broker_behind(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from streamapp.broker import LocalKafka\n"
        "kafka = LocalKafka(sys.argv[1], port=0)\n"
        "kafka.start()\n"
        "print(kafka.status().brokers[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    assert gone(BrokerProcess(tmp_path / "broker-1"))


def test_a_transaction_that_ran_out_while_its_broker_was_dead_is_not_revealed_by_the_next(
    tmp_path: Path,
) -> None:
    with LightKafka(tmp_path, port=0) as kafka:
        admin_of(kafka).ensure_topics([("out", 1, {})])
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "worker"}
        killed = Producer({**settings, "transaction.timeout.ms": 1_000})
        killed.init_transactions(60)
        killed.begin_transaction()
        killed.produce("out", b"never committed", partition=0)
        assert killed.flush(60) == 0
        kafka.kill_broker(1)
        kafka.start_broker(1)  # which takes longer than the time-out
        successor = Producer(settings)
        successor.init_transactions(60)
        successor.begin_transaction()
        successor.produce("out", b"committed", partition=0)
        successor.commit_transaction(60)
        assert consume(kafka, "out", 1) == [b"committed"]


def test_no_transaction_hangs_after_a_kill_while_many_end(tmp_path: Path) -> None:
    with LightKafka(tmp_path, port=0) as kafka:
        admin_of(kafka).ensure_topics([("out", 8, {})])
        over = Event()

        def write(partition: int) -> None:
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
            producer = Producer({**settings, "transactional.id": f"writer-{partition}"})
            producer.init_transactions(60)
            while not over.is_set():
                producer.begin_transaction()
                producer.produce("out", b"v", partition=partition)
                while not commit(producer):
                    if over.is_set():
                        return
                committed[partition] += 1

        def commit(producer: Producer) -> bool:
            try:
                producer.commit_transaction(2)
            except KafkaException as exc:
                if not exc.args[0].retriable() and not over.is_set():
                    raise
                return False
            return True

        committed = [0] * 8
        writers = [Thread(target=write, args=(partition,)) for partition in range(8)]
        for writer in writers:
            writer.start()
        while min(committed) < 20:
            assert all(writer.is_alive() for writer in writers)
            time.sleep(0.01)
        kafka.kill_broker(1)
        over.set()
        for writer in writers:
            writer.join()
        kafka.start_broker(1)
        for partition in range(8):
            settings = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": f"writer-{partition}",
            }
            Producer(settings).init_transactions(60)  # ends the transaction that the kill has interrupted
        log = (tmp_path / "broker-1" / "broker.log").read_text()
        assert "these partitions are likely deleted already" not in log
        readable, written = (ends(kafka, "out", 8, level) for level in ("read_committed", "read_uncommitted"))
        assert readable == written


def test_a_start_that_was_killed_halfway_is_continued_by_the_next(tmp_path: Path) -> None:
    script = "import sys\nfrom streamapp.broker import LocalKafka\nLocalKafka(sys.argv[1], port=0).start()\n"
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path])
    marker = tmp_path / "streamapp-kafka.json"
    while not marker.exists():
        assert parent.poll() is None
        time.sleep(0.001)
    parent.kill()
    parent.wait()
    with LocalKafka(tmp_path, port=0) as kafka:
        assert kafka.status().running


def test_a_start_waits_for_one_that_is_under_way(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(
            BrokerError, match=r"has been starting or resetting .* for 0.2 s: end that process"
        ):
            LocalKafka(tmp_path, port=0, start_timeout=0.2).start()
        ended = []

        def end() -> None:
            ended.append(True)
            fcntl.flock(lock, fcntl.LOCK_UN)

        Timer(0.1, end).start()
        LocalKafka(tmp_path, port=0).reset()
        assert ended


def test_a_broker_that_dies_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    cluster = {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA", "ports": [1], "controller_ports": [2]}
    (tmp_path / "streamapp-kafka.json").write_text(json.dumps(cluster))
    logs = tmp_path / "broker-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "meta.properties").write_text("version=1\ncluster.id=BBBBBBBBBBBBBBBBBBBBBB\nnode.id=7\n")
    kafka = LocalKafka(tmp_path, port=0)
    with pytest.raises(BrokerError, match=r"(?s)Broker 1 at .* ended while it started.*node id 7"):
        kafka.start()
    assert not kafka.status().running


def test_three_brokers_go_on_without_one_of_them(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(20)]
    with LightKafka(tmp_path, brokers=3, port=0, heap_mb=256) as kafka:
        assert len({broker.pid for broker in kafka.status().brokers}) == 3
        admin = admin_of(kafka)
        admin.ensure_topics([("replicated", 1, {})])
        produce(kafka, "replicated", values[:10])

        kafka.kill_broker(1)
        assert [broker.pid is None for broker in kafka.status().brokers] == [True, False, False]
        produce(kafka, "replicated", values[10:])
        assert consume(kafka, "replicated", 20) == values

        kafka.start_broker(1)
        assert all(broker.pid for broker in kafka.status().brokers)
        with pytest.raises(BrokerError, match="runs already"):
            kafka.start_broker(1)
