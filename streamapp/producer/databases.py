"""The outbox table in PostgreSQL and in SQLite."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from streamapp._base.postgres import creating, open_postgres, psycopg_for
from streamapp._base.sqlite import check_sqlite, open_sqlite
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import Headers, OutputRecord

__all__ = ["OutboxDatabase", "OutboxRow", "PostgresOutbox", "SqliteOutbox", "UnreadableRow"]

_TABLE = "streamapp_outbox"
_MOST_BYTES = 16 << 20
"""The largest size of the rows that are read together, unless the first row alone is larger."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_headers = msgspec.msgpack.Decoder(tuple[tuple[str, bytes | None], ...]).decode


class OutboxRow(NamedTuple):
    """A row of the outbox table."""

    id: int
    record: OutputRecord


class UnreadableRow(StreamsError):
    """A row of the table is not a record. The class `Outbox` writes no such row, but another program may."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} is not a record: {reason}")
        self.row: int = row
        self.reason: str = reason


class OutboxDatabase(ABC):
    """The outbox table of one database: `PostgresOutbox` or `SqliteOutbox`.

    ``errors`` are the exception classes of the database's library. After such an error, the next call opens a new
    connection. The object has one connection, so only one thread at a time may use the object.
    """

    errors: tuple[type[Exception], ...]
    _mark: str
    """A parameter in a statement."""
    _among: str
    """The condition for rows whose ids are in a parameter that `_ids` makes."""

    def __init__(self, table: str) -> None:
        if not _NAME.fullmatch(table):
            raise ConfigError(f"the outbox table {table!r} has to be a plain name, or schema.name")
        self.table: str = table
        self._connection: Any = None
        mark = self._mark
        self.insert: str = (
            f"INSERT INTO {table} (topic, key, value, timestamp_ms, headers, partition) "
            f"VALUES ({', '.join([mark] * 6)})"
        )
        """The statement that adds a row."""

    @abstractmethod
    def _connect(self) -> Any: ...

    @property
    @abstractmethod
    def _tables(self) -> tuple[str, str]:
        """The SQL statements that create the outbox table, and the table with its identity."""

    @abstractmethod
    def is_no_table(self, error: BaseException) -> bool:
        """True for one of ``errors`` that says that a table does not exist."""

    @abstractmethod
    def check(self) -> None:
        """Raises `ConfigError` for a database that no wait makes usable. Never waits for the database."""

    @abstractmethod
    def _ids(self, ids: Collection[int]) -> Any: ...

    def delete(self, ids: Collection[int]) -> int:
        """Deletes the rows with these ids. Returns the number of rows that existed."""
        _, deleted = self._execute(f"DELETE FROM {self.table} WHERE {self._among}", (self._ids(ids),))
        return deleted

    def lead(self) -> bool:
        """Claims the table for one relay while the connection lasts. Returns False if another relay has the table."""
        return True

    def create(self) -> None:
        """Creates the table, unless the table is there."""
        for statement in self._tables:
            self._run(statement)
        self._run(  # one statement, because another process may create the tables at the same time
            f"INSERT INTO {self.table}_identity SELECT {self._mark} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.table}_identity)",
            uuid.uuid4().hex[:12],
        )

    def identity(self) -> str:
        """The random name of this outbox, which `create` writes into a second table. If the tables are created anew,
        the name is another one.

        The name is a part of the bookmarks in Kafka. So the bookmarks of earlier tables do not count for new tables,
        whose ids begin with 1 again.
        """
        return str(self._run(f"SELECT min(id) FROM {self.table}_identity")[0][0])

    def first(self, most: int) -> list[OutboxRow]:
        """The rows with the smallest ids, at most ``most``, without refused rows. Fewer if they are large.

        Raises `UnreadableRow` for the first of these rows that is not a record.
        """
        sizes = self._run(
            "SELECT id, coalesce(length(key), 0) + coalesce(length(value), 0) + length(headers) "
            f"FROM {self.table} WHERE refused IS NULL ORDER BY id LIMIT {self._mark}",
            most,
        )
        ids: list[int] = []
        room = _MOST_BYTES
        for row, size in sizes:
            room -= size
            if ids and room < 0:
                break
            ids.append(row)
        return self.rows(ids)

    def rows(self, ids: Collection[int]) -> list[OutboxRow]:
        """The rows that have one of these ids, in order. Raises `UnreadableRow` as `first` does."""
        if not ids:
            return []
        found = self._run(
            "SELECT id, topic, key, value, timestamp_ms, headers, partition "
            f"FROM {self.table} WHERE {self._among} ORDER BY id",
            self._ids(ids),
        )
        return [OutboxRow(row[0], _record(*row)) for row in found]

    def topics(self) -> list[str]:
        """The topics of all rows, refused ones included, without topics that are not text (`UnreadableRow`)."""
        found = self._run(f"SELECT DISTINCT topic FROM {self.table}")
        return [topic for (topic,) in found if isinstance(topic, str)]

    def count(self) -> int:
        """The number of rows that wait to be sent, without refused rows."""
        return int(self._run(f"SELECT count(*) FROM {self.table} WHERE refused IS NULL")[0][0])

    def refuse(self, row: int, reason: str) -> None:
        """Marks a row that brokers refuse for good: its column ``refused`` gets the reason.

        A relay sends no row that has a reason in this column.
        """
        self._run(f"UPDATE {self.table} SET refused = {self._mark} WHERE id = {self._mark}", reason, row)

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, statement: str, *parameters: Any) -> list[Any]:
        rows, _ = self._execute(statement, parameters)
        return rows

    def _execute(self, statement: str, parameters: Any) -> tuple[list[Any], int]:
        """The rows of the answer, and the number of rows that the statement has changed."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            cursor = self._connection.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description else [], int(cursor.rowcount)
        except self.errors:
            self.close()
            raise


class SqliteOutbox(OutboxDatabase):
    """The outbox table in an SQLite file.

    >>> import tempfile
    >>> database = SqliteOutbox(tempfile.mkdtemp() + "/orders.db")
    >>> database.create()
    >>> database.count()
    0
    """

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    _mark = "?"
    _among = "id IN (SELECT value FROM json_each(?))"

    def __init__(self, path: str | os.PathLike[str], *, table: str = _TABLE) -> None:
        super().__init__(table)
        self.path: str = os.fspath(path)

    def is_no_table(self, error: BaseException) -> bool:
        return "no such table" in str(error)

    def check(self) -> None:
        if not os.path.exists(self.path):  # SQLite would make an empty file
            raise ConfigError(
                f"there is no SQLite file {self.path}. Correct the path, or make the file and its table with "
                "`streamapp outbox create`"
            )
        check_sqlite(self.path)

    def _ids(self, ids: Collection[int]) -> Any:
        return json.dumps([*ids])

    def _connect(self) -> Any:
        connection = open_sqlite(self.path)
        connection.text_factory = _text
        return connection

    @property
    def _tables(self) -> tuple[str, str]:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, "
            "key BLOB, value BLOB, timestamp_ms INTEGER NOT NULL, headers BLOB NOT NULL, partition INTEGER, "
            "refused TEXT)",
            f"CREATE TABLE IF NOT EXISTS {self.table}_identity (id TEXT NOT NULL)",
        )


class PostgresOutbox(OutboxDatabase):
    """The outbox table in PostgreSQL; ``conninfo`` is libpq's address, such as ``postgresql://host/orders``.

    Needs the extra ``postgres`` (psycopg 3). libpq reads the password from ``PGPASSWORD`` or ``~/.pgpass``. Raises
    `ConfigError` for an address that libpq cannot read.

    >>> PostgresOutbox("postgresql://127.0.0.1/orders").table
    'streamapp_outbox'
    """

    _mark = "%s"
    _among = "id = ANY(%s)"

    def __init__(self, conninfo: str, *, table: str = _TABLE) -> None:
        super().__init__(table)
        self._conninfo = conninfo
        self.errors: tuple[type[Exception], ...] = (psycopg_for(conninfo).Error,)

    def is_no_table(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == "42P01"

    def check(self) -> None:
        pass  # `PostgresOutbox` has read the address, and a server may come back

    def _ids(self, ids: Collection[int]) -> Any:
        return [*ids]

    def create(self) -> None:
        with creating(self._run, self.table):  # `_execute` closes the connection after an error
            super().create()

    def lead(self) -> bool:
        return bool(self._run("SELECT pg_try_advisory_lock(%s)", zlib.crc32(self.identity().encode()))[0][0])

    def _connect(self) -> Any:
        return open_postgres(self._conninfo, "streamapp outbox")

    @property
    def _tables(self) -> tuple[str, str]:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "topic text NOT NULL, key bytea, value bytea, timestamp_ms bigint NOT NULL, headers bytea NOT NULL, "
            "partition int, refused text)",
            f"CREATE TABLE IF NOT EXISTS {self.table}_identity (id text NOT NULL)",
        )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "topic": (str,),
    "key": (bytes, memoryview, NoneType),
    "value": (bytes, memoryview, NoneType),
    "timestamp_ms": (int,),
    "headers": (bytes, memoryview),
    "partition": (int, NoneType),
}


def _text(data: bytes) -> str | bytes:
    """A text of SQLite. Bytes that are not UTF-8 stay bytes, so that only their row is refused."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _record(row: int, *columns: Any) -> OutputRecord:
    for (name, types), found in zip(_TYPES.items(), columns, strict=True):
        if not isinstance(found, types):  # SQLite takes values of any type in each column
            raise UnreadableRow(row, f"its {name} is {type(found).__name__}. Add rows with Outbox only")
    topic, key, value, timestamp, headers, partition = columns
    try:
        known: Headers = _headers(headers)
    except msgspec.MsgspecError as error:
        raise UnreadableRow(
            row, f"its headers are not those that Outbox writes ({error}). Add rows with Outbox only"
        ) from error
    return OutputRecord(
        topic,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        timestamp,
        known,
        partition,
    )


def as_ranges(ids: Iterable[int]) -> str:
    """Ids as short text, for the note of a bookmark; `of_ranges` reads it.

    >>> as_ranges([1, 2, 3, 7])
    '1-3,7'
    """
    ranges: list[list[int]] = []
    for each in sorted(ids):
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def of_ranges(text: str) -> list[int]:
    """The ids in a text that `as_ranges` has made.

    >>> of_ranges("1-3,7")
    [1, 2, 3, 7]
    """
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
