"""The one owner of two questions: which settings are secrets, and how nobody gets to read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["HIDDEN", "Properties", "is_secret", "without_secrets", "without_user"]

HIDDEN = "[hidden]"
"""Stands where a secret is left out."""

_SECRET = re.compile(
    r"passw|passphrase|secret|jaas|oauthbearer\.config|private\.key(?!\.file)|keystore\.key$|ssl\.key\.pem"
    r"|token(?!\.endpoint)|credential(?!s\.source)|user\.info",
)
_USER = re.compile(r"[^\s/@'\",;]+@")


def is_secret(name: str) -> bool:
    """Tells secrets by the name of the setting: librdkafka's, Kafka's, ours or that of an environment variable.

    Paths of key files are none; keys and passwords themselves are.

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
    """The text with users and passwords in front of hosts left out.

    >>> without_user("redis://ada:lovelace@host:6379")
    'redis://[hidden]@host:6379'
    """
    return _USER.sub(f"{HIDDEN}@", text)
