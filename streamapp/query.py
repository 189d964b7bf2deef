"""Interactive queries (KIP-796): typed questions to a state store, with a result that says why it failed.

The plain reads of a store (``store.get``, ``fetch`` ...) raise on misuse; a query gives a `QueryResult`. As in Kafka
Streams, only queries by key look into a store's record cache. Other queries do not find windows that have expired in
the store, though the cache still shows them to plain reads.

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
from typing import Any

from streamapp.errors import InvalidStoreError
from streamapp.records import Windowed
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
    """A query's answer: ``value`` (None: not found), or ``failure`` with Kafka Streams' reason (``UNKNOWN_QUERY_TYPE``:
    this kind of store cannot answer it)."""

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
    """(key, value) pairs between two keys, both inclusive; None is open. In the order of the key bytes."""

    low: Any = None
    high: Any = None
    descending: bool = False


@dataclass(frozen=True)
class TimestampedRangeQuery:
    """As `RangeQuery`, with (value, timestamp) for values."""

    low: Any = None
    high: Any = None
    descending: bool = False


@dataclass(frozen=True)
class WindowKeyQuery:
    """(window start, value, ...) of one key, for window starts from ``time_from`` to ``time_to``, both inclusive."""

    key: Any
    time_from: int
    time_to: int


@dataclass(frozen=True)
class WindowRangeQuery:
    """(`Windowed` key, value, ...) of all windows that start within a range; or, with ``key``, all sessions of a
    key."""

    time_from: int | None = None
    time_to: int | None = None
    key: Any = None


@dataclass(frozen=True)
class VersionedKeyQuery:
    """The version of a key that was valid at ``as_of`` (None: now): (value, timestamp, valid to), ms."""

    key: Any
    as_of: int | None = None


@dataclass(frozen=True)
class MultiVersionedKeyQuery:
    """All versions of a key that were valid within a time range, both ends inclusive; the newest first, unless
    ``ascending``.

    As in Kafka Streams, the query looks for superseded versions in the segments up to that of ``time_to``. A version
    lies in the segment of the time at which it was superseded, so a version that was superseded later is not found.
    """

    key: Any
    time_from: int | None = None
    time_to: int | None = None
    ascending: bool = False

    def __post_init__(self) -> None:
        if self.time_from is not None and self.time_to is not None and self.time_from > self.time_to:
            raise ValueError(f"time_from ({self.time_from}) must not be after time_to ({self.time_to})")


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
    """Asks one store. Range results are iterators, valid until the task goes on."""
    spec, shape = store.spec, store.spec.kind.shape
    answer = _ANSWERS.get((type(query), shape))
    if answer is None:
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f"store {store.name} of kind {spec.kind} cannot answer a {type(query).__name__}",
        )
    if isinstance(query, WindowRangeQuery) and (query.key is None) is (shape is SESSIONS):
        wanted = "a key, and gives its sessions" if shape is SESSIONS else "time_from and time_to, and no key"
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f"store {store.name}: a WindowRangeQuery of it takes {wanted}",
        )
    if spec.persistent and (spec.headers_format or spec.kind.keeps_headers):
        return QueryResult(
            failure="UNKNOWN_QUERY_TYPE",
            message=f'store {store.name} has the format of dsl_store_format="headers", which cannot answer queries '
            "(as in Kafka Streams 4.3); read it directly, or leave that setting out",
        )
    return QueryResult(answer(store, query))


def _value_only(row: Any) -> Any:
    return None if row is None else row[0]


def _refuse(store: Any, query: Query) -> Any:
    raise InvalidStoreError(
        f"store {store.name} is versioned and has no answer to a {type(query).__name__} (nor has it in Kafka Streams); "
        "ask a VersionedKeyQuery or a MultiVersionedKeyQuery"
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
    (KeyQuery, BY_KEY): lambda s, q: s.get(q.key),
    (KeyQuery, BY_KEY_TIMESTAMPED): lambda s, q: _value_only(s.get(q.key)),
    (TimestampedKeyQuery, BY_KEY_TIMESTAMPED): lambda s, q: s.get(q.key),
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
