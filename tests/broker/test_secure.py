"""``streamapp broker start --secure``: what it prints lets every client in, and nobody gets in without."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.consumer import SyncReliableConsumer
from streamapp.producer import SyncReliableProducer
from tests.brokers import LightKafka
from tests.processes import run_streamapp, until

pytestmark = pytest.mark.broker


def streamapp(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without settings of this one."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMAPP_")}
    return run_streamapp(*arguments, env={**own, **(environment or {})}, timeout=180)


def variables(shell: str) -> dict[str, str]:
    """The variables that lines of a shell export."""
    words = [shlex.split(line) for line in shell.splitlines()]
    assert all(word[0] == "export" for word in words)
    return dict(word[1].split("=", 1) for word in words)


class Secure:
    """A cluster as a user starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arguments = ("--data-dir", str(folder))
        self.environment = self.start("--secure")

    def start(self, *more: str) -> dict[str, str]:
        done = streamapp("broker", "start", *self.arguments, "--port", "0", *more)
        assert done.returncode == 0, done.stderr
        return variables(done.stdout)

    def stop(self) -> None:
        done = streamapp("broker", "stop", *self.arguments)
        assert done.returncode == 0, done.stderr

    def file(self, name: str) -> str:
        return (self.folder / "security" / name).read_text()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    secure = Secure(tmp_path_factory.mktemp("secure") / "kafka")
    yield secure
    secure.stop()


def use(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_all_clients_work_with_what_the_command_prints(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = streamapp("topic", "create", "orders", "--partitions", "1", environment=secure.environment)
    assert created.returncode == 0, created.stderr
    use(monkeypatch, secure.environment)
    with SyncReliableProducer("shop") as producer:
        assert producer.send("orders", key=b"k", value=b"1").offset == 0
    values = []
    with SyncReliableConsumer("reader", "orders", lambda record: values.append(record.value)) as consumer:
        until(lambda: values == [b"1"], 60, lambda: consumer.status)

    async def faust() -> bytes | None:
        """The client of Faust."""
        reader = AIOKafkaConsumer(
            "orders", **KafkaSettings.from_env().aiokafka(), auto_offset_reset="earliest"
        )
        await reader.start()
        try:
            return (await reader.getone()).value
        finally:
            await reader.stop()

    assert asyncio.run(asyncio.wait_for(faust(), 60)) == b"1"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "certificate"])
def test_each_login_lets_in_and_a_wrong_one_does_not(secure: Secure, mechanism: str) -> None:
    if mechanism == "certificate":
        good = variables(secure.file("certificate.env"))
        wrong = {
            name: value
            for name, value in good.items()
            if not name.endswith(("CERTIFICATE_LOCATION", "KEY_LOCATION"))
        }
    else:
        good = {**secure.environment, "STREAMAPP_SASL_MECHANISM": mechanism}
        wrong = {**good, "STREAMAPP_SASL_PASSWORD": "a guess"}
        del wrong["STREAMAPP_SASL_PASSWORD_FILE"]
    assert topics_of(good) is not None
    with pytest.raises(KafkaException):
        topics_of(wrong)


def topics_of(environment: dict[str, str]) -> set[str]:
    settings = KafkaSettings.from_env(environment).librdkafka()
    return set(AdminClient({**settings, "log_level": 0}).list_topics(timeout=5).topics)


def test_no_port_takes_a_client_without_a_login(secure: Secure) -> None:
    properties = (secure.folder / "broker-1" / "server.properties").read_text()
    (listeners,) = re.findall(r"^listeners=(.*)$", properties, re.MULTILINE)
    ports = re.findall(r":(\d+)", listeners)
    assert len(ports) == 3
    for port in ports:
        for protocol in ("PLAINTEXT", "SSL"):
            settings = {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": protocol,
                "log_level": 0,
            }
            settings["ssl.ca.location"] = str(secure.folder / "security" / "ca.pem")
            with pytest.raises(KafkaException):
                AdminClient(settings).list_topics(timeout=3)


def test_a_restart_keeps_password_and_data_and_stays_secure(secure: Secure) -> None:
    password = secure.file("password").strip()
    secure.stop()
    secure.environment = secure.start()  # without --secure
    assert secure.file("password").strip() == password
    assert secure.environment["STREAMAPP_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert topics_of(secure.environment) is not None


def test_only_the_owner_reads_the_secrets_and_the_process_list_has_none(secure: Secure) -> None:
    password = secure.file("password").strip()
    assert len(password) >= 32
    for path in (secure.folder / "security", secure.folder / "broker-1"):
        assert path.stat().st_mode & 0o077 == 0
    (pid,) = re.findall(r'"pid": (\d+)', (secure.folder / "broker-1" / "broker.pid").read_text())
    assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert password not in " ".join(secure.environment.values())
    assert password not in (secure.folder / "broker-1" / "broker.log").read_text()


def test_three_brokers_know_each_other_by_certificates(tmp_path: Path) -> None:
    with LightKafka(tmp_path / "kafka", brokers=3, port=0, secure=True, heap_mb=256) as kafka:
        settings = KafkaSettings.from_env(kafka.environment)
        KafkaAdmin(settings).ensure_topics([TopicSpec("orders", 3, {})])
        with SyncReliableProducer("shop", client_properties=settings.librdkafka()) as producer:
            for number in range(30):  # each confirmed by two brokers at least
                producer.send("orders", key=b"k%d" % number, value=b"v")
        described = AdminClient(settings.librdkafka()).list_topics("orders", timeout=30).topics["orders"]
        assert all(len(each.isrs) == 3 for each in described.partitions.values())
