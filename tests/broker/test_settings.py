"""One description of a cluster, said to librdkafka, Faust, aiokafka and Spark; wrong ones refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streamapp.broker import KafkaSettings
from streamapp.errors import ConfigError

SASL = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "ada", "sasl_password": 'pa"ss\\word'}


class Pem(NamedTuple):
    certificate: str
    key: str


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    folder = tmp_path_factory.mktemp("pem")
    made = Pem(str(folder / "cert.pem"), str(folder / "key.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    subprocess.run([*command, "-keyout", made.key, "-out", made.certificate], check=True, capture_output=True)
    return made


def test_an_address_alone_is_plaintext_everywhere() -> None:
    settings = KafkaSettings(bootstrap_servers=" kafka-1:9092, [::1]:9093 ,")
    servers = "kafka-1:9092,[::1]:9093"
    assert settings.librdkafka() == {"bootstrap.servers": servers, "security.protocol": "PLAINTEXT"}
    assert settings.spark() == {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "PLAINTEXT",
    }
    assert settings.faust() == {
        "broker": "kafka://kafka-1:9092;kafka://[::1]:9093",
        "broker_credentials": None,
    }
    assert settings.aiokafka() == {
        "bootstrap_servers": servers,
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
    }


def test_sasl_over_tls_reaches_every_client(pem: Pem) -> None:
    settings = KafkaSettings(
        bootstrap_servers="k:9092", security_protocol="sasl_ssl", ssl_ca_location=pem.certificate, **SASL
    )
    Producer(settings.librdkafka())
    AdminClient(settings.librdkafka())
    assert settings.librdkafka()["sasl.mechanism"] == "SCRAM-SHA-512"

    credentials = settings.faust()["broker_credentials"]
    assert (credentials.protocol.value, credentials.mechanism.value) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (credentials.username, credentials.password) == (SASL["sasl_username"], SASL["sasl_password"])

    assert settings.aiokafka()["sasl_plain_password"] == SASL["sasl_password"]
    assert settings.aiokafka()["ssl_context"].verify_mode.name == "CERT_REQUIRED"

    spark = settings.spark()
    assert spark["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada" password="pa\\"ss\\\\word";'
    )
    assert spark["kafka.ssl.truststore.certificates"] == Path(pem.certificate).read_text()


def test_sasl_without_tls() -> None:
    settings = KafkaSettings(bootstrap_servers="k:9092", security_protocol="SASL_PLAINTEXT", **SASL)
    assert settings.faust()["broker_credentials"].protocol.value == "SASL_PLAINTEXT"
    assert settings.ssl_context() is None


def test_a_client_certificate_reaches_every_client(pem: Pem) -> None:
    settings = KafkaSettings(
        bootstrap_servers="k:9092",
        security_protocol="SSL",
        ssl_certificate_location=pem.certificate,
        ssl_key_location=pem.key,
    )
    Producer(settings.librdkafka())
    assert settings.faust()["broker_credentials"].protocol.value == "SSL"
    assert "ssl_context" in settings.aiokafka()
    spark = settings.spark()
    assert spark["kafka.ssl.keystore.type"] == "PEM"
    assert spark["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert spark["kafka.ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----")


def test_a_password_is_not_shown() -> None:
    settings = KafkaSettings(bootstrap_servers="k:9092", security_protocol="SASL_PLAINTEXT", **SASL)
    assert "word" not in repr(settings)


def test_the_environment_and_arguments_before_it() -> None:
    environ = {
        "STREAMAPP_BOOTSTRAP_SERVERS": "env:9092",
        "STREAMAPP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "STREAMAPP_SASL_MECHANISM": "plain",
        "STREAMAPP_SASL_USERNAME": "ada",
        "STREAMAPP_SASL_PASSWORD": "secret",
        "STREAMAPP_SSL_CA_LOCATION": "",
    }
    settings = KafkaSettings.from_env(environ, sasl_username="grace", bootstrap_servers=None)
    assert settings == KafkaSettings(
        bootstrap_servers="env:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="grace",
        sasl_password="secret",
    )
    assert KafkaSettings.from_env({}).bootstrap_servers == "127.0.0.1:9092"
    with pytest.raises(
        ConfigError, match=r"no Kafka setting sasl_user\. The settings are: bootstrap_servers"
    ):
        KafkaSettings.from_env({}, sasl_user="ada")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({"bootstrap_servers": 9092}, "bootstrap_servers has to be a string, not int"),
        ({"security_protocol": None}, "security_protocol has to be a string, not NoneType"),
        ({**SASL, "sasl_password": 3}, "sasl_password has to be a string, not int"),
        ({"bootstrap_servers": "kafka"}, "'kafka'; it takes host:port"),
        ({"bootstrap_servers": "kafka://k:9092"}, "host:port"),
        ({"bootstrap_servers": "k:9092;l:9092"}, "host:port"),
        ({"bootstrap_servers": "k:70000"}, "host:port"),
        ({"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        (SASL, "sasl_mechanism, sasl_username, sasl_password would not be used.*SASL_SSL"),
        ({"security_protocol": "SSL", "sasl_username": "a"}, "sasl_username would not be used"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism, sasl_username, sasl_password"),
        ({**SASL, "security_protocol": "SASL_SSL", "sasl_password": ""}, "needs sasl_password too"),
        (
            {**SASL, "security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "'GSSAPI'; it must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"ssl_ca_location": "ca.pem"}, "ssl_ca_location would not be used.*SSL or SASL_SSL"),
        ({"security_protocol": "SSL", "ssl_ca_location": "none.pem"}, "no such file"),
        ({"security_protocol": "SSL", "ssl_key_location": "k.pem"}, "only work together"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        KafkaSettings(**{"bootstrap_servers": "k:9092", **given})


def test_a_key_that_java_cannot_read_is_refused_with_the_command_that_converts_it(
    pem: Pem, tmp_path: Path
) -> None:
    old = tmp_path / "old.pem"
    old.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    settings = KafkaSettings(
        bootstrap_servers="k:9092",
        security_protocol="SSL",
        ssl_certificate_location=pem.certificate,
        ssl_key_location=str(old),
    )
    with pytest.raises(ConfigError, match="openssl pkcs8 -topk8"):
        settings.spark()
    with pytest.raises(ConfigError, match="not PEM files that match"):
        settings.ssl_context()
