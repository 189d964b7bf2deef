"""TLS and SASL by the environment alone, on a real broker: every client is let in, and no secret is shown."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamapp import StreamsConfig
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec
from streamapp.cli import main
from streamapp.consumer import SyncReliableConsumer
from streamapp.producer import SyncReliableProducer
from streamapp.web.users import password_line, token_line

from ..processes import free_port, until
from ..secured import KEY_PASSWORD, PASSWORD, SecuredKafka, make_certificates, token_endpoint
from .conftest import Cluster

pytestmark = pytest.mark.broker
KINDS = ("SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as broker:
        broker.add_user()
        yield broker


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with token_endpoint() as url:
        yield url


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_is_let_in_by_what_the_environment_says(
    secured: SecuredKafka, endpoint: str, tmp_path: Path, kind: str
) -> None:
    cluster = Cluster(secured.bootstrap_servers, tmp_path)
    port = free_port()
    try:
        worker = cluster.start(
            "a",
            ("worker", "-l", "debug"),
            "unaddressed_app",
            UNADDRESSED="1",
            WEB_PORT=str(port),
            **secured.environment(kind, endpoint),
        )
        cluster.feed(200)
        cluster.counted()
        shown = [Path(f"/proc/{worker.process.pid}/cmdline").read_text(errors="replace")]
        for path in ("/status", "/health/ready", "/topology", "/metrics", "/tables/"):
            with urllib.request.urlopen(f"http://localhost:{port}{path}") as answer:
                shown.append(answer.read().decode())
        assert worker.terminate() == 0, cluster.story()
        shown.append(worker.text())
    finally:
        cluster.close()
    assert "DEBUG" in worker.text()
    for text in shown:
        assert PASSWORD not in text
        assert KEY_PASSWORD not in text


def test_a_wrong_password_is_refused_and_not_shown(secured: SecuredKafka, tmp_path: Path) -> None:
    cluster = Cluster(secured.bootstrap_servers, tmp_path)
    environ = secured.environment("SCRAM-SHA-256") | {"STREAMAPP_SASL_PASSWORD": "planted-wr0ng"}
    try:
        worker = cluster.start("a", ("worker",), "unaddressed_app", UNADDRESSED="1", **environ)
        worker.wait_for("with SASL_SSL (")
        worker.wait_for("SASL authentication error: Authentication failed")
        assert "planted" not in worker.text()
    finally:
        cluster.close()


def test_a_client_without_certificate_is_told_of_tls(secured: SecuredKafka, tmp_path: Path) -> None:
    cluster = Cluster(secured.bootstrap_servers, tmp_path)
    environ = secured.environment("SSL")
    environ = {name: environ[name] for name in environ if "CERT" not in name and "KEY" not in name}
    try:
        worker = cluster.start("a", ("worker",), "unaddressed_app", UNADDRESSED="1", **environ)
        # Brokers close such a connection without a word, so the message has to name the possibility.
        worker.wait_for("with SSL (")
        worker.wait_for("that Kafka accepts the security protocol and the login (docs/connecting.md)")
    finally:
        cluster.close()


@pytest.mark.parametrize("kind", KINDS)
def test_commands_are_let_in_too(
    secured: SecuredKafka, endpoint: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name, value in secured.environment(kind, endpoint).items():
        monkeypatch.setenv(name, value)
    topic = f"by-{kind}"
    for arguments, lines in (
        (["create", topic, "--partitions", "1"], ""),
        (["write", topic], "key\tvalue\n"),
    ):
        result = CliRunner().invoke(main, ["topic", *arguments], input=lines)
        assert result.exit_code == 0, result.output
    assert CliRunner().invoke(main, ["topic", "read", topic]).stdout == "key\tvalue\n"


CANARY = "planted-canary"


def test_no_secret_is_in_anything_that_people_read(secured: SecuredKafka, tmp_path: Path) -> None:
    """Each secret is a canary of its own; errors are provoked, and everything that the worker shows is searched."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    web_password, wrong = f"{CANARY}-web-password", f"{CANARY}-wrong-password"
    user = password_line("ada", "operate", web_password)
    (secrets / "users").write_text(f"{user}\n{token_line('robot', 'read', f'{CANARY}-token')}\n")
    (secrets / "cluster").write_text(f"{CANARY}-cluster-secret-of-32-characters")
    (secrets / "kafka").write_text(f"{PASSWORD}\n")
    (secrets / "registry").write_text(f"ada:{CANARY}-registry")
    environ = secured.environment("SCRAM-SHA-512")
    del environ["STREAMAPP_SASL_PASSWORD"]
    environ |= {
        "STREAMAPP_SASL_PASSWORD_FILE": str(secrets / "kafka"),
        "STREAMAPP_WEB_USERS_FILE": str(secrets / "users"),
        "STREAMAPP_WEB_CLUSTER_SECRET_FILE": str(secrets / "cluster"),
        "STREAMAPP_SCHEMA_REGISTRY_URL": "http://127.0.0.1:9",
        "STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO_FILE": str(secrets / "registry"),
        "UNADDRESSED": "1",
    }
    cluster, port = Cluster(secured.bootstrap_servers, tmp_path), free_port()
    shown: dict[str, str] = {}

    def ask(path: str, login: str | None, method: str = "GET") -> int:
        headers = {} if login is None else {"Authorization": login}
        request = urllib.request.Request(f"http://localhost:{port}{path}", headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, text = answer.status, f"{answer.headers}{answer.read().decode()}"
        except urllib.error.HTTPError as error:
            status, text = error.code, f"{error.headers}{error.read().decode()}"
        shown[f"{method} {path} as {str(login)[:9]} {status}"] = text
        return int(status)

    def command(*arguments: str) -> None:
        told = {
            "APP_ID": cluster.id,
            "SOURCE": cluster.source,
            "SINK": cluster.sink,
            "DATADIR": str(tmp_path / "data-a"),
        }
        told |= {"WEB_PORT": str(port), "STREAMAPP_WEB_TOKEN": f"{CANARY}-token"}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("streamapp")), *arguments],
            env={**os.environ, **environ, **told},
            capture_output=True,
            text=True,
        )
        shown[" ".join(arguments)] = done.stdout + done.stderr
        assert done.stdout, done.stderr

    try:
        worker = cluster.start(
            "a", ("worker", "-l", "debug"), "unaddressed_app", **environ | {"WEB_PORT": str(port)}
        )
        cluster.feed(200)
        cluster.counted()
        right, guess = (base64.b64encode(f"ada:{each}".encode()).decode() for each in (web_password, wrong))
        for path in (
            "/",
            "/static/page.js",
            "/status",
            "/health/ready",
            "/topology",
            "/metrics",
            "/tables/",
            "/tables/counts/k1",
        ):
            assert ask(path, f"Basic {right}") == 200, shown
            assert ask(path, f"Bearer {CANARY}-token") == 200, shown
            ask(path, None)
        assert ask("/status", f"Basic {guess}") == 401
        assert ask("/status", f"Bearer {wrong}") == 401
        assert ask("/pause", f"Basic {right}", "POST") == 200
        assert ask("/pause", f"Bearer {CANARY}-token", "POST") == 403
        for path in (
            "/dlq",
            "/tables/nothing/",
            "/tables/counts/?limit=x",
            "/nowhere",
            "/router/",
            "/table/",
        ):
            ask(path, f"Basic {right}")
        assert ask("/resume", f"Basic {right}", "POST") == 200
        for pid in os.listdir("/proc"):
            if pid.isdecimal():
                with suppress(OSError):
                    shown[f"ps {pid}"] = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        application = "tests.worker.unaddressed_app"
        for arguments in (
            ["describe", application],
            ["acls", application],
            ["doctor", application, "--json", "--worker", f"localhost:{port}"],
        ):
            command(*arguments)
        assert "SA601" not in shown[f"doctor {application} --json --worker localhost:{port}"]
        cluster.producer.produce(cluster.source, "poison", "k1")
        cluster.producer.flush()
        until(lambda: not worker.alive, 60, worker.text)
    finally:
        cluster.close()
    assert "DEBUG" in worker.text()
    assert "this record cannot be counted" in worker.text()
    assert "who=ada role=operate" in worker.text()
    for path in tmp_path.rglob("*"):
        if path.is_file() and secrets not in path.parents:
            shown[str(path)] = path.read_bytes().decode(errors="replace")
    hashes = user.partition("scrypt")[2].split("$")[-2:]
    canaries = [CANARY, PASSWORD, right, guess, *hashes]
    found = [(where, each) for where, text in shown.items() for each in canaries if each in text]
    assert found == []
    assert len(shown) > 50


def put(text: str, path: Path) -> None:
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("member", [None, "reader-1"])
def test_a_consumer_comes_back_with_changed_certificates(
    secured: SecuredKafka,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
    member: str | None,
) -> None:
    """Brokers refuse a static member whose predecessor has not left. A session lasts longer than the test waits."""
    caplog.set_level(logging.INFO)
    mine, topic = tmp_path / "mine", f"orders-{protocol}-{member}"
    shutil.copytree(secured.pem, mine)
    files = {"ca": mine / "ca.pem", "certificate": mine / "client.crt", "key": mine / "client.key"}
    config = StreamsConfig(
        topic,
        bootstrap_servers=secured.environment("SSL")["STREAMAPP_BOOTSTRAP_SERVERS"],
        group_instance_id=member,
        client_properties={
            "security.protocol": "SSL",
            "ssl.key.password": KEY_PASSWORD,
            "group.protocol": protocol,
            **{f"ssl.{name}.location": str(path) for name, path in files.items()},
        },
    )
    KafkaAdmin(KafkaSettings(bootstrap_servers=secured.bootstrap_servers)).ensure_topics(
        [TopicSpec(topic, 1)]
    )
    values: list[bytes | None] = []
    with (
        SyncReliableProducer("shop", bootstrap_servers=secured.bootstrap_servers) as producer,
        SyncReliableConsumer(topic, topic, lambda each: values.append(each.value), config=config) as consumer,
    ):
        producer.send(topic, value=b"1")
        until(lambda: values == [b"1"], 30, lambda: consumer.status)
        for path in files.values():
            put(path.read_text(), path)
        until(lambda: "the certificates have changed" in caplog.text, 30, lambda: caplog.text)
        producer.send(topic, value=b"2")
        until(lambda: len(values) == 2, 30, lambda: consumer.status)
    assert values == [b"1", b"2"]


def test_certificates_are_replaced_while_a_worker_runs(secured: SecuredKafka, tmp_path: Path) -> None:
    """The last test of this module: the broker knows the old authority no more."""
    mine, new = tmp_path / "mine", tmp_path / "new"
    shutil.copytree(secured.pem, mine)
    make_certificates(new)
    environ = secured.environment("SSL")
    environ |= {name: str(mine / Path(value).name) for name, value in environ.items() if "LOCATION" in name}
    cluster = Cluster(secured.bootstrap_servers, tmp_path)
    try:
        worker = cluster.start("a", ("worker",), "unaddressed_app", UNADDRESSED="1", **environ)
        cluster.feed(200)
        cluster.counted()
        secured.trust(new)
        put((new / "client.key").read_text(), mine / "client.key")  # does not fit to the certificate yet
        worker.wait_for("are not PEM files that match")
        put((mine / "ca.pem").read_text() + (new / "ca.pem").read_text(), mine / "ca.pem")
        put((new / "client.crt").read_text(), mine / "client.crt")
        worker.wait_for("the certificates have changed")
        cluster.feed(200)
        cluster.counted()
        secured.replace_authority(new)
        cluster.feed(200)
        cluster.counted(120)
        assert worker.terminate() == 0, cluster.story()
        assert cluster.totals()[1] == cluster.produced
    finally:
        cluster.close()
