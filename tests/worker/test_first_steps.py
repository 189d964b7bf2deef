"""What someone meets who tries the README's first lines: topics from the command line, and refusals in one line."""

from __future__ import annotations

import socket
import uuid

import pytest
from click.testing import CliRunner, Result

from streamapp.broker import LocalKafka
from streamapp.cli import main

from .conftest import Cluster


@pytest.fixture
def run(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)

    def run(*arguments: str, lines: str = "") -> Result:
        return CliRunner().invoke(main, ["topic", *arguments], input=lines)

    return run


def test_a_topic_is_created_written_and_read(run) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    assert run("create", name, "--partitions", "2").exit_code == 0
    assert "has 2, not 3" in run("create", name, "--partitions", "3").output

    assert run("write", name, lines='a\t{"n": 1}\nb\té\na\t\nno key\n').exit_code == 0

    assert sorted(run("read", name).stdout.splitlines()) == ["a\tnull", 'a\t{"n": 1}', "b\té", "null\tno key"]


def test_a_topic_is_created_with_settings(run) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    settings = ["--config", "cleanup.policy=compact", "--config", "retention.ms=-1"]
    assert run("create", name, *settings).exit_code == 0
    assert run("create", name, *settings).exit_code == 0
    other = run("create", name, "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
    assert other.exit_code == 1
    assert f"{name} exists already and has retention.ms=-1. This command changes no settings" in other.output
    assert "cleanup.policy" in run("create", f"{name}-2", "--config", "cleanup.policy=sometimes").output
    assert "is not NAME=VALUE" in run("create", name, "--config", "compact").output


def test_keys_and_values_need_something_between_them(run) -> None:  # type: ignore[no-untyped-def]
    assert "--separator cannot be empty" in run("write", "any", "--separator", "", lines="k\tv\n").output


def test_a_topic_that_is_missing_is_named_with_the_command_that_makes_it(run) -> None:  # type: ignore[no-untyped-def]
    for command in ("write", "read"):
        result = run(command, "nowhere")
        assert result.exit_code == 1
        assert "streamapp topic create nowhere" in result.output


def test_a_refused_start_ends_with_the_message_alone(cluster: Cluster) -> None:
    cluster.source = "nowhere"
    worker = cluster.start()
    assert worker.wait() == 1
    assert "Traceback" not in worker.text()
    last = worker.text().splitlines()[-1]
    assert last.startswith("Error: the source topic nowhere does not exist")
    assert last.endswith("streamapp topic create nowhere --partitions 4")


def test_a_port_that_is_taken_is_named_with_the_option(cluster: Cluster) -> None:
    before = set(cluster.admin.list_topics().topics)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        worker = cluster.start(WEB_PORT=str(taken.getsockname()[1]))
        assert worker.wait() == 1
    last = worker.text().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "is in use, for example by another worker. Choose another port with --web-port" in last
    assert set(cluster.admin.list_topics().topics) - before <= {"__consumer_offsets", "__transaction_state"}


def test_a_poison_record_ends_the_worker_with_where_it_lies(cluster: Cluster) -> None:
    cluster.producer.produce(cluster.source, b"poison", b"k", partition=2)
    cluster.producer.flush()
    worker = cluster.start()
    assert worker.wait() == 1
    last = worker.text().splitlines()[-1]
    assert last.startswith("Error: ")
    assert f"record of {cluster.source}-2 at offset 0" in last
    assert "cannot be counted" in last
    assert cluster.committed() == 0
