"""What a local Kafka refuses before it starts anything, and how it says so."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamapp.broker import LocalKafka, cli
from streamapp.broker.broker_process import BrokerProcess
from streamapp.broker.local import ClusterStatus
from streamapp.cli import main
from streamapp.errors import BrokerError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these tests may get as far as running Java."""
    monkeypatch.setattr(LocalKafka, "_java", lambda self: ["false"])


def test_a_busy_port_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"Port {port} is in use.*--port.*STREAMAPP_BOOTSTRAP_SERVERS"):
            LocalKafka(tmp_path, port=port).start()
    assert not (tmp_path / "streamapp-kafka.json").exists()


def test_a_busy_port_is_named_before_kafka_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(kafka: LocalKafka) -> list[str]:
        raise AssertionError("Kafka is fetched although its port is in use")

    monkeypatch.setattr(LocalKafka, "_java", download)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BrokerError, match=r"is in use"):
            LocalKafka(tmp_path, port=other.getsockname()[1]).start()


@pytest.mark.parametrize("kind", ["broker", "registry"])
def test_the_command_says_of_a_busy_port_nothing_but_the_error(tmp_path: Path, kind: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        found = CliRunner().invoke(main, [kind, "start", "--port", port, "--data-dir", str(tmp_path)])
    assert found.exit_code == 1
    assert found.output.startswith(f"Error: Port {port} is in use")


class _Started:
    """A local Kafka that seems to run."""

    secure = False

    def __init__(self, servers: str) -> None:
        self.bootstrap_servers = servers

    def status(self) -> ClusterStatus:
        return ClusterStatus(Path("data/kafka"), ())

    def check(self) -> None:
        pass

    def start(self, *, detached: bool) -> None:
        pass


@pytest.mark.parametrize(
    ("servers", "variable", "told"),
    [
        ("127.0.0.1:9092", None, False),
        ("127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094", None, False),
        ("127.0.0.1:9192", "127.0.0.1:9192", False),
        ("127.0.0.1:9192", None, True),
        ("127.0.0.1:9192", "", True),
        ("127.0.0.1:9092", "kafka:9092", True),
    ],
)
def test_a_start_names_the_variable_if_commands_would_go_to_another_kafka(
    servers: str, variable: str | None, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "LocalKafka", lambda *_, **__: _Started(servers))
    environ = {"STREAMAPP_BOOTSTRAP_SERVERS": variable}
    said = CliRunner().invoke(cli.broker_group, ["start"], env=environ)
    assert said.exit_code == 0
    assert (f"  export STREAMAPP_BOOTSTRAP_SERVERS={servers}\n" in said.stdout) == told
    assert (f"go to {variable or '127.0.0.1:9092'}," in said.stdout) == told


def test_a_folder_of_something_else_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    for action in (LocalKafka(tmp_path, port=0).start, LocalKafka(tmp_path).reset):
        with pytest.raises(BrokerError, match=r"thesis\.tex.*another data folder"):
            action()
    assert thesis.read_text() == "years of work"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"cluster_id": "x"}'])
def test_a_damaged_data_folder_says_how_to_go_on(tmp_path: Path, damage: str) -> None:
    (tmp_path / "streamapp-kafka.json").write_text(damage)
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    kafka = LocalKafka(tmp_path, port=0)
    with pytest.raises(BrokerError, match="streamapp broker reset"):
        kafka.start()
    kafka.stop()
    kafka.reset()
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "notes.txt"}


def test_another_number_of_brokers_than_the_data_has_is_refused(tmp_path: Path) -> None:
    cluster = {"cluster_id": "x", "ports": [1, 2, 3], "controller_ports": [4, 5, 6]}
    (tmp_path / "streamapp-kafka.json").write_text(json.dumps(cluster))
    with pytest.raises(BrokerError, match=r"has 3 brokers, not 1"):
        LocalKafka(tmp_path, brokers=1, port=0).start()


def test_a_full_disk_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 2**20, 2**20))
    with pytest.raises(BrokerError, match=r"Only 1 MB are free.*Delete files"):
        LocalKafka(tmp_path, port=0).start()
    assert not (tmp_path / "streamapp-kafka.json").exists()


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kafka"
    file.write_text("")
    with pytest.raises(BrokerError, match="cannot be used as a data folder"):
        LocalKafka(file, port=0).start()


def test_two_starts_of_one_folder_do_not_mix(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BrokerError, match="Another process"):
            LocalKafka(tmp_path, port=0, start_timeout=0.2).start()


@pytest.mark.parametrize(("brokers", "port"), [(2, 9092), (0, 9092), (1, -1), (1, 65_536)])
def test_impossible_arguments_are_refused_at_once(tmp_path: Path, brokers: int, port: int) -> None:
    with pytest.raises(BrokerError):
        LocalKafka(tmp_path, brokers=brokers, port=port)


def test_nothing_is_known_before_the_first_start(tmp_path: Path) -> None:
    kafka = LocalKafka(tmp_path / "new")
    assert not kafka.status().running
    with pytest.raises(BrokerError, match="streamapp broker start"):
        _ = kafka.bootstrap_servers
    kafka.stop()
    kafka.reset()
    assert not (tmp_path / "new").exists()


def test_a_pid_that_belongs_to_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "broker.pid").write_text(json.dumps({"pid": os.getpid(), "started": "long ago"}))
    process = BrokerProcess(tmp_path)
    assert process.pid is None
    process.signal(9)  # type: ignore[arg-type]
    assert process.wait(0)


@pytest.mark.parametrize("text", ["", "12", "{}", '{"pid": null, "started": null}'])
def test_a_damaged_pid_file_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.pid").write_text(text)
    assert BrokerProcess(tmp_path).pid is None


def test_a_broker_that_cannot_even_format_its_folder_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_java: Callable[[str], Path]
) -> None:
    java = fake_java("echo the disk is on fire; exit 3")
    monkeypatch.setattr(LocalKafka, "_java", lambda self: [str(java)])
    with pytest.raises(BrokerError, match=r"(?s)could not format.*the disk is on fire"):
        LocalKafka(tmp_path, port=0).start()
