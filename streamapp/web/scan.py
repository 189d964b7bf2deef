"""Reads one partition of a table. Processing waits while a read runs, so each read has a limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from heapq import heappop, heappush, nlargest
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from streamapp.records import Windowed
from streamapp.serdes import BytesSerde, Serde
from streamapp.serdes.json_values import Unreadable, to_json
from streamapp.serdes.value_texts import as_document
from streamapp.state.lenient import lenient
from streamapp.state.row_shape import BY_KEY_TIMESTAMPED
from streamapp.web.table_request import Position, Query, family
from streamapp.web.view_source import TableInfo

__all__ = [
    "COUNT_LIMIT",
    "NEWEST_SCAN",
    "PAGE_BYTES",
    "Page",
    "Row",
    "count",
    "get",
    "read_page",
    "row_to_json",
]

PAGE_BYTES = 4 * 1024 * 1024
"""The most bytes of entries in an answer. An answer with a single larger entry may have more."""
_PARTITION_BYTES = 64 * 1024
"""The least number of bytes that a partition may add to a page, even if many partitions share the page."""
NEWEST_SCAN = 1_000
"""The most entries of a partition that are read to find the newest, because processing waits meanwhile."""
COUNT_LIMIT = 1_000
"""The most entries of a partition that are counted, because counting reads them all and processing waits meanwhile."""


class Row(NamedTuple):
    """One entry with typed key and value. All times are in milliseconds since 1970.

    ``window`` is (start, end) of a window or session; None in other tables. ``timestamp`` is None in stores without
    timestamps. ``valid_to`` is the time at which a newer version replaced this version of a versioned table. None for
    the latest version, and in other tables.
    """

    position: Position
    key: Any
    value: Any
    timestamp: int | None
    window: tuple[int, int] | None = None
    valid_to: int | None = None

    @property
    def time(self) -> int:
        return self.position.time if self.timestamp is None else self.timestamp


class Page(NamedTuple):
    """The rows that one partition adds to the page of an answer, in the order of `Position`, such as key and window.

    For a query with ``newest``, the newest of the first `NEWEST_SCAN` rows come first. ``scanned`` is then the number
    of rows that were read, otherwise that of ``rows``. ``more`` is True if the partition has rows for the query behind
    these rows.
    """

    rows: list[Row]
    more: bool
    scanned: int


def read_page(store: Any, table: TableInfo, partition: int, query: Query, share: int = 1) -> Page:
    """One partition's part of a page. If the page has parts of ``share`` partitions, each part may have as large a
    share of the page's bytes. The read ends when the part is full, or has ``query.limit`` rows."""
    rows = _rows(store, table, partition, query)
    most_bytes = max(_PARTITION_BYTES, PAGE_BYTES // share)
    with lenient(store):
        if query.newest:
            seen, more = _first(rows, NEWEST_SCAN, most_bytes)
            return Page(nlargest(query.limit, seen, key=lambda row: row.time), more, len(seen))
        if query.after is not None:
            after = query.after
            rows = (row for row in rows if row.position > after)
        found, more = _first(rows, query.limit, most_bytes)
    return Page(found, more, len(found))


def _first(rows: Iterable[Row], most: int, most_bytes: int) -> tuple[list[Row], bool]:
    """The first rows, and True if more rows follow. The last row may exceed ``most_bytes``."""
    found: list[Row] = []
    left = most_bytes
    for row in rows:
        if len(found) == most or left <= 0:
            return found, True
        found.append(row)
        left -= _size(row.key, left) + _size(row.value, left)
    return found, False


def _size(value: Any, most: int) -> int:
    """The approximate bytes of a key or value as JSON, counted up to ``most``.

    The limit also ends the count of a value that contains itself, and the loop takes values of any depth.
    """
    size, waiting = 0, [value]
    while waiting and size <= most:
        each = waiting.pop()
        size += 8
        if isinstance(each, str | bytes | bytearray):
            size += len(each)
        elif isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list | tuple | Set):
            waiting += each
        elif isinstance(each, msgspec.Struct):
            waiting += [getattr(each, name) for name in each.__struct_fields__]
        elif dataclasses.is_dataclass(each):
            waiting += [getattr(each, field.name, None) for field in dataclasses.fields(each)]
    return size


def get(store: Any, table: TableInfo, partition: int, query: Query) -> Row | None:
    """The row of a key in a key-value or versioned table, or None. ``as_of`` of the query chooses a version."""
    assert query.key is not None
    key, data = query.key
    try:
        with lenient(store):
            found = store.get(key) if query.as_of is None else store.get(key, query.as_of)
    except Exception as error:  # the serde may raise anything for the stored bytes
        why = Unreadable(b"", f"{type(error).__name__}: {error}")
        return Row(Position(0, data, partition=partition), key, why, None)
    if found is None:
        return None
    position = Position(0, data, partition=partition)
    if family(table) == "versioned":
        value, timestamp, valid_to = found
        return Row(position, key, value, timestamp, valid_to=valid_to)
    return Row(position, key, *_timed(table, found))


def count(store: Any) -> int:
    """The number of entries, counted up to ``COUNT_LIMIT``."""
    with lenient(store):
        return sum(1 for _ in islice(store.all(), COUNT_LIMIT))


def row_to_json(table: TableInfo, row: Row) -> dict[str, Any]:
    entry: dict[str, Any] = {"key": as_document(table.key_serde, row.key)}
    if row.window is not None:
        entry |= {"start": row.window[0], "end": row.window[1]}
    entry["value"] = to_json(row.value)
    if row.timestamp is not None:
        entry["timestamp"] = row.timestamp
    if row.valid_to is not None:
        entry["valid_to"] = row.valid_to
    return entry | {"partition": row.position.partition}


def _rows(store: Any, table: TableInfo, partition: int, query: Query) -> Iterator[Row]:
    match family(table):
        case "key_value":
            return _key_value_rows(store, table, partition, query)
        case "window":
            rows = _window_rows(store, table, partition, query)
        case "session":
            rows = _session_rows(store, table, partition, query)
        case _:
            return _version_rows(store, partition, query)
    return rows if query.newest else _in_order(rows, table.kind.segment_ms)


def _in_order(rows: Iterator[Row], disorder: int) -> Iterator[Row]:
    """Yields rows ordered by position. ``rows`` must be nearly ordered: no row's time is more than ``disorder`` ms
    before the time of an earlier row. So only rows of such a span are in memory."""
    waiting: list[tuple[Position, int, Row]] = []
    latest = 0
    for n, row in enumerate(rows):
        heappush(waiting, (row.position, n, row))
        latest = max(latest, row.position.time)
        while waiting[0][0].time < latest - disorder:
            yield heappop(waiting)[2]
    while waiting:
        yield heappop(waiting)[2]


def _key_value_rows(store: Any, table: TableInfo, partition: int, query: Query) -> Iterator[Row]:
    # The store is in the order of the key bytes. A cursor is a lower bound, and keys with a prefix are neighbours.
    serde = _key_serde(table)
    data_of = _data_of(table)
    low, high = query.prefix or query.low, query.high
    start = None if low is None else low.value
    if query.after is not None and (low is None or query.after.key > low.data):
        # An unreadable key cannot be a bound. Earlier rows are then read again, and `read_page` drops these rows.
        with suppress(Exception):
            bound = serde.deserialize(query.after.key)
            serde.serialize(bound)
            start = bound
    prefix = query.prefix.data if query.prefix is not None else b""
    for key, found in store.range(start, None if high is None else high.value):
        data = data_of(key)
        if not data.startswith(prefix):
            return
        yield Row(Position(0, data, partition=partition), key, *_timed(table, found))


def _window_rows(store: Any, table: TableInfo, partition: int, query: Query) -> Iterator[Row]:
    serialize = _data_of(table)
    begin = query.time_from if query.after is None else max(query.time_from, query.after.time)
    if query.key is not None:
        key, size = query.key.value, table.kind.window_size_ms
        fetched = store.fetch(key, begin, query.time_to)
        found = ((Windowed(key, start, start + size), *rest) for start, *rest in fetched)
    else:
        found = store.fetch_all(begin, query.time_to, reverse=query.newest)
    n, previous = 0, None
    for windowed, value, *timestamp in found:
        data, start = serialize(windowed.key), windowed.start
        # A store may keep several rows of one key and start, in the order of their arrival.
        n = n + 1 if previous == (data, start) else 0
        previous = (data, start)
        position = Position(start, data, start, partition, n)
        yield Row(position, windowed.key, value, timestamp[0] if timestamp else None, (start, windowed.end))


def _session_rows(store: Any, table: TableInfo, partition: int, query: Query) -> Iterator[Row]:
    serialize = _data_of(table)
    begin = query.time_from if query.after is None else max(query.time_from, query.after.time)
    if query.key is not None:
        key = query.key.value
        fetched = store.find_sessions(key, begin, query.time_to)
        found = ((Windowed(key, start, end), value) for start, end, value in fetched)
    else:
        found = store.find_sessions_range(None, None, begin, query.time_to, reverse=query.newest)
    for windowed, value in found:
        position = Position(windowed.end, serialize(windowed.key), windowed.start, partition)
        yield Row(position, windowed.key, value, None, (windowed.start, windowed.end))


def _version_rows(store: Any, partition: int, query: Query) -> Iterator[Row]:
    assert query.key is not None
    key, data = query.key
    for value, timestamp, valid_to in store.history(key, query.time_from, query.time_to):
        yield Row(Position(timestamp, data, partition=partition), key, value, timestamp, valid_to=valid_to)


def _timed(table: TableInfo, found: Any) -> tuple[Any, int | None]:
    """Value and timestamp of a row of a key-value store; the timestamp is None in stores without timestamps."""
    return found if table.kind.shape is BY_KEY_TIMESTAMPED else (found, None)


def _data_of(table: TableInfo) -> Callable[[Any], bytes]:
    """A function from a key to its bytes, also for keys that cannot be read."""
    serialize = _key_serde(table).serialize
    return lambda key: key.data if isinstance(key, Unreadable) else serialize(key)


def _key_serde(table: TableInfo) -> Serde[Any]:
    return table.key_serde or BytesSerde()
