"""The methods of all stores that users see, as protocols. Each kind of store has a protocol, and most kinds also have
one for reading only.

The types of key and value are type arguments. If a processor asks for a store by its specification, type checkers know
these types:

    SEEN = Stores.key_value("seen", StringSerde(), LongSerde())
    seen = context.get_state_store(SEEN)  # KeyValueStore[str, int]

All times are ms since the epoch. Rows of several keys come in the order of the keys' bytes. In window and session
stores, the order is by span of time first (`WindowStore` and `SessionStore` in `streamapp.state` have the details).
Bounds are inclusive, and None means no bound. ``reverse`` reverses the order. An iterator is valid until the next write
to its store. (Kafka Streams: ``org.apache.kafka.streams.state``.)
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
    """The reads of a store with one value for each key. (``ReadOnlyKeyValueStore``)

    A store with timestamps, such as that of a table of the DSL, gives ``(value, timestamp)`` in place of the value.

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
    """A store with one value for each key, made by `Stores.key_value` or `Stores.lru`. (``KeyValueStore``)

    The ``timestamp`` of a write goes only to the changelog. Its default is the timestamp of the current record, or in a
    punctuator the time of the call.
    """

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Sets the value of a key; None deletes the key."""

    def put_if_absent(self, key: K, value: V, timestamp: int | None = None) -> V | None:
        """Sets the value if the key has none, and returns None. Otherwise returns the present value."""

    def delete(self, key: K, timestamp: int | None = None) -> V | None:
        """Deletes a key. Returns its last value; None if there was none."""


class TimestampedKeyValueStore(ReadOnlyKeyValueStore[K, tuple[V, int]], Protocol[K, V]):
    """A store with one value for each key, and the timestamp of the value's last update. (``TimestampedKeyValueStore``)

    Tables of the DSL without windows and versions have such stores, and `Stores.timestamped_key_value` makes them.
    Reads give ``(value, timestamp)``, with the timestamp -1 if the table keeps none. Writes take value and timestamp as
    two arguments. The default timestamp is that of the current record, or in a punctuator the time of the call.
    """

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Sets value and timestamp of a key; the value None deletes the key."""

    def put_if_absent(self, key: K, value: V, timestamp: int | None = None) -> tuple[V, int] | None:
        """Sets the row if the key has none, and returns None. Otherwise returns the present row."""

    def delete(self, key: K, timestamp: int | None = None) -> tuple[V, int] | None:
        """Deletes a key. Returns its last row; None if there was none."""


class ReadOnlyWindowStore(Protocol[K, V_co]):
    """The reads of a store with a value for each key and window start. (``ReadOnlyWindowStore``)

    A window expires when its start is the store's ``retention`` behind the largest start of all puts. (In a store on
    disk for final results, 1 ms later.) Reads give no expired windows, except those that are still in a record cache.
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
    """A store with a value for each key and window start, made by `Stores.window`. (``WindowStore``)"""

    def put(self, key: K, value: V | None, start: int, timestamp: int | None = None) -> None:
        """Sets the value of a window; None deletes the window. Without a record cache, reads do not show a put into an
        expired window."""


class TimestampedWindowStore(Protocol[K, V]):
    """A store with a value and its timestamp for each key and window start. (``TimestampedWindowStore``)

    Windowed tables of the DSL, except those of sessions, have such stores, and `Stores.window` with
    ``timestamped=True`` makes them. The methods are those of `WindowStore`. `get` gives ``(value, timestamp)``, and
    rows of the other reads have the timestamp as their last element.
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
    """The reads of a store with a value for each key and session. (``ReadOnlySessionStore``)

    A session is a span of time, and contains both its start and its end.
    """

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
    """A store with a value for each key and session, made by `Stores.session`. (``SessionStore``)"""

    def put(self, key: K, start: int, end: int, value: V | None, timestamp: int | None = None) -> None:
        """Sets the value of a session; None deletes the session."""

    def remove(self, key: K, start: int, end: int, timestamp: int | None = None) -> None:
        """Deletes a session."""


class ReadOnlyVersionedStore(Protocol[K_contra, V_co]):
    """The reads of a store with all versions of each key's value. (``VersionedKeyValueStore``, KIP-889, KIP-968)

    A version is ``(value, valid from, valid to)``. The latest version has None as its last element. An earlier version
    stays at least until its ``valid to`` is further behind the largest timestamp of all puts than the history
    retention.
    """

    @property
    def name(self) -> str:
        """The name of the store."""

    def get(self, key: K_contra, as_of: int | None = None) -> tuple[V_co, int, int | None] | None:
        """The latest version of a key, or the version that was valid at the time ``as_of``; None if there is none."""

    def history(
        self, key: K_contra, time_from: int | None = None, time_to: int | None = None, ascending: bool = True
    ) -> Iterator[tuple[V_co, int, int | None]]:
        """The versions of a key that are valid at any time between two times."""


class VersionedStore(ReadOnlyVersionedStore[K_contra, V], Protocol[K_contra, V]):
    """A store with all versions of each key's value, made by `Stores.versioned`. (``VersionedKeyValueStore``,
    KIP-889)"""

    def put(self, key: K_contra, value: V | None, timestamp: int) -> Any:
        """Adds a version, or replaces the version with the same timestamp.

        With the value None the key has no value from this time on. Returns None if the version is the latest, otherwise
        the time until which it is valid. A version older than the history retention is dropped and counted, and the
        result is the smallest 64-bit number.
        """

    def delete(self, key: K_contra, timestamp: int) -> tuple[V, int, int | None] | None:
        """Puts None at this time. Returns the version that was valid at the time; None if there was none."""
