"""The address and login of a Kafka cluster, given once and translated for librdkafka, Faust, aiokafka and Spark."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamapp._base.addresses import check_addresses
from streamapp._base.secrets import from_environment, is_secret
from streamapp.broker.certificates import FollowingContext
from streamapp.errors import ConfigError

if TYPE_CHECKING:
    from streamapp.broker.tokens import TokenProvider

__all__ = ["DEFAULT_SERVERS", "KafkaSettings"]

DEFAULT_SERVERS = "127.0.0.1:9092"
"""The address of the local broker."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_LOGIN = ("sasl_username", "sasl_password")
_OAUTH = (
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_token_endpoint_url",
)
_SSL_FILES = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
_SSL = (*_SSL_FILES, "ssl_key_password")


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """The address of a Kafka cluster, with TLS and SASL credentials if the cluster needs them.

    The fields are librdkafka's options with underscores for dots. Certificates and private keys are PEM files. Without
    ``ssl_ca_location``, clients trust the system's certificate authorities, and Spark's Kafka source trusts Java's own.
    With OAUTHBEARER, clients get a token from ``sasl_oauthbearer_token_endpoint_url`` for the client's id and secret.
    For Spark's Kafka source, OAUTHBEARER is refused.

    Raises `ConfigError`, which names the option, for combinations that cannot work.

        >>> settings = KafkaSettings(bootstrap_servers="kafka-1:9092,kafka-2:9092")
        >>> settings.librdkafka()
        {'bootstrap.servers': 'kafka-1:9092,kafka-2:9092', 'security.protocol': 'PLAINTEXT'}
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_scope: str | None = None

    MECHANISMS: ClassVar[tuple[str, ...]] = tuple(_LOGIN_MODULES)
    """The SASL mechanisms that all clients have, except that Spark's Kafka source has no OAUTHBEARER here."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: str | None) -> KafkaSettings:
        """Read ``STREAMAPP_BOOTSTRAP_SERVERS``, ``STREAMAPP_SECURITY_PROTOCOL``, ... from the environment.

        Each field has a variable. Each secret has a second variable that names a file, for example
        ``STREAMAPP_SASL_PASSWORD_FILE``. A keyword argument that is not None comes before the environment. An empty
        variable counts as not set. The default address is that of the local broker, ``127.0.0.1:9092``.

        If an argument gives the protocol or the mechanism, variables that this protocol or mechanism does not use are
        ignored. Otherwise a password in the environment would contradict ``security_protocol="PLAINTEXT"``.

            >>> KafkaSettings.from_env({"STREAMAPP_BOOTSTRAP_SERVERS": "kafka:9092"}).bootstrap_servers
            'kafka:9092'
        """
        names = [each.name for each in fields(cls)]
        unknown = sorted(set(overrides) - set(names))
        if unknown:
            raise ConfigError(
                f"There is no Kafka setting {', '.join(unknown)}. The settings are: {', '.join(names)}."
            )
        given = {name: value for name, value in overrides.items() if value is not None}
        unused = _unused(given)
        for name in names:
            if name in unused:
                continue
            variable = f"STREAMAPP_{name.upper()}"
            value = from_environment(environ, variable) if is_secret(name) else environ.get(variable)
            if value:
                given.setdefault(name, value)
        return cls(**{"bootstrap_servers": DEFAULT_SERVERS, **given})

    def __post_init__(self) -> None:
        """Put the values into their usual spelling, and refuse combinations that cannot work."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, str) and (value is not None or each.default is not None):
                # The message leaves the value out, because the value may be a password.
                raise ConfigError(f"{each.name} has to be a string, not {type(value).__name__}.")
        servers = [server.strip() for server in self.bootstrap_servers.split(",") if server.strip()]
        object.__setattr__(self, "bootstrap_servers", ",".join(servers))
        object.__setattr__(self, "security_protocol", self.security_protocol.upper())
        if self.sasl_mechanism:
            object.__setattr__(self, "sasl_mechanism", self.sasl_mechanism.upper())
        check_addresses(self.bootstrap_servers)
        if self.security_protocol not in _PROTOCOLS:
            raise ConfigError(
                f"security_protocol is {self.security_protocol!r}; it must be one of {', '.join(_PROTOCOLS)}."
            )
        self._check_sasl()
        self._check_ssl()

    def librdkafka(self) -> dict[str, str]:
        """Return the settings for confluent-kafka's clients, as a new dict, which the caller may change."""
        named = ((each.name.replace("_", "."), getattr(self, each.name)) for each in fields(self))
        oidc = {"sasl.oauthbearer.method": "oidc"} if self.sasl_mechanism == "OAUTHBEARER" else {}
        return {name: value for name, value in named if value is not None} | oidc

    def faust(self) -> dict[str, Any]:
        """Return the settings as arguments of ``faust.App``: ``broker`` and ``broker_credentials``."""
        from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

        broker = ";".join(f"kafka://{server}" for server in self.bootstrap_servers.split(","))
        credentials: Any = None
        if self.sasl_mechanism == "OAUTHBEARER":
            credentials = OAuthCredentials(oauth_cb=self._tokens(), ssl_context=self.ssl_context())
        elif self._uses_sasl:
            credentials = SASLCredentials(
                username=self.sasl_username,
                password=self.sasl_password,
                mechanism=self.sasl_mechanism,
                ssl_context=self.ssl_context(),
            )
        elif self._uses_ssl:
            credentials = SSLCredentials(self.ssl_context())
        return {"broker": broker, "broker_credentials": credentials}

    def aiokafka(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of aiokafka's clients."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
            "ssl_context": self.ssl_context(),
        }
        if self._uses_sasl:
            arguments["sasl_mechanism"] = self.sasl_mechanism
        if self.sasl_mechanism == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = self._tokens()
        elif self._uses_sasl:
            arguments["sasl_plain_username"] = self.sasl_username
            arguments["sasl_plain_password"] = self.sasl_password
        return arguments

    def spark(self) -> dict[str, str]:
        """Return the settings as options of Spark's Kafka source and sink.

        The options have the contents of certificates and private keys, so executors need no files. A private key must
        be in PKCS #8, without password. Raises `ConfigError` for a private key in another form, and for OAUTHBEARER.
        """
        if self.sasl_mechanism == "OAUTHBEARER":
            raise ConfigError("Spark's own Kafka source has no OAUTHBEARER here: use SCRAM or PLAIN.")
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[self.sasl_mechanism]} required "
                f"username={_quoted(self.sasl_username)} password={_quoted(self.sasl_password)};"
            )
        if self.ssl_ca_location:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.certificates"] = Path(self.ssl_ca_location).read_text()
        if self.ssl_certificate_location and self.ssl_key_location:
            key = Path(self.ssl_key_location).read_text()
            if "-----BEGIN PRIVATE KEY-----" not in key:
                raise ConfigError(
                    f"ssl_key_location {self.ssl_key_location} is no unencrypted PKCS #8 key, which Spark's Kafka "
                    "source needs here. Convert the key: openssl pkcs8 -topk8 -nocrypt -in KEY -out KEY.pk8"
                )
            options["kafka.ssl.keystore.type"] = "PEM"
            options["kafka.ssl.keystore.key"] = key
            certificate = Path(self.ssl_certificate_location).read_text()
            options["kafka.ssl.keystore.certificate.chain"] = certificate
        return options

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a TLS context, which reads its files again when they change; None if the protocol has no TLS."""
        if not self._uses_ssl:
            return None
        return FollowingContext.of(
            self.ssl_ca_location,
            self.ssl_certificate_location,
            self.ssl_key_location,
            self.ssl_key_password,
        )

    def _tokens(self) -> TokenProvider:
        from streamapp.broker.tokens import TokenProvider

        endpoint, name = self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_client_id
        secret = self.sasl_oauthbearer_client_secret
        return TokenProvider(endpoint or "", name or "", secret or "", self.sasl_oauthbearer_scope)

    @property
    def _uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def _uses_ssl(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def _check_sasl(self) -> None:
        of_sasl = ("sasl_mechanism", *_LOGIN, *_OAUTH, "sasl_oauthbearer_scope")
        given = [name for name in of_sasl if getattr(self, name) is not None]
        if not self._uses_sasl:
            if given:
                raise ConfigError(
                    f"{', '.join(given)} would not be used with security_protocol={self.security_protocol}: "
                    "set security_protocol to SASL_SSL (or SASL_PLAINTEXT)."
                )
            return
        needed = ("sasl_mechanism", *(_OAUTH if self.sasl_mechanism == "OAUTHBEARER" else _LOGIN))
        missing = [name for name in needed if not getattr(self, name)]
        if missing:
            raise ConfigError(f"security_protocol={self.security_protocol} needs {', '.join(missing)} too.")
        if self.sasl_mechanism not in _LOGIN_MODULES:
            known = ", ".join(_LOGIN_MODULES)
            raise ConfigError(f"sasl_mechanism is {self.sasl_mechanism!r}; it must be one of {known}.")
        unused = [name for name in given if name not in (*needed, "sasl_oauthbearer_scope")]
        if unused:
            raise ConfigError(
                f"{', '.join(unused)} would not be used with sasl_mechanism={self.sasl_mechanism}: "
                "leave them out, or set another sasl_mechanism."
            )

    def _check_ssl(self) -> None:
        given = {name: value for name in _SSL if (value := getattr(self, name)) is not None}
        if given and not self._uses_ssl:
            raise ConfigError(
                f"{', '.join(given)} would not be used with security_protocol={self.security_protocol}: "
                "set security_protocol to SSL or SASL_SSL."
            )
        if ("ssl_certificate_location" in given) != ("ssl_key_location" in given):
            raise ConfigError("ssl_certificate_location and ssl_key_location only work together: set both.")
        for name in given.keys() & set(_SSL_FILES):
            value = given[name]
            if not Path(value).is_file():
                raise ConfigError(f"{name} is {value}, and there is no such file.")


def _unused(given: Mapping[str, str]) -> frozenset[str]:
    """The fields whose variables are ignored, because the given protocol or mechanism does not use them."""
    protocol, mechanism = str(given.get("security_protocol", "SASL_SSL")).upper(), given.get("sasl_mechanism")
    if not protocol.startswith("SASL_"):
        unused = {name for name in KafkaSettings.__dataclass_fields__ if name.startswith("sasl_")}
    elif mechanism is None:
        unused = set()
    else:
        unused = set(
            _LOGIN if str(mechanism).upper() == "OAUTHBEARER" else (*_OAUTH, "sasl_oauthbearer_scope")
        )
    return frozenset(unused if protocol.endswith("SSL") else {*unused, *_SSL})


def _quoted(value: str | None) -> str:
    escaped = (value or "").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
