"""SQLite files: connections, and paths that can be no database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from streamapp.errors import ConfigError

__all__ = ["LOCKED_SECONDS", "check_sqlite", "open_sqlite"]

LOCKED_SECONDS = 30.0
"""The longest wait for another writer, because SQLite has one writer at a time."""
_NEVER = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY)


def open_sqlite(path: str, *, timeout: float = LOCKED_SECONDS) -> Any:
    """Opens a connection that begins no transactions by itself. Other threads may use the connection, too."""
    return sqlite3.connect(path, isolation_level=None, timeout=timeout, check_same_thread=False)


def check_sqlite(path: str) -> None:
    """Raises `ConfigError` if SQLite cannot write a database at this path. Other errors, such as a lock, may pass.

    >>> check_sqlite("/no/such/folder/orders.db")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    streamapp.errors.ConfigError: SQLite cannot use /no/such/folder/orders.db: unable to open database file. Give ...
    """
    try:
        with closing(open_sqlite(path, timeout=0)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF in _NEVER:
            raise ConfigError(
                f"SQLite cannot use {path}: {exc}. Give the path of a database file that this process may write, in a "
                "folder that exists"
            ) from exc
