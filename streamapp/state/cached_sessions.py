"""Session stores with a record cache (`cache.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamapp.records import Windowed
from streamapp.state.cache import RecordCache
from streamapp.state.cache_entry import CacheEntry, LeastRecentlyUsed
from streamapp.state.cached_times import WALKED, CachedTimes
from streamapp.state.formats import MAX_LONG
from streamapp.state.noted_look_ups import ALL_KEYS, NotedLookUps
from streamapp.state.session_store import SessionStore
from streamapp.state.write_behind import Row

__all__ = ["CachedSessionStore"]


class CachedSessionStore(CachedTimes, SessionStore):
    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._deleted_to: dict[Any, int] = {}
        """The largest end of each key's sessions that were deleted since the last flush."""

    def _eldest_first(self) -> LeastRecentlyUsed:
        self._look_ups = NotedLookUps(self._held, self._use, self._slot, self._place)
        return self._look_ups

    def _place(self, row_key: Any) -> tuple[int, bytes, Any]:
        """The sort key of a row among the rows of all keys, in memory."""
        return row_key[2], self._keys.to_bytes(row_key[0]), row_key

    @property
    def below_cache(self) -> Any:
        return _LiveSessions(self)

    def _takes(self, row_key: Any, row: Row) -> bool:
        # A flush puts each change, so a removal may be too late on disk, too.
        return self._observe(row_key[2])

    def _note_deletion(self, row_key: Any) -> None:
        key, _, end = row_key
        if end > self._deleted_to.get(key, -1):
            self._deleted_to[key] = end

    def _flush(self, told: list[tuple[Any, CacheEntry]]) -> None:
        super()._flush(told)
        if not self._news:
            self._deleted_to.clear()

    def _visible(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        if len(self._held) > WALKED:
            return super()._visible(low, high, time_from, time_to, reverse)
        # As in Kafka Streams, a scan over several keys passes all entries behind the lowest key of the first segment.
        start = None if low is None else (0, low + bytes(self._suffix))
        self._use_each(self._order_of_cache.between(start, None, reverse))
        return self._shown_between(low, high, time_from, time_to, reverse)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, Any]]:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        min_live, since = self._min_live(), max(earliest_end, 0)
        rows = self._find(key, earliest_end, min_live)
        if earliest_end < min_live:
            rows = self._expired(key, since, MAX_LONG) + rows
        held = self._held
        if held:
            if reverse or self._exact or self._deleted_to.get(key, -1) >= since:
                self._note_look_up(key, since, reverse)
            else:  # marks for a few rows cost less than a note
                for (end, start), _ in rows:
                    entry = held.get((key, start, end))
                    if entry is not None:
                        entry.used = self._use()
        if not rows:
            return iter(())
        found = self._show_found(rows, latest_start)
        return reversed(found) if reverse else iter(found)

    def _note_look_up(self, key: Any, since: int, reverse: bool) -> None:
        """Notes which rows Kafka Streams' cache would mark as used: also deleted sessions, and later sessions.

        A backward look-up goes on to the start of its first segment. In a store in memory, the look-up passes over all
        keys. A cache with more than `WALKED` entries leaves other keys out.
        """
        if self._exact and len(self._held) <= WALKED:
            self._look_ups.note(ALL_KEYS, (since, self._keys.to_bytes(key)), reverse)
        else:
            start = since // self._segment * self._segment if reverse else since
            self._look_ups.note(key, (start,), reverse)

    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, end = row_key
        return Windowed(self._keys.show(key), start, end)

    def _row_key(self, key: Windowed) -> Any:
        return super()._row_key(key.key), key.start, key.end

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return int(row_key[2])


class _LiveSessions:
    """The reads for session queries (KIP-796), without sessions that have expired in the store."""

    def __init__(self, store: CachedSessionStore) -> None:
        self._store = store

    def fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        return self._store.find_sessions(key, max(0, self._store._min_live()), MAX_LONG)
