"""The client of PostgreSQL (psycopg 3): addresses that libpq can read, and connections that notice a silent server."""

from __future__ import annotations

import functools
import logging
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from streamapp.errors import ConfigError, MissingExtraError

__all__ = ["creating", "open_postgres", "psycopg_for"]

logger: logging.Logger = logging.getLogger(__name__)

_SILENT_SECONDS = 30
"""The time after which a connection counts as broken if the other machine acknowledges nothing. After the same time
without an answer to a statement, a new connection shows if the server is alive."""
_CONNECT_SECONDS = 10
_SETTINGS = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": _SILENT_SECONDS // 3,
    "keepalives_interval": _SILENT_SECONDS // 6,
    "keepalives_count": 4,
    "tcp_user_timeout": _SILENT_SECONDS * 1000,
}
"""libpq's settings, unless the address has others. Without them, a machine that vanishes is noticed after 15 minutes,
and by a reader after 2 hours."""


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


def open_postgres(conninfo: str, program: str) -> Any:
    """A connection of psycopg that begins no transactions by itself. ``program`` is its ``application_name``.

    The connection closes itself, and raises ``psycopg.OperationalError``, if the server is silent: the server answers
    neither a statement nor a new connection. If the server only answers new connections, a warning says so, and the
    statement goes on.
    """
    psycopg = psycopg_for(conninfo)
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    settings = {**_SETTINGS, **given, "application_name": program}
    connection = _lasting(psycopg).connect(autocommit=True, **settings)
    connection.settings = {**settings, "host": connection.info.host, "port": connection.info.port}
    # The server, too, has to notice that this machine is gone, because the connection keeps others waiting.
    connection.execute(
        f"SET tcp_keepalives_idle = {_SILENT_SECONDS // 3}; "
        f"SET tcp_keepalives_interval = {_SILENT_SECONDS // 6}; SET tcp_keepalives_count = 4"
    )
    return connection


@functools.cache
def _lasting(psycopg: Any) -> Any:
    """The class of the connections."""

    class LastingConnection(psycopg.Connection):  # type: ignore[misc]
        """A server whose processes stand still, or a stopped machine behind a proxy, still acknowledges packets. So
        TCP's time-outs do not notice such a server."""

        settings: dict[str, Any] | None = None
        """The settings for another connection to the same server. None while the connection opens."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            """psycopg's wait for the answer to each of its requests."""
            return super().wait(self._watched(gen), *arguments, **options)

        def _watched(self, gen: Any) -> Generator[Any, Any, Any]:
            looked, told = time.monotonic(), False
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if not ready and time.monotonic() - looked > _SILENT_SECONDS:
                        self._look(told)
                        looked, told = time.monotonic(), True
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

        def _look(self, told: bool) -> None:
            """Raises an error if the server is silent."""
            if self.settings is None:
                return
            server = f"PostgreSQL at {self.settings['host']}:{self.settings['port']}"
            try:
                psycopg.connect(**self.settings | {"connect_timeout": _CONNECT_SECONDS}).close()
            except psycopg.errors.ConnectionTimeout:
                self.close()
                raise psycopg.OperationalError(
                    f"{server} has answered neither a statement for {_SILENT_SECONDS} s nor a new connection for "
                    f"{_CONNECT_SECONDS} s"
                ) from None
            except psycopg.OperationalError:
                pass  # an answer, for example that the server has too many connections
            if not told:
                logger.warning(
                    "%s has not answered a statement for %d s, but answers new connections: the statement is slow, or "
                    "waits for a lock (pg_stat_activity, application_name '%s')",
                    server, _SILENT_SECONDS, self.settings["application_name"],
                )  # fmt: skip

    return LastingConnection


@contextmanager
def creating(run: Callable[[str, int], Any], table: str) -> Iterator[None]:
    """Lets one process at a time create a table: CREATE TABLE IF NOT EXISTS fails if two processes execute it together.

    ``run`` executes a statement with one parameter. After an error, the caller has to close the connection, which
    frees the lock.
    """
    lock = zlib.crc32(table.encode())
    run("SELECT pg_advisory_lock(%s)", lock)
    yield
    run("SELECT pg_advisory_unlock(%s)", lock)
