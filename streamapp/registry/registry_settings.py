"""The address of a schema registry, and its login."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from streamapp._base.names import did_you_mean
from streamapp._base.secrets import from_environment, is_secret
from streamapp.errors import ConfigError

__all__ = ["RegistrySettings"]

_VARIABLE = "STREAMAPP_SCHEMA_REGISTRY_"
_FILES = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """A schema registry with Confluent's REST interface.

    The fields are Confluent's settings (``basic.auth.user.info`` ...) with underscores for dots, and two settings of
    streamapp. ``request_timeout_ms`` limits one request, and ``patience_ms`` limits its repetitions. ``url`` may name
    several servers of one registry, separated by commas: if a server does not answer, the client asks the next one.
    Certificates and keys are PEM files. Settings that cannot work raise `ConfigError`. The error names the setting, and
    has no secret.

    >>> RegistrySettings(url="http://registry:8081", basic_auth_user_info="ada:lovelace").urls
    ('http://registry:8081',)
    """

    url: str
    basic_auth_user_info: str | None = field(default=None, repr=False)
    """``user:password``."""
    bearer_auth_token: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    """A PEM file with the certificate authorities to trust; default: those of the system."""
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    auto_register_schemas: bool = True
    """False: a serde raises `SchemaRegistryError` if the registry lacks its schema. Schemas are then registered before
    a deployment, with ``streamapp schema register``."""
    normalize_schemas: bool = False
    """True: the registry treats schemas as equal that differ only in their form, such as the order of attributes."""
    request_timeout_ms: int = 5_000
    """The longest wait in ms for the next bytes of an answer. A connection has to open within 3 s."""
    patience_ms: int = 60_000
    """The time in ms for which a request is repeated while the registry does not answer. The last repetition begins
    within this time."""

    PREFIX: ClassVar[str] = _VARIABLE

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> RegistrySettings:
        """Settings from Confluent's names, including ``url``. Numbers and booleans may also be text, such as "false".

        >>> RegistrySettings.from_properties({"url": "http://r:8081", "auto.register.schemas": "false"})
        RegistrySettings(url='http://r:8081', ssl_ca_location=None, ssl_certificate_location=None, \
ssl_key_location=None, auto_register_schemas=False, normalize_schemas=False, request_timeout_ms=5000, patience_ms=60000)
        """
        known = {each.name: str(each.type) for each in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in properties.items():
            name = key.removeprefix("schema.registry.").replace(".", "_")
            if name not in known:
                raise ConfigError(
                    f"there is no setting {key} of a schema registry{did_you_mean(name, known).replace('_', '.')}"
                )
            given[name] = _converted(key, value, known[name])
        if "url" not in given:
            raise ConfigError("the schema registry has no address: set url (STREAMAPP_SCHEMA_REGISTRY_URL)")
        return cls(**given)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> RegistrySettings | None:
        """Settings from the environment; None if neither ``url`` nor ``STREAMAPP_SCHEMA_REGISTRY_URL`` is given.

        Each field has a variable, for example ``STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO``. Each secret has a
        second variable that names a file with the secret: ``STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO_FILE``. A
        keyword argument that is not None comes before the environment. An empty variable counts as not set.

        >>> RegistrySettings.from_env({"STREAMAPP_SCHEMA_REGISTRY_URL": "http://registry:8081"}).url
        'http://registry:8081'
        """
        environ = os.environ if environ is None else environ
        given = {name: value for name, value in overrides.items() if value is not None}
        for each in fields(cls):
            variable = f"{_VARIABLE}{each.name.upper()}"
            value = from_environment(environ, variable) if is_secret(each.name) else environ.get(variable)
            if value:
                given.setdefault(each.name, value)
        return cls.from_properties(given) if "url" in given else None

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in self.url.split(","))

    def properties(self) -> dict[str, Any]:
        """All settings but the address that differ from their defaults, by Confluent's names."""
        return {
            each.name.replace("_", "."): getattr(self, each.name)
            for each in fields(self)
            if each.name != "url" and getattr(self, each.name) != each.default
        }

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                _check_type(each.name.replace("_", "."), value, str(each.type))
        # A password may have characters that no address may have. So this check comes first, and quotes nothing.
        if "@" in self.url:
            raise ConfigError(
                "url, the address of the schema registry, has a user in it: set basic.auth.user.info "
                "(STREAMAPP_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO) instead"
            )
        for url in self.urls:
            if not _is_address(url):
                raise ConfigError(
                    f"url has {url!r}, which is no address of a schema registry; it takes http://host:port"
                )
        if self.basic_auth_user_info is not None and self.bearer_auth_token is not None:
            raise ConfigError(
                "basic.auth.user.info and bearer.auth.token exclude each other: set one of them"
            )
        if self.basic_auth_user_info is not None and ":" not in self.basic_auth_user_info:
            raise ConfigError("basic.auth.user.info has the form user:password")
        if (self.ssl_certificate_location is None) != (self.ssl_key_location is None):
            raise ConfigError("ssl.certificate.location and ssl.key.location only work together: set both")
        for name in _FILES:
            value = getattr(self, name)
            if value is not None and not Path(value).is_file():
                raise ConfigError(f"{name.replace('_', '.')} is {value}, and there is no such file")
        for name in ("request_timeout_ms", "patience_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', '.')} must be at least 1")


def _converted(key: str, value: Any, declared: str) -> Any:
    """The value of a setting. Numbers and booleans may be text."""
    if declared == "bool" and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if declared == "int" and isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return int(value)
    _check_type(key, value, declared)
    return value


def _check_type(key: str, value: Any, declared: str) -> None:
    wanted = {"bool": bool, "int": int}.get(declared, str)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        kind = {bool: "true or false", int: "a whole number", str: "text"}[wanted]
        shown = type(value).__name__ if is_secret(key) else repr(value)
        raise ConfigError(f"{key} has to be {kind}, not {shown}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return valid and not parts.query and not parts.fragment
