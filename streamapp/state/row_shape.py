"""The shapes of rows, from which views, DataFrames and queries know how to read a store.

A shape belongs to a family of stores, for example window stores. Each store with this shape has the reads of the
family's protocol in `protocols.py`. A store without a shape is internal to its operator, so nobody else reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "BY_KEY",
    "BY_KEY_TIMESTAMPED",
    "SESSIONS",
    "VERSIONS",
    "WINDOWS",
    "WINDOWS_TIMESTAMPED",
    "FlatRow",
    "RowShape",
]

FlatRow = tuple[Any, Any, int | None, int | None, int | None]
"""A row as (key, value, timestamp, start, end). A time that the shape does not have is None. Times are ms since the
epoch."""


@dataclass(frozen=True)
class RowShape:
    """The shape that the rows of a store have: with or without windows, sessions, versions or timestamps.

    >>> SESSIONS.columns
    {'start': 'session_start', 'end': 'session_end'}
    """

    family: Literal["key_value", "window", "session", "versioned"]
    """The protocol of the store's reads: `ReadOnlyKeyValueStore`, `ReadOnlyWindowStore`, `ReadOnlySessionStore` or
    `ReadOnlyVersionedStore`."""
    flat: Callable[[Any], Iterator[FlatRow]] = field(repr=False)
    """A function that gives all rows of a store as `FlatRow`."""
    timestamped: bool = False
    """True if rows have the timestamp of their last update."""
    start_end: tuple[str, str] | None = None
    """The column names of start and end in a DataFrame; None if rows have no such times."""
    identity: tuple[str, ...] = ("key", "start")
    """The parts of a `FlatRow` that together identify a row."""
    times_in_key: tuple[str, ...] = ()
    """The times, 8 bytes each, that follow the key in the key of a changelog record."""

    @property
    def columns(self) -> dict[str, str]:
        """The names of the columns with times in a DataFrame, by the names of these times in `FlatRow`."""
        named = {} if self.start_end is None else dict(zip(("start", "end"), self.start_end, strict=True))
        return named | {"timestamp": "timestamp"} if self.timestamped else named


def _keys(store: Any) -> Iterator[FlatRow]:
    return ((key, value, None, None, None) for key, value in store.all())


def _timestamped_keys(store: Any) -> Iterator[FlatRow]:
    return ((key, value, timestamp, None, None) for key, (value, timestamp, *_) in store.all())


def _spans(store: Any) -> Iterator[FlatRow]:
    return ((at.key, value, None, at.start, at.end) for at, value in store.all())


def _timestamped_spans(store: Any) -> Iterator[FlatRow]:
    # Rows of a store with headers end with the headers.
    return ((at.key, value, timestamp, at.start, at.end) for at, value, timestamp, *_ in store.all())


def _versions(store: Any) -> Iterator[FlatRow]:
    return ((key, value, None, valid_from, valid_to) for key, value, valid_from, valid_to in store.all())


_WINDOW = ("window_start", "window_end")

BY_KEY = RowShape("key_value", _keys)
BY_KEY_TIMESTAMPED = RowShape("key_value", _timestamped_keys, timestamped=True)
WINDOWS = RowShape("window", _spans, start_end=_WINDOW, times_in_key=("start",))
WINDOWS_TIMESTAMPED = RowShape(
    "window", _timestamped_spans, timestamped=True, start_end=_WINDOW, times_in_key=("start",)
)
SESSIONS = RowShape(
    "session",
    _spans,
    start_end=("session_start", "session_end"),
    identity=("key", "start", "end"),
    times_in_key=("end", "start"),
)
VERSIONS = RowShape("versioned", _versions, start_end=("valid_from", "valid_to"))
