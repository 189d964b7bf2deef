"""Interactive queries (KIP-796): a query is an object, such as `KeyQuery`, that a state store answers.

The plain reads of a store (``store.get``, ``fetch`` ...) raise an exception if the store cannot answer. A query gives a
`QueryResult`, which says why the query failed. Two failures are exceptions all the same. A `KeyQuery` or `RangeQuery`
of a versioned store raises `InvalidStoreError`, as in Kafka Streams. A key that the store's serde cannot serialize
raises `SerializationError`.

Queries also see updates that wait in a record cache, except in two cases. `WindowKeyQuery` and `WindowRangeQuery` leave
out expired windows and sessions, which the record cache may still have. A range query of an ``lru`` store leaves out
keys that are only in the record cache. Plain reads find these rows.

>>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver, Materialized
>>> text = StringSerde()
>>> builder = StreamsBuilder()
>>> _ = builder.table("names", key_serde=text, value_serde=text, materialized=Materialized("names"))
>>> with TopologyTestDriver(builder.build()) as driver:
...     driver.create_input_topic("names", text, text).pipe_input("k", "v", timestamp=3)
...     driver.query("names", TimestampedKeyQuery("k")).value
('v', 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

from streamapp.errors import ConfigError, InvalidStoreError
from streamapp.records import Windowed
from streamapp.state.formats import MAX_LONG
from streamapp.state.kinds import Session
from streamapp.state.row_shape import (
    BY_KEY,
    BY_KEY_TIMESTAMPED,
    SESSIONS,
    VERSIONS,
    WINDOWS,
    WINDOWS_TIMESTAMPED,
    RowShape,
)

__all__ = [
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "Query",
    "QueryResult",
    "RangeQuery",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "execute",
]


@dataclass(frozen=True)
class QueryResult:
    """The answer to a query: a ``value``, or a ``failure`` with a ``message``.

    The value of a query for one row or version is None if the store has none. The value of a query for several rows or
    versions is an iterator. ``failure`` is the name of Kafka Streams' ``FailureReason``. ``UNKNOWN_QUERY_TYPE`` means
    that this kind of store cannot answer the query.
    """

    value: Any = None
    failure: str | None = None
    message: str = ""


@dataclass(frozen=True)
class KeyQuery:
    """The value of a key."""

    key: Any


@dataclass(frozen=True)
class TimestampedKeyQuery:
    """The value of a key with the timestamp of its last update: (value, ms)."""

    key: Any


@dataclass(frozen=True)
class RangeQuery:
    """The (key, value) pairs between two keys, both inclusive, in the order of the key bytes. None means no bound."""

    low: Any = None
    high: Any = None
    descending: bool = False


@dataclass(frozen=True)
class TimestampedRangeQuery:
    """As `RangeQuery`, but the pairs are (key, (value, timestamp in ms))."""

    low: Any = None
    high: Any = None
    descending: bool = False


@dataclass(frozen=True)
class WindowKeyQuery:
    """The windows of one key that start from ``time_from`` to ``time_to`` (ms, inclusive), as (start, value).

    Rows of a windowed table have the timestamp as a third element.
    """

    key: Any
    time_from: int
    time_to: int

    def __post_init__(self) -> None:
        _check_times(self, "time_from", "time_to")


@dataclass(frozen=True)
class WindowRangeQuery:
    """All windows that start from ``time_from`` to ``time_to`` (ms, inclusive); or all sessions of ``key``.

    For a window store, give the two times and no key; for a session store, the key and no times. Other arguments fail
    with ``UNKNOWN_QUERY_TYPE``. Rows are (`Windowed` key, value); rows of a windowed table have the timestamp as a
    third element.
    """

    time_from: int | None = None
    time_to: int | None = None
    key: Any = None

    def __post_init__(self) -> None:
        _check_times(self, "time_from", "time_to")


@dataclass(frozen=True)
class VersionedKeyQuery:
    """The version of a key that was valid at the time ``as_of`` (None: the latest), as (value, timestamp, valid to).

    Times are ms. The latest version has None as the time until which it is valid.
    """

    key: Any
    as_of: int | None = None

    def __post_init__(self) -> None:
        _check_times(self, "as_of")


@dataclass(frozen=True)
class MultiVersionedKeyQuery:
    """The versions of a key that were valid at any time from ``time_from`` to ``time_to`` (ms, inclusive; None: no
    limit), except some old versions.

    The newest version comes first; with ``ascending``, the oldest. The store keeps the latest version apart, and always
    finds it. The earlier versions are in segments, which are spans of time. An earlier version is in the segment of the
    time at which the next version replaced it. A query reads no segment after the segment of ``time_to``. So, as in
    Kafka Streams, the query misses versions that were replaced in a later segment. If ``time_to`` is further back
    than the history retention, only the latest version can be found.
    """

    key: Any
    time_from: int | None = None
    time_to: int | None = None
    ascending: bool = False

    def __post_init__(self) -> None:
        _check_times(self, "time_from", "time_to")
        if self.time_from is not None and self.time_to is not None and self.time_from > self.time_to:
            raise ConfigError(f"time_from ({self.time_from}) must not be after time_to ({self.time_to})")


def _check_times(query: Any, *names: str) -> None:
    """Raises `ConfigError` for a time that is not a number of ms, before a store gets the query."""
    for name in names:
        time = getattr(query, name)
        if time is None:
            continue
        if not isinstance(time, SupportsIndex) or not -MAX_LONG - 1 <= index(time) <= MAX_LONG:
            raise ConfigError(
                f"{name} of {type(query).__name__} has to be a whole number of ms since 1970, not {time!r}"
            )


Query = (
    KeyQuery
    | TimestampedKeyQuery
    | RangeQuery
    | TimestampedRangeQuery
    | WindowKeyQuery
    | WindowRangeQuery
    | VersionedKeyQuery
    | MultiVersionedKeyQuery
)


def execute(store: Any, query: Query) -> QueryResult:
    """The answer of one store to a query. An iterator in the answer is valid until the task processes its next
    record."""
    spec, shape = store.spec, store.spec.kind.shape
    answer = _ANSWERS.get((type(query), shape))
    if answer is None:
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f"store {store.name} of kind {spec.kind} cannot answer a {type(query).__name__}",
        )
    wanted = _lacking(query, shape)
    if wanted is not None:
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f"store {store.name}: its {type(query).__name__} takes {wanted}",
        )
    has_headers = spec.headers_format or spec.kind.keeps_headers
    # Kafka Streams 4.3 answers about final sessions also with headers.
    final_sessions = isinstance(spec.kind, Session) and spec.kind.time_ordered
    if spec.persistent and has_headers and not final_sessions:
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f'store {store.name} has the format of dsl_store_format="headers", which cannot answer queries '
            "(as in Kafka Streams 4.3); read it directly, or leave that setting out",
        )
    return QueryResult(answer(store, query))


def _lacking(query: Query, shape: RowShape | None) -> str | None:
    """None if the query has the arguments that its kind of store needs; otherwise a text that names these arguments."""
    if not isinstance(query, WindowKeyQuery | WindowRangeQuery):
        return None
    times = (query.time_from, query.time_to)
    if shape is SESSIONS:
        fits = query.key is not None and times == (None, None)
        return None if fits else "a key and no times, and gives the sessions of the key"
    if None in times:
        return "both time_from and time_to"
    return "no key" if isinstance(query, WindowRangeQuery) and query.key is not None else None


def _row(store: Any, query: KeyQuery | TimestampedKeyQuery) -> Any:
    return store.ask(lambda asked: asked.get(query.key))


def _value_only(row: Any) -> Any:
    return None if row is None else row[0]


def _refuse(store: Any, query: Query) -> Any:
    raise InvalidStoreError(
        f"store {store.name} is versioned, and cannot answer a {type(query).__name__} (as in Kafka Streams); use a "
        "VersionedKeyQuery or a MultiVersionedKeyQuery"
    )


def _values_only(rows: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    return ((key, row[0]) for key, row in rows)


def _sessions_of(store: Any, query: WindowRangeQuery) -> Iterator[tuple[Windowed, Any]]:
    found = store.below_cache.fetch(query.key)
    return ((Windowed(query.key, start, end), value) for start, end, value in found)


def _version(store: Any, query: VersionedKeyQuery) -> Any:
    return store.get(query.key) if query.as_of is None else store.get(query.key, query.as_of)


def _versions(store: Any, query: MultiVersionedKeyQuery) -> Any:
    found = store.history(query.key, query.time_from, query.time_to, query.ascending)
    if query.time_to is None:
        return found
    segment_ms = store.segment_ms
    last = query.time_to // segment_ms
    return (version for version in found if version[2] is None or version[2] // segment_ms <= last)


_WINDOWS = (WINDOWS, WINDOWS_TIMESTAMPED)

_ANSWERS: dict[tuple[type, RowShape | None], Callable[[Any, Any], Any]] = {
    (KeyQuery, BY_KEY): _row,
    (KeyQuery, BY_KEY_TIMESTAMPED): lambda s, q: _value_only(_row(s, q)),
    (TimestampedKeyQuery, BY_KEY_TIMESTAMPED): _row,
    (RangeQuery, BY_KEY): lambda s, q: s.below_cache.range(q.low, q.high, q.descending),
    (RangeQuery, BY_KEY_TIMESTAMPED): lambda s, q: _values_only(
        s.below_cache.range(q.low, q.high, q.descending)
    ),
    (TimestampedRangeQuery, BY_KEY_TIMESTAMPED): lambda s, q: s.below_cache.range(
        q.low, q.high, q.descending
    ),
    **{
        (WindowKeyQuery, shape): lambda s, q: s.below_cache.fetch(q.key, q.time_from, q.time_to)
        for shape in _WINDOWS
    },
    **{
        (WindowRangeQuery, shape): lambda s, q: s.below_cache.fetch_all(q.time_from, q.time_to)
        for shape in _WINDOWS
    },
    (WindowRangeQuery, SESSIONS): _sessions_of,
    **{(query, VERSIONS): _refuse for query in (KeyQuery, RangeQuery)},
    (VersionedKeyQuery, VERSIONS): _version,
    (MultiVersionedKeyQuery, VERSIONS): _versions,
}
