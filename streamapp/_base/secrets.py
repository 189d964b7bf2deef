"""The one owner of two questions: which settings are secrets, and how nobody gets to read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamapp.errors import ConfigError

__all__ = [
    "HIDDEN",
    "Properties",
    "from_environment",
    "is_secret",
    "read_secret_file",
    "without_secrets",
    "without_user",
]

HIDDEN = "[hidden]"
"""Stands where a secret is left out."""

_SECRET = re.compile(
    r"passw|passphrase|secret|jaas|oauthbearer\.config|private\.key(?!\.file)|keystore\.key$|ssl\.key\.pem"
    r"|token(?!\.endpoint)|credential(?!s\.source)|user\.info",
)
_USER = re.compile(r"[^\s/@'\",;]+@")


def is_secret(name: str) -> bool:
    """True if the setting with this name is a secret.

    The name is librdkafka's, Kafka's, streamapp's, or that of an environment variable. Private keys and passwords are
    secrets. Paths of key files are none.

    >>> [is_secret(name) for name in ("sasl.password", "STREAMAPP_SASL_PASSWORD", "ssl.key.pem", "ssl.key.location")]
    [True, True, True, False]
    """
    return _SECRET.search(name.lower().replace("_", ".")) is not None


class Properties(dict[str, Any]):
    """Settings by name, whose ``repr`` and ``str`` show no secret.

    >>> Properties({"sasl.username": "ada", "sasl.password": "lovelace"})
    {'sasl.username': 'ada', 'sasl.password': '[hidden]'}
    """

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else value for name, value in self.items()})


def without_secrets(text: str, properties: Mapping[str, Any]) -> str:
    """The text with the values of all secret properties left out.

    >>> without_secrets('Invalid value "lovelace"', {"sasl.password": "lovelace"})
    'Invalid value "[hidden]"'
    """
    for name, value in properties.items():
        if is_secret(name) and isinstance(value, str) and value:
            text = text.replace(value, HIDDEN)
    return text


def without_user(text: str) -> str:
    """The text of a URL without the user and password before the host.

    >>> without_user("redis://ada:lovelace@host:6379")
    'redis://[hidden]@host:6379'
    """
    return _USER.sub(f"{HIDDEN}@", text)


def from_environment(environ: Mapping[str, str], name: str) -> str | None:
    """The value of the variable ``name``, or the text of the file that ``<name>_FILE`` names; None without either.

    An empty variable counts as not set, and the end of the file's last line is no part of the value. Raises
    `ConfigError` for both variables at once, and for a file that cannot be read.

    >>> from_environment({"STREAMAPP_SASL_PASSWORD": "lovelace"}, "STREAMAPP_SASL_PASSWORD")
    'lovelace'
    """
    value, path = environ.get(name) or None, environ.get(f"{name}_FILE") or None
    if path is None:
        return value
    if value is not None:
        raise ConfigError(f"{name} and {name}_FILE are both set: say it once")
    return read_secret_file(f"{name}_FILE", path)


def read_secret_file(name: str, path: str) -> str:
    """The text of the file that the variable ``name`` has the path of."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (
            error.strerror if isinstance(error, OSError) else "not UTF-8"
        )  # the other message shows bytes of the file
        raise ConfigError(f"{name} is {path}, which cannot be read: {why}") from None
    return text.removesuffix("\n").removesuffix("\r")
