"""The registry's client over TLS, with certificates of both sides."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamapp import AvroSerde, StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.errors import ConfigError, SchemaRegistryError
from streamapp.registry import ConfluentSchemaRegistry
from tests.secured import KEY_PASSWORD, make_certificates

from .scripted import ScriptedRegistry


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tls") / "pem"
    make_certificates(folder)
    return folder


@pytest.fixture
def secured(pem: Path) -> Iterator[ScriptedRegistry]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pem / "ca.pem"))
    context.load_cert_chain(pem / "broker.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = ScriptedRegistry(context)
    yield server
    server.stop()


def test_both_sides_show_a_certificate(secured: ScriptedRegistry, pem: Path) -> None:
    registry = ConfluentSchemaRegistry(
        secured.url,
        ssl_ca_location=str(pem / "ca.pem"),
        ssl_certificate_location=str(pem / "client.crt"),
        ssl_key_location=str(pem / "client.key"),
        ssl_key_password=KEY_PASSWORD,
    )
    assert registry.id_of("s", "string") == 1


def test_an_unknown_authority_is_said_at_once(secured: ScriptedRegistry) -> None:
    with pytest.raises(ConfigError, match="is not trusted .*: set ssl.ca.location"):
        ConfluentSchemaRegistry(secured.url, patience_ms=100_000).schema_of(1)


def test_a_certificate_that_expires_while_a_worker_runs_drops_no_record(secured: ScriptedRegistry) -> None:
    serde = AvroSerde[Any]("string", registry=ConfluentSchemaRegistry(secured.url))
    builder = StreamsBuilder(StreamsConfig("app", deserialization_exception_handler="continue"))
    builder.stream("in", key_serde=StringSerde(), value_serde=serde).to("out", value_serde=StringSerde())
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(SchemaRegistryError, match="is not trusted .*: set ssl.ca.location"),
    ):
        driver.pipe_raw("in", b"k", b"\0\0\0\0\1\4hi", 0)


def test_a_client_without_certificate_is_not_let_in(secured: ScriptedRegistry, pem: Path) -> None:
    with pytest.raises(SchemaRegistryError):
        ConfluentSchemaRegistry(secured.url, ssl_ca_location=str(pem / "ca.pem"), patience_ms=100).schema_of(
            1
        )


def test_a_key_with_another_password_is_said(secured: ScriptedRegistry, pem: Path) -> None:
    registry = ConfluentSchemaRegistry(
        secured.url,
        ssl_ca_location=str(pem / "ca.pem"),
        ssl_certificate_location=str(pem / "client.crt"),
        ssl_key_location=str(pem / "client.key"),
        ssl_key_password="another",
        patience_ms=100,
    )
    with pytest.raises(ConfigError, match="ssl.key.password") as raised:
        registry.schema_of(1)
    assert "another" not in str(raised.value)
