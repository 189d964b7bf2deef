"""Secret settings: which settings are secrets, how they are kept out of texts, and where they are read from."""

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
"""The text that replaces a secret in messages."""

_SECRET = re.compile(
    r"passw|passphrase|secret|jaas|oauthbearer\.config|private\.key(?!\.file)|keystore\.key$|ssl\.key\.pem"
    r"|token(?!\.endpoint)|credential(?!s\.source)|user\.info",
)
_USER = re.compile(r"[^\s/@'\",;]+@")


def is_secret(name: str) -> bool:
    """True if the setting with this name is a secret.

    ``name`` is a setting of librdkafka, Kafka or streamapp, or an environment variable. Private keys, passwords and
    tokens are secrets. The path of a key file is no secret.

    >>> [is_secret(name) for name in ("sasl.password", "STREAMAPP_SASL_PASSWORD", "ssl.key.pem", "ssl.key.location")]
    [True, True, True, False]
    """
    return _SECRET.search(name.lower().replace("_", ".")) is not None


class Properties(dict[str, Any]):
    """A dict of settings whose ``repr`` and ``str`` hide secrets, so that logs and tracebacks do not show them.

    >>> Properties({"sasl.username": "ada", "sasl.password": "lovelace"})
    {'sasl.username': 'ada', 'sasl.password': '[hidden]'}
    """

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else value for name, value in self.items()})


def without_secrets(text: str, properties: Mapping[str, Any]) -> str:
    """The text, in which `HIDDEN` replaces the value of each secret property.

    >>> without_secrets('Invalid value "lovelace"', {"sasl.password": "lovelace"})
    'Invalid value "[hidden]"'
    """
    for name, value in properties.items():
        if is_secret(name) and isinstance(value, str) and value:
            text = text.replace(value, HIDDEN)
    return text


def without_user(text: str) -> str:
    """The text of a URL, in which `HIDDEN` replaces the user and password before the host.

    >>> without_user("redis://ada:lovelace@host:6379")
    'redis://[hidden]@host:6379'
    """
    return _USER.sub(f"{HIDDEN}@", text)


def from_environment(environ: Mapping[str, str], name: str) -> str | None:
    """The value of the variable ``name``, or the text of the file whose path is in ``<name>_FILE``.

    The result is None if neither variable is set; an empty variable counts as not set. A line break at the end of the
    file is left out. Raises `ConfigError` if both variables are set, or if the file cannot be read.

    >>> from_environment({"STREAMAPP_SASL_PASSWORD": "lovelace"}, "STREAMAPP_SASL_PASSWORD")
    'lovelace'
    """
    value, path = environ.get(name) or None, environ.get(f"{name}_FILE") or None
    if path is None:
        return value
    if value is not None:
        raise ConfigError(f"{name} and {name}_FILE are both set: set only one of them")
    return read_secret_file(f"{name}_FILE", path)


def read_secret_file(name: str, path: str) -> str:
    """The text of the file ``path``. ``name`` is the variable that has the path, for the error."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (
            error.strerror if isinstance(error, OSError) else "not UTF-8"
        )  # the other message shows bytes of the file
        raise ConfigError(f"{name} is {path}, which cannot be read: {why}") from None
    return text.removesuffix("\n").removesuffix("\r")
