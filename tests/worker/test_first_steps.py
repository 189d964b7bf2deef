"""What someone meets who tries the README's first lines: topics from the command line, and refusals in one line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import uuid

import pytest
from click.testing import CliRunner, Result

from streamapp.broker import LocalKafka
from streamapp.cli import main

from ..processes import until
from .conftest import Cluster

SIGNALLED = """
import io, os, signal, sys
from streamapp.cli import main

class Lines(io.BytesIO):
    def __next__(self):
        line = self.readline()
        if not line:
            os.kill(os.getpid(), number)
        return line

number = int(sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = io.TextIOWrapper(Lines(b"".join(b"%d\\n" % each for each in range(1_000))))
main()
"""
"""Runs a command that gets a signal as soon as it has read a thousand lines."""


@pytest.fixture
def run(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)

    def run(*arguments: str, lines: str | bytes = "") -> Result:
        return CliRunner().invoke(main, ["topic", *arguments], input=lines)

    return run


def test_a_topic_is_created_written_and_read(run) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    assert run("create", name, "--partitions", "2").exit_code == 0
    assert "has 2, not 3" in run("create", name, "--partitions", "3").output

    assert run("write", name, lines='a\t{"n": 1}\nb\té\na\t\nno key\n').exit_code == 0

    assert sorted(run("read", name).stdout.splitlines()) == ["a\tnull", 'a\t{"n": 1}', "b\té", "null\tno key"]


def test_bytes_are_written_as_they_are(run, cluster: Cluster) -> None:  # type: ignore[no-untyped-def]
    """A byte that is not UTF-8 ended the command with a traceback, and some of the earlier lines were lost."""
    assert run("write", cluster.source, lines=b"a\tb\r\n\xff\t\xfe\nlast\t\xc3").exit_code == 0
    assert sorted(cluster.read(cluster.source)) == [(b"a", b"b"), (b"last", b"\xc3"), (b"\xff", b"\xfe")]


def test_a_line_that_is_too_large_for_the_client_is_named(run, cluster: Cluster) -> None:  # type: ignore[no-untyped-def]
    """The client raises at once, and the command ended with a traceback. The first line was lost."""
    result = run("write", cluster.source, lines="first\n" + "x" * 2_000_000 + "\nnever\n")
    assert result.exit_code == 1, result.output
    assert f"line 2 cannot be written to {cluster.source}: " in result.output
    assert "too large. The command has read 2 lines and written 1 line" in result.output
    assert cluster.read(cluster.source) == [(None, b"first")]


def test_a_line_that_is_too_large_for_brokers_is_named(run, cluster: Cluster) -> None:  # type: ignore[no-untyped-def]
    topic = f"{cluster.id}-small"
    assert run("create", topic, "--partitions", "1", "--config", "max.message.bytes=1000").exit_code == 0
    results: list[Result] = []

    def refused() -> bool:
        results.append(run("write", topic, lines="x" * 5_000 + "\n"))
        return f"line 1 cannot be written to {topic}: " in results[-1].output

    until(refused, 30, lambda: results[-1].output)
    assert "too large. The command has read 1 line and written 0 lines" in results[-1].output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_lines_before_a_signal_are_written(cluster: Cluster, number: signal.Signals) -> None:
    """Records that the client still had were lost, and nobody was told."""
    command = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(number)), "topic", "write", cluster.source],
        env={**os.environ, "STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap},
        timeout=120,
    )
    assert command.returncode == -number
    assert sorted(cluster.read(cluster.source)) == sorted((None, b"%d" % each) for each in range(1_000))


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
        assert result.exit_code == 1, result.output
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


def test_topics_are_listed_and_described(run, cluster: Cluster) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    assert run("create", name, "--partitions", "2", "--config", "retention.ms=-1").exit_code == 0
    run("write", name, lines="a\t1\na\t2\n")
    listed = run("list").stdout
    assert [line.split()[1::2] for line in listed.splitlines() if name in line] == [[name, "2", "1"]]
    assert "__consumer_offsets" not in listed
    described = run("describe", name).stdout
    ends = [line.split()[1::2] for line in described.splitlines() if line.startswith("│")]
    assert sorted(each[:3] for each in ends) in (
        [["0", "0", "0"], ["1", "0", "2"]],
        [["0", "0", "2"], ["1", "0", "0"]],
    )
    assert "settings: retention.ms=-1\n" in described
    assert "readers:  no consumer group\n" in described
    missing = run("describe", "nowhere")
    assert (missing.exit_code, "there is no topic nowhere" in missing.output) == (1, True)


def test_a_record_is_printed_with_its_place(run) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    run("create", name, "--partitions", "1")
    run("write", name, lines="a\t1\nb\t\n")
    rows = [line.split("\t") for line in run("read", name, "--long").stdout.splitlines()]
    assert [[*row[:2], *row[3:]] for row in rows] == [["0", "0", "a", "1"], ["0", "1", "b", "null"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", row[2]) for row in rows)


def test_a_topic_is_deleted_after_a_question_that_says_what_is_lost(run) -> None:  # type: ignore[no-untyped-def]
    name = f"steps-{uuid.uuid4().hex[:8]}"
    run("create", name, "--partitions", "2")
    run("write", name, lines="a\t1\nb\t2\nc\t3\n")
    asked = run("delete", name, lines="n\n")
    assert asked.exit_code == 1
    assert f"{name}: 2 partitions, up to 3 records\n" in asked.output
    assert "Delete 1 topic?" in asked.output
    assert name in run("list").stdout
    assert run("delete", name, lines="").exit_code == 1  # a script, which cannot answer
    gone = run("delete", name, "--yes")
    assert (gone.exit_code, f"1 topic deleted: {name}" in gone.output) == (0, True)
    assert name not in run("list").stdout
    assert "there is no topic" in run("delete", name, "--yes").output


def test_internal_topics_of_a_running_application_are_not_deleted(run, cluster: Cluster) -> None:  # type: ignore[no-untyped-def]
    worker = cluster.start()
    cluster.feed(20)
    worker.wait_for("ready:")
    (changelog,) = (
        name for name in cluster.admin.list_topics().topics if name == f"{cluster.id}-counts-changelog"
    )
    refused = run("delete", changelog, "--yes")
    assert refused.exit_code == 1
    assert f"is an internal topic of the application {cluster.id}, which runs now" in refused.output
    assert "streamapp reset" in refused.output
    until(
        lambda: f"Readers: {cluster.id} (1 member)" in run("delete", cluster.source, lines="n\n").output,
        30,
        worker.text,
    )
    assert f"readers:  {cluster.id} (1 member)\n" in run("describe", cluster.source).stdout
    assert "is a topic of Kafka itself" in run("delete", "__consumer_offsets", "--yes").output
    assert worker.terminate() == 0
    assert f"readers:  {cluster.id} (stopped)\n" in run("describe", cluster.source).stdout
    assert run("delete", changelog, "--yes").exit_code == 0
