"""The transactional outbox: an application adds records to a table of its database, and a relay sends them to Kafka."""

from __future__ import annotations

import time
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from streamapp._base.names import check_topic_name
from streamapp.producer.databases import OutboxDatabase
from streamapp.records import NO_HEADERS, Headers, check_headers
from streamapp.runners.connection import use_registry_of_environment
from streamapp.serdes import BytesSerde, Serde
from streamapp.serdes.base import check_serde
from streamapp.serdes.framing import Framing

__all__ = ["Outbox"]

K = TypeVar("K")
V = TypeVar("V")


class _Connection(Protocol):
    """A connection or cursor of psycopg or sqlite3."""

    def execute(self, statement: Any, parameters: Any, /) -> Any: ...


class Outbox(Generic[K, V]):
    """Writes records into the outbox table of a database, from where an `OutboxRelay` sends them to Kafka.

    Only a record whose transaction commits is sent. If brokers refuse the record for good, its row stays in the table
    with the reason (column ``refused``), and later rows are sent.

    Rows are sent in the order of their ids. But if two transactions run at the same time, the one with the larger ids
    may commit first. To keep the order of a key, let each transaction first change the row of this key in a table of
    the application. The second transaction then waits for the first one.

    >>> import sqlite3, tempfile
    >>> from streamapp import JsonSerde, StringSerde
    >>> from streamapp.producer import SqliteOutbox
    >>> database = SqliteOutbox(tempfile.mkdtemp() + "/orders.db")
    >>> database.create()
    >>> outbox = Outbox(database, key_serde=StringSerde(), value_serde=JsonSerde())
    >>> with sqlite3.connect(database.path) as connection:
    ...     _ = connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT)")
    ...     _ = connection.execute("INSERT INTO orders VALUES ('o1', 'paid')")
    ...     outbox.add(connection, "orders", key="o1", value={"state": "paid"})
    >>> database.count()
    1
    """

    def __init__(
        self,
        database: OutboxDatabase,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
    ) -> None:
        self._database = database
        self._key_serde: Serde[Any] = key_serde or BytesSerde()
        self._value_serde: Serde[Any] = value_serde or BytesSerde()
        check_serde(self._key_serde, "key_serde")
        check_serde(self._value_serde, "value_serde")

    def add(
        self,
        connection: _Connection,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        """Adds a record in the current transaction of the connection (or cursor). The caller commits.

        ``timestamp`` is in milliseconds since 1970 (default: now). Raises `SerializationError` if a serde refuses key
        or value.
        """
        connection.execute(
            *self.statement(
                topic, key=key, value=value, timestamp=timestamp, headers=headers, partition=partition
            )
        )

    def statement(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> tuple[str, tuple[Any, ...]]:
        """The SQL statement of `add` and its parameters, for an application that executes them with another library.

        The first record of a topic may wait for the schema registry. On an event loop, call the method in a thread.
        """
        check_topic_name(topic, "the topic")
        check_headers(headers)
        use_registry_of_environment()
        of_key, of_value = self._key_serde.bind(topic, True), self._value_serde.bind(topic, False)
        raw_key = None if key is None else of_key.serialize(key)
        raw_value = None if value is None else of_value.serialize(value)
        raw_key, raw_value, headers = Framing(of_key, of_value).parted(raw_key, raw_value, headers)
        return self._database.insert, (
            topic,
            raw_key,
            raw_value,
            time.time_ns() // 1_000_000 if timestamp is None else timestamp,
            msgspec.msgpack.encode(headers),
            partition,
        )
