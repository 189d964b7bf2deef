"""One address and one way in for all clients: argument, configuration, environment, local broker; contradictions are
refused."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import faust
import pytest

from streamapp import App, ConfigError, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.runners import connection
from streamapp.runners.connection import client_of, connected, settings_of, use_registry_of_environment
from streamapp.runners.spark import SparkRunner
from streamapp.runners.worker.clients import client_id, client_settings, consumer_settings, producer_settings
from streamapp.serdes import schema_registry

TEXT = StringSerde()
SECURED = {
    "STREAMAPP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "STREAMAPP_SASL_MECHANISM": "PLAIN",
    "STREAMAPP_SASL_USERNAME": "ada",
    "STREAMAPP_SASL_PASSWORD": "lovelace",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("STREAMAPP_BOOTSTRAP_SERVERS", "BROKER_URL", *SECURED):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def describe(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)


def app(**settings: Any) -> App:
    return App("flights", topology=describe, **settings)


def addresses(app: App) -> set[str]:
    """The addresses that Faust's consumer and producer, librdkafka's clients and Spark use."""
    urls = [*app.conf.broker, *app.conf.broker_consumer, *app.conf.broker_producer]
    return {
        *(f"{url.host}:{url.port}" for url in urls),
        client_settings(app.config, "admin")["bootstrap.servers"],
        consumer_settings(app.config)["bootstrap.servers"],
        producer_settings(app.config)["bootstrap.servers"],
        str(SparkRunner(app.streams.topology, app.config).plan.config.bootstrap_servers),
        str(app.streams.config.bootstrap_servers),
        settings_of(app.config).bootstrap_servers,
    }


@pytest.mark.parametrize(
    ("settings", "environ", "address"),
    [
        ({}, None, "127.0.0.1:9092"),
        ({}, "env:1", "env:1"),
        ({"config": StreamsConfig("flights", bootstrap_servers="config:2")}, "env:1", "config:2"),
        ({"config": StreamsConfig(client_properties={"bootstrap.servers": "config:2"})}, "env:1", "config:2"),
        ({"bootstrap_servers": "argument:3"}, "env:1", "argument:3"),
        (
            {
                "bootstrap_servers": "argument:3",
                "config": StreamsConfig("flights", bootstrap_servers="config:2"),
            },
            "env:1",
            "argument:3",
        ),
        ({"broker": "kafka://faust:4"}, "env:1", "faust:4"),
        ({"broker": "aiokafka://faust"}, None, "faust:9092"),
        ({"broker": ["kafka://faust:4"], "bootstrap_servers": "faust:4"}, None, "faust:4"),
    ],
)
def test_every_client_goes_to_the_same_address(
    environment: pytest.MonkeyPatch, settings: dict[str, Any], environ: str | None, address: str
) -> None:
    if environ is not None:
        environment.setenv("STREAMAPP_BOOTSTRAP_SERVERS", environ)
    assert addresses(app(**settings)) == {address}


@pytest.mark.parametrize(
    ("settings", "environ", "message"),
    [
        (
            {"broker": "kafka://a:1", "config": StreamsConfig("flights", bootstrap_servers="b:2")},
            {},
            "broker names kafka://a:1, but bootstrap_servers is b:2",
        ),
        ({"broker": "kafka://a:1", "bootstrap_servers": "b:2"}, {}, "Say the address once"),
        ({"broker_producer": "kafka://a:1"}, {}, "broker_producer names kafka://a:1"),
        ({}, {"BROKER_URL": "kafka://a:1"}, "BROKER_URL names kafka://a:1"),
        ({"broker": "confluent://a:1"}, {}, "takes kafka://host:port"),
        (
            {"broker_credentials": faust.SASLCredentials(username="a", password="b")},
            {},
            "Give one login for both",
        ),
        ({"ssl_context": ssl.create_default_context()}, {}, "would use SSL"),
        (
            {"config": StreamsConfig(client_properties={"security.protocol": "SASL_SSL"})},
            {},
            "needs sasl_mechanism, sasl_username, sasl_password",
        ),
        ({}, {"STREAMAPP_SASL_PASSWORD": "lovelace"}, "sasl_password would not be used"),
        (
            {
                "config": StreamsConfig(
                    client_properties={"ssl.endpoint.identification.algorithm": "none"},
                )
            },
            {"STREAMAPP_SECURITY_PROTOCOL": "SASL_SSL", "STREAMAPP_SASL_PASSWORD_FILE": "/run/password"},
            "ssl.endpoint.identification.algorithm, so STREAMAPP_SECURITY_PROTOCOL, STREAMAPP_SASL_PASSWORD_FILE would",
        ),
        (
            {
                "config": StreamsConfig(
                    client_properties={"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
                )
            },
            {},
            "give Faust the same credentials as broker_credentials",
        ),
    ],
)
def test_contradictions_are_refused_at_construction(
    environment: pytest.MonkeyPatch, settings: dict[str, Any], environ: dict[str, str], message: str
) -> None:
    for name, value in environ.items():
        environment.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        app(**settings)


def test_the_environment_secures_every_client(environment: pytest.MonkeyPatch) -> None:
    for name, value in SECURED.items():
        environment.setenv(name, value)
    made = app()
    credentials = made.conf.broker_credentials
    assert (credentials.username, credentials.password, credentials.mechanism.value) == (
        "ada",
        "lovelace",
        "PLAIN",
    )
    for settings in (client_of(made.config), client_settings(made.config, "admin")):
        assert settings["security.protocol"] == "SASL_PLAINTEXT"
        assert settings["sasl.password"] == "lovelace"


def test_the_configuration_says_how_and_the_environment_the_password() -> None:
    config = StreamsConfig(client_properties={"sasl.username": "grace", "sasl.mechanisms": "SCRAM-SHA-512"})
    found = connected(config, SECURED)
    assert found.client_properties["sasl.username"] == "grace"
    assert found.client_properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found.client_properties["sasl.password"] == "lovelace"
    assert connected(found, {}) == found


def test_a_configuration_without_security_sends_no_credentials() -> None:
    plain = StreamsConfig(client_properties={"security.protocol": "PLAINTEXT"})
    assert "sasl.password" not in connected(plain, SECURED).client_properties


def test_properties_of_kafka_streams_secure_the_clients() -> None:
    config = StreamsConfig.from_properties({"application.id": "a", "security.protocol": "SSL"})
    assert client_of(config)["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    "settings", [consumer_settings, producer_settings, lambda config: client_settings(config, "admin")]
)
def test_clients_are_called_after_application_and_worker(
    settings: Callable[[StreamsConfig], dict[str, Any]],
) -> None:
    named = StreamsConfig("flights", group_instance_id="pod-3")
    assert settings(named)["client.id"].startswith("flights-pod-3-")
    own = named.replace(client_properties={"client.id": "mine"})
    assert settings(own)["client.id"].startswith("mine-")
    assert app(config=named).conf.broker_client_id == client_id(named) == "flights-pod-3"


def test_without_a_registry_in_the_environment_nothing_is_made_for_each_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An outbox made a whole configuration for each record, which took longer than the record itself."""
    monkeypatch.setattr(schema_registry, "_default", None)
    monkeypatch.delenv("STREAMAPP_SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.delattr(connection, "StreamsConfig")
    use_registry_of_environment()
    assert schema_registry.default_registry() is None
