"""The extension `_native` (``native/*.c``), which drives the librdkafka that confluent-kafka has loaded; optional."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka.cimpl

try:
    from streamapp.broker import _native

    _native.load(confluent_kafka.cimpl.__file__)
    COMPILED = True
except ImportError:  # not compiled, or a librdkafka that is linked in without its names
    COMPILED = False

__all__ = ["COMPILED", "pass_on_log", "plain_settings"]

_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO)
"""By syslog's numbers."""


def plain_settings(settings: Mapping[str, Any]) -> dict[str, str] | None:
    """The settings as librdkafka takes them, without ``logger``; None if one of them is a callback in Python."""
    plain = {name: value for name, value in settings.items() if name != "logger" and value is not None}
    if not all(isinstance(value, (str, int, float)) for value in plain.values()):
        return None
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()
    }


def pass_on_log(lines: Iterable[tuple[int, str]], logger: logging.Logger) -> None:
    """Logs what a client has kept."""
    for level, line in lines:
        logger.log(_LEVELS[level] if level < len(_LEVELS) else logging.DEBUG, "%s", line)
