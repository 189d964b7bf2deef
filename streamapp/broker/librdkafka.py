"""The optional extension `_native` (``native/*.c``), which calls the librdkafka that confluent-kafka has loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import confluent_kafka.cimpl
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamapp._base.secrets import without_secrets
from streamapp.broker.certificates import with_matching_files
from streamapp.errors import ConfigError

try:
    from streamapp.broker import _native

    _native.load(confluent_kafka.cimpl.__file__)
    COMPILED = True
except ImportError:  # the extension is not compiled, or librdkafka is linked in without exported names
    COMPILED = False

__all__ = ["COMPILED", "check_properties", "opening", "pass_on_log", "plain_settings"]

_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO)
"""The level of Python's logging for each severity of syslog."""


def plain_settings(settings: Mapping[str, Any]) -> dict[str, str] | None:
    """The settings as librdkafka's strings, without ``logger``; None if a setting is a callback in Python."""
    plain = {name: value for name, value in settings.items() if name != "logger" and value is not None}
    if not all(isinstance(value, (str, int, float)) for value in plain.values()):
        return None
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()
    }


_NO_PROPERTY = "streamapp.no.property"


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for names and values that librdkafka does not take.

    The check opens no client, because librdkafka gets each property followed by a name that does not exist. If
    librdkafka refuses the first of the two, the property is wrong. Contradictions between properties and missing files
    are only found by `opening`.
    """
    for name, value in properties.items():
        try:
            AdminClient({name: value, _NO_PROPERTY: ""})
        except KafkaException as exc:
            reason = exc.args[0].str()
        except (TypeError, ValueError) as exc:
            reason = str(exc)
        if _NO_PROPERTY not in reason:
            reason = without_secrets(reason.strip(), {name: str(value)})
            raise ConfigError(f"client_properties has a wrong {name}: {reason}")


@contextmanager
def opening(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Gives a copy of the settings, with which the body opens a client. The copy has certificate files that match.

    Raises `ConfigError`, without secrets, if librdkafka refuses the settings.
    """
    try:
        yield dict(with_matching_files(settings))
    except KafkaException as exc:
        if exc.args[0].code() != KafkaError._INVALID_ARG:
            raise
        raise ConfigError(
            "librdkafka refuses its settings (client_properties): "
            f"{without_secrets(exc.args[0].str().strip(), settings)}"
        ) from None


def pass_on_log(lines: Iterable[tuple[int, str]], logger: logging.Logger) -> None:
    """Logs the lines that a client has kept."""
    for level, line in lines:
        logger.log(_LEVELS[level] if level < len(_LEVELS) else logging.DEBUG, "%s", line)
