"""A planted secret is in nothing that people read."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from aiokafka.protocol.admin import SaslAuthenticateRequest_v0

from streamapp import App, ConfigError, JsonSerde, StreamsBuilder, StreamsConfig, StringSerde
from streamapp._base.secrets import is_secret
from streamapp.broker import KafkaSettings
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.consumer import PostgresOffsets
from streamapp.producer import PostgresOutbox
from streamapp.runners.connection import connected
from streamapp.runners.worker.clients import client_settings
from streamapp.runners.worker.logs import hide_secrets
from streamapp.topology.snapshot import snapshot

SECRET = "planted-s3cret"
SECURED = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": SECRET,
}


def describe(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=JsonSerde()).group_by_key().count()


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, False) for name in KafkaSettings.__dataclass_fields__ if "password" not in name and "secret" not in name),
        ("sasl_password", True),
        ("STREAMAPP_SSL_KEY_PASSWORD", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.config", True),
        ("sasl.oauthbearer.assertion.private.key.pem", True),
        ("sasl.oauthbearer.assertion.private.key.file", False),
        ("sasl.jaas.config", True),
        ("ssl.key.pem", True),
        ("ssl.certificate.pem", False),
        ("ssl.keystore.password", True),
        ("linger.ms", False),
    ],
)  # fmt: skip
def test_secrets_are_told_by_their_names(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_what_shows_settings_shows_no_secret() -> None:
    config = StreamsConfig("flights", client_properties=SECURED)
    app = App("flights", topology=describe, config=config)
    plan = app.streams.plan
    kafka = KafkaSettings(
        bootstrap_servers="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="ada",
        sasl_password=SECRET,
    )
    shown = [config, str(config), connected(config), config.client_properties, app, app.conf, plan, kafka]
    shown += [
        app.streams.topology,
        app.streams.topology.describe(),
        snapshot(plan),
        app.conf.broker_credentials,
    ]
    shown += [StreamsConfig("a", client_properties=kafka.librdkafka()).replace(num_standby_replicas=1)]
    for each in shown:
        assert SECRET not in repr(each)
        assert SECRET not in str(each)
    assert client_settings(app.config, "admin")["sasl.password"] == SECRET


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StreamsConfig(client_properties=SECRET),  # type: ignore[arg-type]
        lambda: StreamsConfig(bootstrap_servers=f"kafka://ada:{SECRET}@host:9092"),
        lambda: App("a", topology=describe, broker=f"redis://ada:{SECRET}@host:9092"),
        lambda: App("a", topology=describe, broker=f"kafka://ada:{SECRET}@host:9092"),
        lambda: App("a", canonical_url=f"//ada:{SECRET}@"),
        lambda: App("a", config=StreamsConfig(client_properties=SECURED | {"ssl.key.pem": SECRET})),
        lambda: App("a", config=StreamsConfig(client_properties=SECURED | {"sasl.password": [SECRET]})),  # type: ignore[dict-item]
        lambda: App("a", config=StreamsConfig(client_properties=SECURED | {"security.protocol": "PLAINTEXT"})),
        lambda: App("a", config=StreamsConfig(client_properties=SECURED | {"sasl.mechanism": "NONE"})),
        lambda: open_consumer({"bootstrap.servers": "a:1", "group.id": "g", "security.protocol": "SSL", "ssl.key.pem": SECRET}),
        lambda: PostgresOutbox(f"postgres//ada:{SECRET}@host/orders"),
        lambda: PostgresOffsets(f"postgres//ada:{SECRET}@host/orders"),
        lambda: StreamsConfig.from_properties({"sasl_passwort": SECRET, "bootstrapservers": SECRET}),
    ],
)  # fmt: skip
def test_no_refusal_shows_a_secret(wrong: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        wrong()
    assert SECRET not in str(refusal.value)
    assert SECRET not in "".join(traceback.format_exception_only(refusal.value))
    assert refusal.value.__cause__ is None or SECRET not in str(refusal.value.__cause__)


def test_the_debug_log_of_a_login_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    hide_secrets()
    request = SaslAuthenticateRequest_v0(f"\0ada\0{SECRET}".encode())
    logger = logging.getLogger("aiokafka.conn")
    with caplog.at_level(logging.DEBUG, logger.name):
        logger.debug("Request to %s:%d %d: %s", "host", 9092, 3, request)
        logger.debug("Request to %s:%d %d: %s", "host", 9092, 3, "MetadataRequest")
    assert "Request to host:9092 3: SaslAuthenticateRequest_v0([hidden])" in caplog.text
    assert "MetadataRequest" in caplog.text
