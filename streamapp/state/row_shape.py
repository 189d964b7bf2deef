"""The shapes of rows, which tell views, DataFrames and queries how to read a store.

A store with a shape has the reads of the shape's family, which is a protocol of `protocols.py`. A store without a shape
is internal to its operator.
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
"""Key, value, timestamp, start and end of a row; None if the shape has no such time. Times are ms since the epoch."""


@dataclass(frozen=True)
class RowShape:
    """One shape of rows.

    >>> SESSIONS.columns
    {'start': 'session_start', 'end': 'session_end'}
    """

    family: Literal["key_value", "window", "session", "versioned"]
    """The reads of the store.

    The families are `ReadOnlyKeyValueStore`, `ReadOnlyWindowStore`, `ReadOnlySessionStore`, `ReadOnlyVersionedStore`.
    """
    flat: Callable[[Any], Iterator[FlatRow]] = field(repr=False)
    """A function that gives all rows of a store."""
    timestamped: bool = False
    """True if rows have the timestamp of their last update."""
    start_end: tuple[str, str] | None = None
    """The names of a row's two times in a DataFrame."""
    identity: tuple[str, ...] = ("key", "start")
    """The parts of a `FlatRow` that together identify a row."""
    times_in_key: tuple[str, ...] = ()
    """The times that follow the key in the changelog, 8 bytes each."""

    @property
    def columns(self) -> dict[str, str]:
        """The times that rows of this shape have, by their names in `FlatRow`, with their names in a DataFrame."""
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
