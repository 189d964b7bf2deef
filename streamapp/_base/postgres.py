"""The client of PostgreSQL (psycopg 3), for an address that libpq can read."""

from __future__ import annotations

from typing import Any

from streamapp.errors import ConfigError, MissingExtraError

__all__ = ["psycopg_for"]


def psycopg_for(conninfo: str) -> Any:
    """The module ``psycopg``. Raises `MissingExtraError` without the extra ``postgres``.

    Raises `ConfigError` if libpq cannot read the address. The error has no part of the address, which may have a
    password.

    >>> psycopg_for("postgresql://127.0.0.1/orders").__name__
    'psycopg'
    """
    try:
        import psycopg
    except ImportError as exc:
        raise MissingExtraError(
            "PostgreSQL needs the extra postgres: pip install 'streamapp[postgres]'"
        ) from exc
    try:
        psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.Error:  # libpq's message may show the text
        raise ConfigError(
            "PostgreSQL's address cannot be read: write postgresql://user@host/name. Characters such as / and blanks "
            "need percent encoding (%2F, %20)"
        ) from None
    return psycopg
