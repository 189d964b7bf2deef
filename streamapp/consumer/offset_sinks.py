"""Databases that save the offsets of a consumer in the same transaction as the work of its handler."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from streamapp._base.postgres import creating, open_postgres, psycopg_for
from streamapp._base.sqlite import LOCKED_SECONDS, check_sqlite, open_sqlite
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import TopicPartition

__all__ = ["OffsetSink", "PostgresOffsets", "SavedOffset", "SinkFenced", "SqliteOffsets"]

_TABLE = "streamapp_offsets"
_TURNS: dict[str, threading.Lock] = {}
"""The turns of this process on each SQLite file, by its real path."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class SinkFenced(StreamsError):
    """Another member of the group has taken the partition over, so the transaction of this member is rolled back."""


class SavedOffset(NamedTuple):
    """The row of a partition in the offsets table.

    ``position`` is the next offset to process, or -1 if none is saved yet. ``metadata`` has the id of the topic, and
    names records after the position that are done, too. ``fence`` is a number that grows with each new owner of the
    partition, so that the database can refuse earlier owners.
    """

    position: int
    metadata: str
    fence: int


class OffsetSink(ABC):
    """A table of offsets in the application's own database, with a row for each partition of each group.

    ``errors`` are all exceptions of the database's library. ``failures`` are those of them whose cause is the database
    and not a record. Each thread has its own connection, and closes it. A transaction that saves an offset locks at
    least the row of its partition until its end, so another transaction of the same partition waits.
    """

    errors: tuple[type[Exception], ...]
    failures: tuple[type[Exception], ...]
    _mark: str

    def is_mistake(self, error: BaseException) -> bool:
        """True for one of ``failures`` whose cause is a statement of the handler, for example an unknown table."""
        return False

    def __init__(self, table: str) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigError(f"the offsets table {table!r} has to be a plain name, or schema.name")
        self.table: str = table
        self._local = threading.local()

    @abstractmethod
    def _connect(self) -> Any:
        """Opens a connection that begins no transactions by itself."""

    def create(self) -> None:
        """Creates the table, unless the table is there. Raises `ConfigError` if no wait makes the database usable."""
        self._run(
            self.connection(),
            f"CREATE TABLE IF NOT EXISTS {self.table} (consumer_group TEXT NOT NULL, topic TEXT NOT NULL, "
            "kafka_partition INTEGER NOT NULL, position BIGINT NOT NULL, metadata TEXT NOT NULL, "
            "fence BIGINT NOT NULL, "
            "PRIMARY KEY (consumer_group, topic, kafka_partition))",
        )

    def claim(self, group: str, source: TopicPartition) -> SavedOffset:
        """Takes a partition over, in a transaction of its own.

        After this transaction, `save` raises `SinkFenced` for each earlier owner of the partition.
        """
        marks = ", ".join([self._mark] * 3)
        row = self.transaction(
            lambda connection: self._run(
                connection,
                f"INSERT INTO {self.table} VALUES ({marks}, -1, '', 1) "
                f"ON CONFLICT (consumer_group, topic, kafka_partition) DO UPDATE "
                f"SET fence = {self.table}.fence + 1 RETURNING position, metadata, fence",
                group,
                *source,
            ).fetchone()
        )
        return SavedOffset(*row)

    def look(self, connection: Any, group: str, source: TopicPartition) -> SavedOffset:
        """Reads the row of a partition inside the transaction of the connection."""
        mark = self._mark
        row = self._run(
            connection,
            f"SELECT position, metadata, fence FROM {self.table} "
            f"WHERE consumer_group = {mark} AND topic = {mark} AND kafka_partition = {mark}",
            group,
            *source,
        ).fetchone()
        return SavedOffset(*row) if row is not None else SavedOffset(-1, "", 0)

    def save(self, connection: Any, group: str, source: TopicPartition, saved: SavedOffset) -> None:
        """Saves a position in the open transaction of the connection. Raises `SinkFenced` if another member has claimed
        the partition since."""
        mark = self._mark
        done = self._run(
            connection,
            f"UPDATE {self.table} SET position = {mark}, metadata = {mark} "
            f"WHERE consumer_group = {mark} AND topic = {mark} AND kafka_partition = {mark} AND fence = {mark}",
            saved.position,
            saved.metadata,
            group,
            *source,
            saved.fence,
        )
        if done.rowcount != 1:
            raise SinkFenced(
                f"another member of {group} has taken {source} over, so the transaction of this member is rolled back"
            )

    def statement(self, group: str, topic: str, *, begin_anew: bool) -> str:
        """An SQL statement that a person runs in the database after the topic of a consumer was deleted and created
        anew.

        With ``begin_anew``, the consumer begins with the first record of each partition. Otherwise the positions stay.
        In both cases, the statement deletes the id of the earlier topic, so the consumer starts. The statement also
        deletes the list of done records after the position, so the consumer may process such records again.
        """
        position = "position = 0, " if begin_anew else ""
        return (
            f"UPDATE {self.table} SET {position}metadata = '' "
            f"WHERE consumer_group = '{group}' AND topic = '{topic}'"
        )

    def transaction(self, work: Callable[[Any], Any]) -> Any:
        """Calls ``work(connection)`` in a transaction, and returns its result. Rolls back if ``work`` raises."""
        connection = self.connection()
        try:
            self._run(connection, self._begin)
            result = work(connection)
            self._run(connection, "COMMIT")
            return result
        except BaseException:
            try:
                self._run(connection, "ROLLBACK")
            except self.errors:
                self.close()
            raise

    _begin: str = "BEGIN"

    def connection(self) -> Any:
        """The connection of this thread."""
        found = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
        return found

    def close(self) -> None:
        """Closes the connection of this thread. The next call of this thread opens another one."""
        connection, self._local.connection = getattr(self._local, "connection", None), None
        if connection is not None:
            connection.close()

    def _run(self, connection: Any, statement: str, *parameters: Any) -> Any:
        return connection.execute(statement, parameters)


class SqliteOffsets(OffsetSink):
    """The offsets table in an SQLite file. SQLite has one writer at a time, so handlers wait for each other.

    The threads of a process take turns. A thread that waits for more than 30 s gets ``database is locked``.

    >>> import tempfile
    >>> offsets = SqliteOffsets(tempfile.mkdtemp() + "/orders.db")
    >>> offsets.create()
    >>> offsets.claim("payments", TopicPartition("orders", 0))
    SavedOffset(position=-1, metadata='', fence=1)
    """

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    failures: tuple[type[Exception], ...] = (sqlite3.OperationalError,)
    _mark = "?"
    _begin = "BEGIN IMMEDIATE"

    def __init__(self, path: str | os.PathLike[str], *, table: str = _TABLE) -> None:
        super().__init__(table)
        self.path: str = os.fspath(path)
        self._turn = _TURNS.setdefault(os.path.realpath(path), threading.Lock())

    def create(self) -> None:
        check_sqlite(self.path)
        super().create()

    def transaction(self, work: Callable[[Any], Any]) -> Any:
        # SQLite lets waiting writers sleep and try again, so some of many threads would wait for ever.
        if not self._turn.acquire(timeout=LOCKED_SECONDS):
            raise sqlite3.OperationalError("database is locked")
        try:
            return super().transaction(work)
        finally:
            self._turn.release()

    def is_mistake(self, error: BaseException) -> bool:
        # SQLite has one exception for wrong statements, locks and disks; only the code tells them apart.
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR

    def _connect(self) -> Any:
        return open_sqlite(self.path)


class PostgresOffsets(OffsetSink):
    """The offsets table in PostgreSQL; ``conninfo`` is libpq's address, such as ``postgresql://host/orders``.

    Needs the extra ``postgres`` (psycopg 3). libpq reads the password from ``PGPASSWORD`` or ``~/.pgpass``. Raises
    `ConfigError` for an address that libpq cannot read.

    >>> PostgresOffsets("postgresql://127.0.0.1/orders").table
    'streamapp_offsets'
    """

    _mark = "%s"

    def __init__(self, conninfo: str, *, table: str = _TABLE) -> None:
        super().__init__(table)
        psycopg = psycopg_for(conninfo)
        self._conninfo = conninfo
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self.failures: tuple[type[Exception], ...] = (psycopg.OperationalError, psycopg.InterfaceError)

    def create(self) -> None:
        connection = self.connection()
        try:
            with creating(partial(self._run, connection), self.table):
                super().create()
        except self.errors:
            self.close()
            raise

    def _connect(self) -> Any:
        return open_postgres(self._conninfo, "streamapp offsets")
