"""Look-ups that mark entries of a record cache as used only when the order of uses is needed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from streamapp.state.cache_entry import CacheEntry, LeastRecentlyUsed

__all__ = ["ALL_KEYS", "NotedLookUps"]

ALL_KEYS: Any = object()
"""Stands in place of a key, for a look-up that passes the entries of all keys."""

_Note = tuple[Any, int, bool]
"""A look-up: where it starts, its number, and True if it goes backward."""


class NotedLookUps(LeastRecentlyUsed):
    """The search for the entry used longest ago, in a cache whose look-ups pass all later entries of a key.

    In Kafka Streams a look-up marks each entry that it passes as used. Here a look-up only leaves a note: the place at
    which it starts, and a number, which rises with each look-up. When the cache needs the order of uses, each entry
    gets a number from the last look-up that has passed the entry.

    A look-up passes all entries from its start on. So its note replaces earlier notes of the same key with the same or
    a later start. The remaining notes of a key have rising starts and rising numbers. The last of them whose start is
    not behind an entry belongs to the last look-up that has passed the entry. An entry that was created after a look-up
    has a greater number than the note, and keeps its own number.
    """

    __slots__ = ("_count", "_notes", "_place_among_all", "_place_in_key")

    def __init__(
        self,
        entries: dict[Any, CacheEntry],
        use: Callable[[], int],
        place_in_key: Callable[[Any], Any],
        place_among_all: Callable[[Any], Any],
    ) -> None:
        """The last two arguments give the sort key of a row: among the rows of its key, and among all rows."""
        super().__init__(entries, use)
        self._place_in_key, self._place_among_all = place_in_key, place_among_all
        self._notes: dict[Any, list[_Note]] = {}
        self._count = 0

    def note(self, key: Any, start: Any, backward: bool) -> None:
        """Notes a look-up that passes all entries of a key, or of `ALL_KEYS`, whose place is not before ``start``."""
        notes = self._notes.get(key)
        if notes is None:
            notes = self._notes[key] = []
        while notes and notes[-1][0] >= start:
            notes.pop()
            self._count -= 1
        notes.append((start, self._use(), backward))
        self._count += 1
        if self._count > len(self._entries):  # so the notes take no more memory than the entries
            self._settle()

    def _noted(self, row_key: Any) -> bool:
        return self._passed(row_key[0], self._place_in_key, row_key) or self._passed(
            ALL_KEYS, self._place_among_all, row_key
        )

    def _passed(self, key: Any, place: Callable[[Any], Any], row_key: Any) -> bool:
        notes = self._notes.get(key)
        return notes is not None and bool(notes[0][0] <= place(row_key))

    def _settle(self) -> None:
        notes = self._notes
        if not notes:
            return
        rows_of: dict[Any, list[tuple[Any, CacheEntry]]] = {key: [] for key in notes}
        for row_key, entry in self._entries.items():
            if row_key[0] in rows_of:
                rows_of[row_key[0]].append((self._place_in_key(row_key), entry))
            if ALL_KEYS in rows_of:
                rows_of[ALL_KEYS].append((self._place_among_all(row_key), entry))
        for key, rows in rows_of.items():
            rows.sort()
            _mark(rows, notes[key])
        notes.clear()
        self._count = 0


def _mark(rows: list[tuple[Any, CacheEntry]], notes: list[_Note]) -> None:
    """Gives each entry the number of the last look-up that has passed the entry. Rows are ordered by place."""
    end = len(rows)
    for start, number, backward in reversed(notes):
        begin = bisect_left(rows, (start,), 0, end)
        passed = rows[begin:end]
        if backward:
            passed.reverse()
        for use, (_, entry) in enumerate(passed, number):
            if use > entry.used:
                entry.used = use
        end = begin
