"""The stores as users see them: protocols with the types of key and value, each with a read-only part.

A processor gets its store by the specification, which has the types for type checkers:

    SEEN = Stores.key_value("seen", StringSerde(), LongSerde())
    seen = context.get_state_store(SEEN)  # KeyValueStore[str, int]

Timestamps are ms since the epoch. Rows of several keys come in the order of the key's bytes. Bounds are inclusive, and
None means no bound. ``reverse`` reverses the order. Iterators are valid until the next write to the store. (Kafka
Streams: ``org.apache.kafka.streams.state``.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from streamapp.records import Windowed

__all__ = [
    "KeyValueStore",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "SessionStore",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedStore",
    "WindowStore",
]

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class ReadOnlyKeyValueStore(Protocol[K, V_co]):
    """Values by key, for reading. (``ReadOnlyKeyValueStore``)

    A table of the DSL gives ``(value, timestamp)`` in place of the value.

    >>> from streamapp import Materialized, StreamsBuilder, StringSerde, TopologyTestDriver
    >>> text, builder = StringSerde(), StreamsBuilder()
    >>> gates = builder.table("gates", key_serde=text, value_serde=text, materialized=Materialized("gates"))
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.create_input_topic("gates", text, text).pipe_key_values([("UA1", "B7"), ("UA2", "C1")])
    ...     gates = driver.store("gates")
    >>> gates.get("UA1")
    ('B7', 0)
    """

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K) -> V_co | None:
        """The value of a key; None if there is none."""

    def range(
        self, low: K | None = None, high: K | None = None, reverse: bool = False
    ) -> Iterator[tuple[K, V_co]]:
        """(key, value) of the keys between two keys."""

    def all(self, reverse: bool = False) -> Iterator[tuple[K, V_co]]:
        """(key, value) of all keys."""

    def prefix_scan(self, prefix: K | bytes) -> Iterator[tuple[K, V_co]]:
        """(key, value) of the keys whose bytes begin with the bytes of the prefix."""

    def approximate_num_entries(self) -> int:
        """An estimate of the number of keys."""


class KeyValueStore(ReadOnlyKeyValueStore[K, V], Protocol[K, V]):
    """Values by key, made by `Stores.key_value` or `Stores.lru`. (``KeyValueStore``)

    ``timestamp`` is written to the changelog. The default is the timestamp of the current record.
    """

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Sets the value of a key; None deletes the key."""

    def put_if_absent(self, key: K, value: V, timestamp: int | None = None) -> V | None:
        """Sets the value of a key that has none. Returns the old value; None if there was none."""

    def delete(self, key: K, timestamp: int | None = None) -> V | None:
        """Deletes a key. Returns its last value."""


class TimestampedKeyValueStore(ReadOnlyKeyValueStore[K, tuple[V, int]], Protocol[K, V]):
    """Values with the timestamp of their last update, by key: the tables of the DSL. (``TimestampedKeyValueStore``)

    Reads give ``(value, timestamp)``. Writes take value and timestamp as two arguments.
    """

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Sets value and timestamp of a key; the value None deletes the key."""

    def put_if_absent(self, key: K, value: V, timestamp: int | None = None) -> tuple[V, int] | None:
        """Sets the row of a key that has none. Returns the old row; None if there was none."""

    def delete(self, key: K, timestamp: int | None = None) -> tuple[V, int] | None:
        """Deletes a key. Returns its last row."""


class ReadOnlyWindowStore(Protocol[K, V_co]):
    """Values by key and window start, for reading. (``ReadOnlyWindowStore``)

    A window expires when stream time has passed its start by the retention of the store.
    """

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K, start: int) -> V_co | None:
        """The value of one window; None if there is none."""

    def fetch(
        self, key: K, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[int, V_co]]:
        """(start, value) of the windows of a key that start between two times."""

    def fetch_range(
        self, low: K | None, high: K | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of the windows of several keys that start between two times."""

    def fetch_all(
        self, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of all windows that start between two times."""

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of all windows."""


class WindowStore(ReadOnlyWindowStore[K, V], Protocol[K, V]):
    """Values by key and window start, made by `Stores.window`. (``WindowStore``)"""

    def put(self, key: K, value: V | None, start: int, timestamp: int | None = None) -> None:
        """Sets the value of a window; None deletes the window. An expired start is ignored."""


class TimestampedWindowStore(Protocol[K, V]):
    """Values with timestamps, by key and window start: windowed tables of the DSL. (``TimestampedWindowStore``)

    The methods are those of `WindowStore`. `get` gives ``(value, timestamp)``. Rows of the other reads have the
    timestamp as their last element.
    """

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K, start: int) -> tuple[V, int] | None:
        """(value, timestamp) of one window; None if there is none."""

    def fetch(
        self, key: K, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[int, V, int]]:
        """(start, value, timestamp) of the windows of a key that start between two times."""

    def fetch_range(
        self, low: K | None, high: K | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V, int]]:
        """(`Windowed` key, value, timestamp) of the windows of several keys that start between two times."""

    def fetch_all(
        self, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V, int]]:
        """(`Windowed` key, value, timestamp) of all windows that start between two times."""

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V, int]]:
        """(`Windowed` key, value, timestamp) of all windows."""

    def put(self, key: K, value: V | None, start: int, timestamp: int | None = None) -> None:
        """Sets value and timestamp of a window; the value None deletes the window."""


class ReadOnlySessionStore(Protocol[K, V_co]):
    """Values by key and session, for reading; both ends of a session are inclusive. (``ReadOnlySessionStore``)"""

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K, start: int, end: int) -> V_co | None:
        """The value of one session; None if there is none."""

    def fetch(self, key: K, reverse: bool = False) -> Iterator[tuple[int, int, V_co]]:
        """(start, end, value) of all sessions of a key."""

    def fetch_range(
        self, low: K | None, high: K | None, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of all sessions of several keys."""

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, V_co]]:
        """(start, end, value) of the sessions of a key with end >= earliest_end and start <= latest_start."""

    def find_sessions_range(
        self, low: K | None, high: K | None, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of several keys' sessions with end >= earliest_end and start <= latest_start."""

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V_co]]:
        """(`Windowed` key, value) of all sessions."""


class SessionStore(ReadOnlySessionStore[K, V], Protocol[K, V]):
    """Values by key and session, made by `Stores.session`. (``SessionStore``)"""

    def put(self, key: K, start: int, end: int, value: V | None, timestamp: int | None = None) -> None:
        """Sets the value of a session; None deletes the session."""

    def remove(self, key: K, start: int, end: int, timestamp: int | None = None) -> None:
        """Deletes a session."""


class ReadOnlyVersionedStore(Protocol[K_contra, V_co]):
    """Values by key and time, for reading. (``VersionedKeyValueStore``, KIP-889, KIP-968)

    A version is ``(value, valid from, valid to)``. The latest version has None as its last element. A version expires
    when its end is older than the history retention.
    """

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K_contra, as_of: int | None = None) -> tuple[V_co, int, int | None] | None:
        """The latest version of a key, or the version at a time; None if there is none."""

    def history(
        self, key: K_contra, time_from: int | None = None, time_to: int | None = None, ascending: bool = True
    ) -> Iterator[tuple[V_co, int, int | None]]:
        """The versions of a key that are valid at any time between two times."""


class VersionedStore(ReadOnlyVersionedStore[K_contra, V], Protocol[K_contra, V]):
    """Values by key and time, made by `Stores.versioned`. (``VersionedKeyValueStore``, KIP-889)"""

    def put(self, key: K_contra, value: V | None, timestamp: int) -> Any:
        """Adds a version, or replaces the version of the same time. With None the key has no value from this time on.

        Returns None for the latest version, else the time until which the version is valid. A version older than the
        history retention is dropped and counted, and the result is the smallest 64-bit number.
        """

    def delete(self, key: K_contra, timestamp: int) -> tuple[V, int, int | None] | None:
        """Puts None. Returns the version that was valid at the time; None if there was none."""
