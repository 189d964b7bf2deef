"""The check of ``bootstrap_servers``: addresses of brokers as ``host:port``, joined by commas."""

from __future__ import annotations

import re
from typing import Any

from streamapp._base.secrets import without_user
from streamapp.errors import ConfigError

__all__ = ["check_addresses"]

_ADDRESS = re.compile(r"(?:[^\s:,/\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_SCHEME = re.compile(r"[A-Za-z_]+://(.*)")


def check_addresses(servers: Any) -> None:
    """Raises `ConfigError` if ``servers`` is no string, or has an address that is not ``host:port``.

    A port is required, because librdkafka silently takes 9092 for a missing port.

    >>> check_addresses("kafka-1:9092,[::1]:9092")
    >>> check_addresses("kafka://localhost:9092")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: bootstrap_servers has 'kafka://localhost:9092'; it takes host:port, joined by commas: write localhost:9092.
    """
    if not isinstance(servers, str):
        raise ConfigError(
            f"bootstrap_servers has to be a string of host:port, joined by commas, not {type(servers).__name__}."
        )
    if not servers.strip():
        raise ConfigError("bootstrap_servers is empty; it takes host:port, joined by commas.")
    for server in map(str.strip, servers.split(",")):
        if not _is_address(server):
            scheme = _SCHEME.fullmatch(server)
            hint = f": write {scheme[1]}" if scheme and _is_address(scheme[1]) else ""
            raise ConfigError(
                f"bootstrap_servers has {without_user(server)!r}; it takes host:port, joined by commas{hint}."
                if server
                else f"bootstrap_servers is {servers!r}, with nothing beside a comma; "
                "it takes host:port, joined by commas."
            )


def _is_address(server: str) -> bool:
    match = _ADDRESS.fullmatch(server)
    return match is not None and 0 < int(match[1]) < 65_536
