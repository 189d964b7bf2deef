"""Certificates, a login and the listeners of a local cluster with ``secure``."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streamapp._base.extras import require_secure
from streamapp.broker.properties import HOST
from streamapp.broker.requests import ask
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import BasicConstraints, Certificate, ExtensionType, Name

__all__ = ["FOLDER", "LocalSecurity", "exports"]

FOLDER = "security"
USER = "streamapp"
_DAYS = 3_650
_USAGE_OF_AUTHORITY, _USAGE_OF_OTHERS = "key_cert_sign", "digital_signature"
_USAGES = (
    _USAGE_OF_AUTHORITY,
    _USAGE_OF_OTHERS,
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
_ITERATIONS = 4_096
_MODULES = "org.apache.kafka.common.security"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class LocalSecurity:
    """The security of one local cluster, in files of ``folder`` that only their owner may read.

    Each broker has two listeners for clients: ``LOGIN`` asks for a password over TLS, ``TLS`` asks for a certificate.
    Brokers and controllers know each other by certificates. No listener takes a client without either.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        """Makes an authority, certificates and a password, unless they are there. Raises `MissingExtraError`."""
        if self._file("password").exists():
            return
        require_secure("cryptography")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        signer = _Signer()
        self._write("ca.pem", signer.pem)
        self._write("broker.pem", "".join(signer.issue("broker")))
        for name, pem in zip(("client.key", "client.crt"), signer.issue("client"), strict=True):
            self._write(name, pem)
        self._write("password", secrets.token_urlsafe(24) + "\n")  # the last file: now all are there

    def properties(self, port: int, tls_port: int, controller_port: int) -> dict[str, str]:
        """The settings of a broker in place of those of its plain listener; ``server.properties`` has a password."""
        clients = f"LOGIN://{HOST}:{port},TLS://{HOST}:{tls_port}"
        login = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{self._password}";'
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        # Relative to the broker's folder, as log.dirs.
        files = f"../{FOLDER}/"
        return {
            "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "LOGIN:SASL_SSL,TLS:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "TLS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{files}broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{files}ca.pem",
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "listener.name.login.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            "listener.name.login.plain.sasl.jaas.config": login,
            "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
        }

    def login(self, servers: str) -> dict[str, str]:
        """The environment of a client with a password."""
        return {
            "STREAMAPP_BOOTSTRAP_SERVERS": servers,
            "STREAMAPP_SECURITY_PROTOCOL": "SASL_SSL",
            "STREAMAPP_SSL_CA_LOCATION": str(self._file("ca.pem")),
            "STREAMAPP_SASL_MECHANISM": "SCRAM-SHA-512",
            "STREAMAPP_SASL_USERNAME": USER,
            "STREAMAPP_SASL_PASSWORD_FILE": str(self._file("password")),
        }

    def certificate(self, servers: str) -> dict[str, str]:
        """The environment of a client with a certificate. ``servers`` are the listeners ``TLS``."""
        return {
            "STREAMAPP_BOOTSTRAP_SERVERS": servers,
            "STREAMAPP_SECURITY_PROTOCOL": "SSL",
            "STREAMAPP_SSL_CA_LOCATION": str(self._file("ca.pem")),
            "STREAMAPP_SSL_CERTIFICATE_LOCATION": str(self._file("client.crt")),
            "STREAMAPP_SSL_KEY_LOCATION": str(self._file("client.key")),
        }

    def client(self, servers: str) -> dict[str, str]:
        """librdkafka's settings for a client with a certificate."""
        return KafkaSettings.from_env(self.certificate(servers)).librdkafka()

    def write_environments(self, servers: str, tls_servers: str) -> Path:
        """Writes ``login.env`` and ``certificate.env`` for a shell, and returns the first."""
        self._write("certificate.env", exports(self.certificate(tls_servers)))
        return self._write("login.env", exports(self.login(servers)))

    def add_user(self, servers: str, seconds: float) -> None:
        """Gives running brokers the user and the password for SCRAM. Raises `BrokerError`."""
        admin = AdminClient({**self.client(servers), "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, _ITERATIONS)
            change = UserScramCredentialUpsertion(USER, credential, self._password.encode())
            try:
                for future in ask(admin.alter_user_scram_credentials, [change], seconds=seconds).values():
                    future.result()
            except KafkaException as exc:
                raise BrokerError(f"Kafka does not take the user {USER}: {exc}") from exc

    @property
    def _password(self) -> str:
        return self._file("password").read_text().strip()

    def _file(self, name: str) -> Path:
        return self._folder / name

    def _write(self, name: str, text: str) -> Path:
        path = self._file(name)
        partial = path.with_name(f"{name}.partial")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        partial.replace(path)
        return path


def exports(environment: Mapping[str, str]) -> str:
    """The variables as lines of a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())


class _Signer:
    """An authority that exists only while certificates are made: nobody keeps its key."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"streamapp local authority {secrets.token_hex(4)}")
        self._certificate = self._sign(
            self._name, self._key, x509.BasicConstraints(ca=True, path_length=0), _USAGE_OF_AUTHORITY
        )

    @property
    def pem(self) -> str:
        return _pem(self._certificate)

    def issue(self, name: str) -> tuple[str, str]:
        """Key and certificate for `HOST`, as PEM; the key is PKCS #8, which Java reads, too."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST)), x509.DNSName("localhost")])
        leaf = x509.BasicConstraints(ca=False, path_length=None)
        certificate = self._sign(_name(name), key, leaf, _USAGE_OF_OTHERS, hosts)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return pem.decode(), _pem(certificate)

    def _sign(
        self,
        subject: Name,
        key: EllipticCurvePrivateKey,
        basic: BasicConstraints,
        usage: str,
        *more: ExtensionType,
    ) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(basic, critical=True)
            .add_extension(x509.KeyUsage(**{name: name == usage for name in _USAGES}), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        for each in more:
            builder = builder.add_extension(each, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()
