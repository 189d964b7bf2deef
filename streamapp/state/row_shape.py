"""The shapes that the rows of a store can have: what views, DataFrames and queries go by.

A store with a shape can be read by everybody: it has the reads of the shape's family, a protocol of `protocols.py`.
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
"""Key, value, timestamp, start and end of a row; None where a shape has no such time. Times are ms since the epoch."""


@dataclass(frozen=True)
class RowShape:
    """One shape of rows.

    >>> SESSIONS.columns
    {'start': 'session_start', 'end': 'session_end'}
    """

    family: Literal["key_value", "window", "session", "versioned"]
    """The reads: of `ReadOnlyKeyValueStore`, `ReadOnlyWindowStore`, `ReadOnlySessionStore`, `ReadOnlyVersionedStore`."""
    flat: Callable[[Any], Iterator[FlatRow]] = field(repr=False)
    """All rows of a store."""
    timestamped: bool = False
    """Rows have the timestamp of their last update."""
    start_end: tuple[str, str] | None = None
    """The names of a row's two times, as users see them in a DataFrame."""
    identity: tuple[str, ...] = ("key", "start")
    """The parts of a `FlatRow` that no two rows have in common."""
    times_in_key: tuple[str, ...] = ()
    """The times that follow the key in the changelog, 8 bytes each."""

    @property
    def columns(self) -> dict[str, str]:
        """The times of a `FlatRow` that rows of this shape have, each with its name in a DataFrame."""
        named = {} if self.start_end is None else dict(zip(("start", "end"), self.start_end, strict=True))
        return named | {"timestamp": "timestamp"} if self.timestamped else named


def _keys(store: Any) -> Iterator[FlatRow]:
    return ((key, value, None, None, None) for key, value in store.all())


def _timestamped_keys(store: Any) -> Iterator[FlatRow]:
    return ((key, value, timestamp, None, None) for key, (value, timestamp, *_) in store.all())


def _spans(store: Any) -> Iterator[FlatRow]:
    return ((at.key, value, None, at.start, at.end) for at, value in store.all())


def _timestamped_spans(store: Any) -> Iterator[FlatRow]:
    # Rows of a store that keeps headers end with them.
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
