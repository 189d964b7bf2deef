"""TLS and SASL by the environment alone, on a real broker: every client is let in, and no secret is shown."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamapp.cli import main

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
        worker.wait_for("does it let this client in so (docs/connecting.md)")
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


def put(text: str, path: Path) -> None:
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


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
        put((new / "client.key").read_text(), mine / "client.key")  # does not fit to the certificate yet
        worker.wait_for("are not PEM files that match")
        put((mine / "ca.pem").read_text() + (new / "ca.pem").read_text(), mine / "ca.pem")
        put((new / "client.crt").read_text(), mine / "client.crt")
        until(lambda: worker.text().count("the certificates have changed") >= 3, 60, worker.text)
        cluster.feed(200)
        cluster.counted()
        secured.replace_authority(new)
        cluster.feed(200)
        cluster.counted(120)
        assert worker.terminate() == 0, cluster.story()
        assert cluster.totals()[1] == cluster.produced
    finally:
        cluster.close()
