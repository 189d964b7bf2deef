"""Record caches: downstream hears of the last update per key and commit only.

A cached store takes every write at once, so reads need no extra layer. What the cache holds is the
news: for each key that changed since the last flush what it was before, and the record that changed it
last. `Store.flush` tells the listener, in the order of the last updates, with the task's topic, offset,
timestamp and headers set to those of that record. The limit is Kafka Streams'
``statestore.cache.max.bytes``, which all stores of a process share: a store that finds it exceeded by
its own write makes room among its own rows (Kafka Streams' ThreadCache).

Which kinds of stores have a cache: `cached_tables.py`, `cached_windows.py`.
"""

from __future__ import annotations

from typing import Any

from streamapp.records import Headers
from streamapp.state.write_behind import FlushListener, Row, WriteBehindStore

__all__ = ["CachedStore", "RecordCache", "ShowingCachedStore"]

_ENTRY_BYTES = 70  # what Kafka Streams counts for an entry beside key, value and topic, roughly


_NO_VALUE = bytes(8)  # is counted for a deletion


def _length(value: Any) -> int:
    return len(value) if value.__class__ is bytes or value.__class__ is str else 8


class RecordCache:
    """The bytes that the caches of a process hold together, and may hold."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0


# What a row was before, what it is; topic, offset, timestamp and headers of the record that changed it.
_News = tuple[Row, Row, str | None, int, int, Headers]


class CachedStore(WriteBehindStore):
    """The cache of a store; mixed in before the store's own class."""

    cached = True

    def attach(self, cache: RecordCache) -> None:
        self._cache = cache
        self._news: dict[Any, _News] = {}
        self._news_bytes = 0
        self._write = super().put_row
        self._stored = super().row
        self._listener: FlushListener | None = None
        self._of_table = False
        """A table's: what was not there and is not there now does not leave the cache, whether or not somebody listens."""
        # Logged as it leaves the cache.
        self._log_at_flush, self._log_each = self._log_each, False

    def set_flush_listener(self, listener: FlushListener) -> None:
        self._listener, self._of_table = listener, True

    def let_through(self) -> None:
        """Nobody hears of updates: writes need no news, unless each of them is logged as it leaves the cache."""
        self._of_table = True
        if not self._log_at_flush:
            self.put_row = self._write  # type: ignore[method-assign]

    def put_row(self, row_key: Any, row: Row) -> None:
        task, news = self._task, self._news
        known = news.pop(row_key, None)
        if known is None:
            before = self._stored(row_key)
            size = _ENTRY_BYTES + _length(row[0])
        else:
            before = known[0]
            size = 0 if self._shown else len(row[0] or _NO_VALUE) - len(known[1][0] or _NO_VALUE)
        news[row_key] = (before, row, task.topic, task.offset, task.timestamp, task.headers)
        self._write(row_key, row)
        if size:
            self._news_bytes += size
            cache = self._cache
            cache.used += size
            if cache.used > cache.max_bytes:
                self._make_room()

    def flush(self) -> None:
        if not self._news:
            return
        task, listener, show = self._task, self._listener, self._values.show
        # The listener may put again, which is then news of its own.
        news, self._news = self._news, {}
        self._cache.used -= self._news_bytes
        self._news_bytes = 0
        current = task.topic, task.offset, task.timestamp, task.headers
        try:
            for row_key, (before, row, topic, offset, timestamp, headers) in news.items():
                task.topic, task.offset, task.timestamp, task.headers = topic, offset, timestamp, headers
                old, new = self._leaves(row_key, before, row), row[0]
                if new is None and old is None and self._of_table:
                    continue
                if self._log_at_flush:
                    self._log(row_key, row)
                if listener is not None:
                    listener(
                        self._heard_key(row_key),
                        None if new is None else show(new),
                        None if old is None else show(old),
                        self._heard_timestamp(row_key, row),
                        headers,
                    )
        finally:
            task.topic, task.offset, task.timestamp, task.headers = current

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        """A row leaves the cache for the store; returns the value that the store had."""
        return before[0]

    def _make_room(self) -> None:
        self.flush()

    def close(self) -> None:
        self._cache.used -= self._news_bytes
        self._news_bytes = 0

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class ShowingCachedStore(CachedStore):
    """For stores that know less than their cache: rows stay in the cache, and are seen, until it must make room.

    So does Kafka Streams, whose caches keep what they have handed on. For most stores that makes no difference; but windows
    expire, a bounded store forgets rows, and one without timestamps forgets those.
    """

    def attach(self, cache: RecordCache) -> None:
        super().attach(cache)
        self._held: dict[Any, Row] = {}
        """What left the cache for the store and is still in the cache; least recently written first."""
        self._held_bytes = 0

    def let_through(self) -> None:
        """Here what the cache holds is also what reads see."""
        self._of_table = True

    def _cached_row(self, row_key: Any) -> Row | None:
        """The row that the cache holds; its value may be None: a deletion."""
        known = self._news.get(row_key)
        return known[1] if known is not None else self._held.get(row_key)

    def _hold(self, row_key: Any, row: Row) -> None:
        """A row stays in the cache after it has left it for the store; a deletion does not."""
        earlier = self._held.pop(row_key, None)
        if earlier is not None:
            self._count(earlier, -1)
        if row[0] is not None:
            self._held[row_key] = row
            self._count(row, 1)

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        self._hold(row_key, row)
        return before[0]

    def _let_go(self, row_key: Any) -> None:
        """A row goes to make room."""

    def _make_room(self) -> None:
        self._evict()
        if self._cache.used > self._cache.max_bytes:
            self.flush()
            self._evict()

    def _evict(self) -> None:
        cache, held = self._cache, self._held
        while held and cache.used > cache.max_bytes:
            row_key = next(iter(held))
            self._count(held.pop(row_key), -1)
            self._let_go(row_key)

    def _count(self, row: Row, sign: int) -> None:
        size = sign * (_ENTRY_BYTES + _length(row[0]))
        self._held_bytes += size
        self._cache.used += size

    def close(self) -> None:
        super().close()
        self._cache.used -= self._held_bytes
        self._held_bytes = 0
