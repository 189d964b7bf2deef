"""Decides for all clients and commands which cluster and schema registry an application uses, with their credentials.

An argument of the `App` has precedence over its configuration, and the configuration over the environment. If none of
the three names a cluster, the cluster is the local broker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamapp._base.secrets import without_user
from streamapp.broker.requests import LastingAdmin
from streamapp.broker.settings import KafkaSettings
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError
from streamapp.registry import ConfluentSchemaRegistry, RegistrySettings
from streamapp.registry.rest import RestClient
from streamapp.serdes.schema_registry import default_registry, set_default_registry

if TYPE_CHECKING:
    from faust.types.auth import CredentialsT

__all__ = ["client_of", "connected", "faust_of", "faust_servers", "registry_of", "settings_of"]

_NAMES = {each.name.replace("_", "."): each.name for each in fields(KafkaSettings)}
"""librdkafka's names of the settings that all clients have, with the fields of `KafkaSettings`."""
_FAUST_ADDRESSES = {
    "broker": "BROKER_URL",
    "broker_consumer": "BROKER_CONSUMER_URL",
    "broker_producer": "BROKER_PRODUCER_URL",
}
"""Faust's settings that name brokers, with their environment variables. In Faust, a variable overrides an argument."""
_SCHEMAS = ".schemas"
"""The folder of schemas in the state folder."""
_REGISTRY = "STREAMAPP_SCHEMA_REGISTRY_URL"
_PORT = 9092
"""The port that Faust adds to a host without port."""


def connected(config: StreamsConfig, environ: Mapping[str, str] | None = None) -> StreamsConfig:
    """The configuration with all open settings decided: address, protocol and credentials of the cluster.

    The environment variables are those of `KafkaSettings.from_env` and `RegistrySettings.from_env`. If the result names
    a schema registry, this registry becomes the default registry of the process. The result can be sent to other
    machines (such as Spark's executors), because the result no longer depends on the environment. Raises `ConfigError`
    for settings that contradict each other.

    >>> connected(StreamsConfig("flights"), {"STREAMAPP_BOOTSTRAP_SERVERS": "kafka:9092"}).bootstrap_servers
    'kafka:9092'
    >>> connected(StreamsConfig("flights"), {}).bootstrap_servers
    '127.0.0.1:9092'
    """
    environ = os.environ if environ is None else environ
    config = _with_registry(config, environ)
    properties = dict(config.client_properties)
    if "sasl.mechanisms" in properties:  # librdkafka has two names for this setting
        properties["sasl.mechanism"] = properties.pop("sasl.mechanisms")
    if _only_librdkafka(properties):
        _refuse_ignored(properties, environ)
        environ = {name: value for name, value in environ.items() if name == "STREAMAPP_BOOTSTRAP_SERVERS"}
        address = KafkaSettings.from_env(environ, bootstrap_servers=config.bootstrap_servers)
        return config.replace(bootstrap_servers=address.bootstrap_servers, client_properties=properties)
    given = {ours: properties.pop(theirs) for theirs, ours in _NAMES.items() if theirs in properties}
    settings = KafkaSettings.from_env(environ, **given | {"bootstrap_servers": config.bootstrap_servers})
    return config.replace(
        bootstrap_servers=settings.bootstrap_servers, client_properties=settings.librdkafka() | properties
    )


def registry_of(config: StreamsConfig) -> ConfluentSchemaRegistry | None:
    """The registry of the application's serdes; None if the configuration names no registry.

    The state folder keeps known schemas, so the application can restart while the registry is away.
    """
    if config.schema_registry_url is None:
        return None
    properties = {**config.schema_registry_properties, "url": config.schema_registry_url}
    settings = RegistrySettings.from_properties(properties)
    return ConfluentSchemaRegistry(cache=Path(config.state_dir) / _SCHEMAS, client=RestClient(settings))


def _with_registry(config: StreamsConfig, environ: Mapping[str, str]) -> StreamsConfig:
    given = {name.replace(".", "_"): value for name, value in config.schema_registry_properties.items()}
    settings = RegistrySettings.from_env(environ, **given | {"url": config.schema_registry_url})
    if settings is None:
        if given:
            raise ConfigError(
                f"schema_registry_properties has {', '.join(config.schema_registry_properties)}, but no registry is "
                "named: set schema_registry_url"
            )
        return config
    config = config.replace(
        schema_registry_url=settings.url, schema_registry_properties=settings.properties()
    )
    registry = registry_of(config)
    assert registry is not None
    set_default_registry(registry)
    return config


def use_registry_of_environment() -> None:
    """Makes the registry that the environment names the default registry of the process, if there is no default yet.

    A writer of bytes that opens no client of Kafka, such as the outbox, calls this function before it serializes.
    """
    if default_registry() is None and os.environ.get(_REGISTRY):  # the outbox calls this for each record
        _with_registry(StreamsConfig("streamapp"), os.environ)


def client_of(config: StreamsConfig) -> dict[str, Any]:
    """librdkafka's settings for the application's cluster, as a new dict, which the caller may change."""
    config = connected(config)
    return {
        "bootstrap.servers": config.bootstrap_servers,
        "client.id": config.application_id,
        **config.client_properties,
    }


def admin_of(config: StreamsConfig) -> LastingAdmin:
    """A new admin client for the application's cluster. librdkafka logs nothing, because each caller handles errors."""
    return LastingAdmin({**client_of(config), "log_level": 0})


def settings_of(config: StreamsConfig) -> KafkaSettings:
    """The application's connection as `KafkaSettings`, which `KafkaAdmin` and aiokafka's clients take.

    Raises `ConfigError` if the configuration has TLS or SASL settings that only librdkafka has.
    """
    config = connected(config)
    if _only_librdkafka(config.client_properties):
        raise ConfigError(
            "client_properties has security settings that only librdkafka's clients have: "
            f"{_shown(config.client_properties)}. "
            f"Use SSL, or SASL with {', '.join(KafkaSettings.MECHANISMS)}, and certificates and private keys in files"
        )
    given = {ours: config.client_properties.get(theirs) for theirs, ours in _NAMES.items()}
    return KafkaSettings.from_env({}, **given | {"bootstrap_servers": config.bootstrap_servers})


def faust_of(config: StreamsConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Faust's settings ``broker`` and ``broker_credentials`` for a configuration from `connected`.

    ``given`` has the user's settings for Faust. Raises `ConfigError` if one of them contradicts the configuration.
    """
    prefix = given.get("env_prefix") or ""
    for name, variable in _FAUST_ADDRESSES.items():
        for said, value in ((name, given.get(name)), (prefix + variable, os.environ.get(prefix + variable))):
            if value is not None and _hosts(faust_servers(value, said)) != _hosts(config.bootstrap_servers):
                raise ConfigError(
                    f"{said} names {without_user(str(value))}, but bootstrap_servers is {config.bootstrap_servers}: "
                    "records would go to one cluster and the group to another. "
                    "Say the address once, as bootstrap_servers"
                )
    broker = [f"kafka://{address}" for address in str(config.bootstrap_servers).split(",")]
    return {"broker": broker, "broker_credentials": _credentials(config, given)}


def faust_servers(broker: Any, name: str = "broker") -> str:
    """Faust's ``broker=`` as ``bootstrap_servers``: a URL, a list of URLs, or URLs joined by semicolons or commas.

    Raises `ConfigError` for a URL of another scheme than ``kafka`` or ``aiokafka``; ``name`` is its setting.

    >>> faust_servers("kafka://kafka-1:9092;kafka-2")
    'kafka-1:9092,kafka-2:9092'
    """
    given = broker if isinstance(broker, list | tuple) else [broker]
    servers = []
    for url in (each.strip() for part in given for each in str(part).replace(",", ";").split(";")):
        scheme, found, host = url.rpartition("://")
        if found and scheme not in ("kafka", "aiokafka"):
            raise ConfigError(f"{name} is {without_user(url)!r}; an App takes kafka://host:port")
        host = host.rstrip("/")
        servers.append(host if ":" in host.rpartition("]")[2] else f"{host}:{_PORT}")
    return ",".join(servers)


def _credentials(config: StreamsConfig, given: Mapping[str, Any]) -> CredentialsT | None:
    from faust.types.auth import to_credentials

    protocol = config.client_properties.get("security.protocol", "PLAINTEXT").upper()
    own: CredentialsT | None = to_credentials(given.get("broker_credentials") or given.get("ssl_context"))
    if own is not None:
        if own.protocol.value != protocol:
            raise ConfigError(
                f"Faust's client would use {own.protocol.value} (broker_credentials or ssl_context), and the clients "
                f"that carry records {protocol}. Give one login for both, in client_properties, or as "
                "STREAMAPP_SECURITY_PROTOCOL and its credentials. Faust's client takes the same settings"
            )
        return own
    if _only_librdkafka(config.client_properties):
        raise ConfigError(
            "client_properties has security settings that Faust's client does not have "
            f"({_shown(config.client_properties)}): "
            "give Faust the same credentials as broker_credentials=..."
        )
    credentials: CredentialsT | None = settings_of(config).faust()["broker_credentials"]
    return credentials


def _only_librdkafka(properties: Mapping[str, Any]) -> bool:
    """True for TLS and SASL settings that only librdkafka has, for example private keys as text, or GSSAPI."""
    mechanism = str(properties.get("sasl.mechanism", "PLAIN")).upper()
    return mechanism not in KafkaSettings.MECHANISMS or any(
        name.startswith(("ssl.", "sasl.", "enable.sasl.", "enable.ssl."))
        and name not in _NAMES
        and (name, value) != ("sasl.oauthbearer.method", "oidc")
        for name, value in properties.items()
    )


def _refuse_ignored(properties: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` for variables of TLS and SASL beside settings that only librdkafka has.

    Such settings replace all variables, because nobody can check the two together. A client would then connect without
    the login of the variables.
    """
    fields_of_login = [each.name for each in fields(KafkaSettings) if each.name != "bootstrap_servers"]
    variables = [f"STREAMAPP_{name.upper()}" for name in fields_of_login]
    ignored = [name for name in (*variables, *(f"{each}_FILE" for each in variables)) if environ.get(name)]
    if ignored:
        raise ConfigError(
            f"client_properties has {_shown(properties)}, so {', '.join(ignored)} would not count: set all TLS and "
            "SASL settings in client_properties, and unset these variables"
        )


def _shown(properties: Mapping[str, Any]) -> str:
    return ", ".join(name for name in properties if name.startswith(("ssl.", "sasl.", "enable.")))


def _hosts(servers: str | None) -> set[str]:
    return {server.strip() for server in (servers or "").split(",")}
