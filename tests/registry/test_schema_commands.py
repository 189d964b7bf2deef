"""`streamapp schema` beside a real registry and a real Kafka."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.registry.subjects import Subjects
from streamapp.serdes import AvroSerde
from streamapp.testing import WorkerProcess
from tests.processes import free_port, run_streamapp, until

pytestmark = pytest.mark.broker

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(local: LocalRegistry, topic: str, tmp_path: Path) -> Run:
    def schema(*arguments: str, change: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMAPP_")}
        named = {"ORDERS_NAME": topic, "ORDERS_CHANGE": change, "ORDERS_DATADIR": str(tmp_path)}
        url = {"STREAMAPP_SCHEMA_REGISTRY_URL": local.url, "COLUMNS": "200"}
        return run_streamapp("schema", *arguments, env=clean | named | url | environ)

    return schema


APP = "tests.registry.orders_app"


def test_a_change_is_stopped_before_it_is_deployed(run: Run, topic: str) -> None:
    first = run("check", APP)
    assert first.returncode == 0, first.stderr
    assert f"{topic}-out-value: writes, new\n" in first.stdout
    assert f"{topic}-sums-changelog-value" not in run("list").stdout  # a check registers nothing

    registered = run("register", APP)
    assert registered.returncode == 0, registered.stderr
    subjects = [line.partition(":")[0] for line in registered.stdout.splitlines()]
    own = ["out", "sums", "sums-changelog", "latest-changelog"]
    assert sorted(subjects) == sorted(f"{topic}-{name}-value" for name in own)
    assert f"{topic}-out-value: writes, unchanged\n" in run("check", APP).stdout

    fine = run("check", APP, change="compatible")
    assert fine.returncode == 0
    assert f"{topic}-out-value: writes, compatible with version 1 (id " in fine.stdout
    assert "  fields.cents: new" in fine.stdout

    stopped = run("check", APP, change="incompatible")
    assert stopped.returncode == 1
    assert f"{topic}-out-value: writes, incompatible with version 1 (id " in stopped.stdout
    assert "the registry says: " in stopped.stdout

    assert run("register", APP, change="incompatible").returncode == 1
    assert run("register", APP, change="compatible").returncode == 0
    changed = run("diff", f"{topic}-out-value")
    assert "version 1 (id " in changed.stdout
    assert "  fields.cents: new" in changed.stdout
    assert '"name": "cents"' in run("show", f"{topic}-out-value").stdout
    assert '"name": "cents"' not in run("show", f"{topic}-out-value", "1").stdout
    listed = run("list").stdout
    assert f"{topic}-out-value" in listed
    assert "demands BACKWARD of" in listed


def test_what_is_not_there_is_said(run: Run, topic: str) -> None:
    for arguments, why in (
        (["show", f"{topic}-nothing"], "has no such version"),
        (["diff", f"{topic}-nothing"], "has no such version"),
        (["show", "a", "first"], 'a version is a number or "latest"'),
    ):
        failed = run(*arguments)
        assert failed.returncode == 1
        assert why in failed.stderr
    away = run(
        "list",
        STREAMAPP_SCHEMA_REGISTRY_URL="http://127.0.0.1:9",
        STREAMAPP_SCHEMA_REGISTRY_PATIENCE_MS="100",
    )
    assert "does not answer" in away.stderr
    assert "Traceback" not in away.stderr


def test_records_in_the_topic_are_read_by_the_new_schema(
    run: Run, topic: str, registry: ConfluentSchemaRegistry, kafka: LocalKafka
) -> None:
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics(
        [TopicSpec(f"{topic}-in", 2)]
    )
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    serde: AvroSerde[dict[str, str]] = AvroSerde(old, registry=registry).bind(f"{topic}-in", False)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for number in range(10):
        producer.produce(f"{topic}-in", serde.serialize({"id": str(number)}), partition=number % 2)
    assert producer.flush(60) == 0

    servers = {"STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    fine = run("check", APP, "--records", "3", change="compatible", **servers)
    assert fine.returncode == 0, fine.stdout + fine.stderr
    assert "  6 of the last 6 records can be read" in fine.stdout
    broken = run("check", APP, "--records", "3", change="incompatible", **servers)
    assert broken.returncode == 1
    assert "  0 of the last 6 records can be read" in broken.stdout
    assert f"  {topic}-in-0 at offset 2: cannot read Order" in broken.stdout


def test_the_commands_have_the_subjects_that_a_worker_registers(
    local: LocalRegistry, topic: str, registry: ConfluentSchemaRegistry, kafka: LocalKafka, tmp_path: Path
) -> None:
    inputs = ("left", "right", "stream", "global")
    names = [f"{topic}-{each}" for each in (*inputs, "out", "joined")]
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics(
        [TopicSpec(name, 1) for name in names]
    )
    port = free_port()
    environ = {
        "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAMAPP_SCHEMA_REGISTRY_URL": local.url,
        "SUBJECTS_NAME": topic,
        "SUBJECTS_DATADIR": str(tmp_path / "worker"),
        "SUBJECTS_WEB_PORT": str(port),
        "PYTHONPATH": os.getcwd(),
    }
    serde = AvroSerde[str]("string", registry=registry).bind("the-producer", False)

    def subjects() -> set[str]:
        return {name for name in Subjects(registry).names() if name.startswith(topic)}

    def commanded(*arguments: str) -> list[str]:
        ran = run_streamapp("schema", *arguments, env=os.environ | environ)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.splitlines()

    app = "tests.registry.every_subject_app"
    planned = {line.partition(":")[0] for line in commanded("check", app) if ": writes, " in line}
    assert subjects() == set()  # a check registers nothing
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})

    def feed(name: str, key: str, value: str) -> None:
        producer.produce(f"{topic}-{name}", serde.serialize(value), serde.serialize(key))
        assert producer.flush(60) == 0

    feed("right", "r", "right")
    feed("global", "k", "global")
    log = tmp_path / "worker.log"
    with WorkerProcess(app, web_port=port, log=log, environ=environ) as worker:
        worker.wait_until_ready()
        feed("stream", "k", "v")
        foreign_keys = cycle("rs")

        def complete() -> bool:
            worker.check()
            feed("left", "k", next(foreign_keys))  # the record cache may join two changes of the foreign key
            return subjects() >= planned

        until(complete, 120.0, lambda: f"without {planned - subjects()}: {log.read_text()}")
    assert subjects() == planned
    assert {line.partition(":")[0] for line in commanded("register", app)} == planned
    # Records with composed values, in the topics of the grouping and of the foreign-key join, are read as a whole.
    read = commanded("check", app, "--records", "5")
    assert f"{topic}-again-repartition-value: writes, unchanged" in read
