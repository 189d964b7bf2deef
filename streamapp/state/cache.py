"""Record caches: downstream hears of the last update per key and commit only.

A cached store takes every write at once, so reads need no extra layer. What the cache holds is the
news: for each key that changed since the last flush what it was before, and the record that changed it
last. `Store.flush` tells the listener, in the order of the last updates, with the task's topic, offset,
timestamp and headers set to those of that record. The limit is Kafka Streams'
``statestore.cache.max.bytes``.
"""

from __future__ import annotations

from typing import Any

from streamapp.records import Headers, Windowed
from streamapp.state.backend import OrderedBytes
from streamapp.state.formats import MAX_LONG
from streamapp.state.key_value import KeyValueStore, TimestampedKeyValueStore
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.session import SessionStore
from streamapp.state.spec import StoreSpec
from streamapp.state.window import TimestampedWindowStore, WindowStore
from streamapp.state.write_behind import FlushListener, Row, StoreContext, WriteBehindStore

__all__ = ["RecordCache", "cached_store"]

_ENTRY_BYTES = 70  # what Kafka Streams counts for an entry beside key, value and topic, roughly


def _length(value: Any) -> int:
    return len(value) if value.__class__ is bytes or value.__class__ is str else 8


class RecordCache:
    """The bytes that the caches of one task hold together, and may hold."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0


# What a row was before, what it is; topic, offset, timestamp and headers of the record that changed it.
_News = tuple[Row, Row, str | None, int, int, Headers]


class _Cached(WriteBehindStore):
    cached = True

    def attach(self, cache: RecordCache) -> None:
        self._cache = cache
        self._news: dict[Any, _News] = {}
        self._news_bytes = 0
        self._write = super().put_row
        self._listener: FlushListener | None = None
        # Logged as it leaves the cache.
        self._log_at_flush, self._log_each = self._log_each, False

    def set_flush_listener(self, listener: FlushListener) -> None:
        self._listener = listener

    def put_row(self, row_key: Any, row: Row) -> None:
        task, news = self._task, self._news
        known = news.pop(row_key, None)
        if known is None:
            before = self.row(row_key)
            size = _ENTRY_BYTES + _length(row[0])
        else:
            before = known[0]
            size = 0 if self._shown else _length(row[0]) - _length(known[1][0])
        news[row_key] = (before, row, task.topic, task.offset, task.timestamp, task.headers)
        self._write(row_key, row)
        if size:
            self._news_bytes += size
            cache = self._cache
            cache.used += size
            if cache.used > cache.max_bytes:
                self.flush()

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
                old, new = before[0], row[0]
                if listener is not None and new is None and old is None:
                    continue
                task.topic, task.offset, task.timestamp, task.headers = topic, offset, timestamp, headers
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

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class _CachedKeyValueStore(_Cached, KeyValueStore):
    pass


class _CachedTimestampedStore(_Cached, TimestampedKeyValueStore):
    pass


class _CachedLruStore(_Cached, LruStore):
    def _evicted(self, row_key: Any, row: Row) -> None:
        # No news: downstream keeps what a bounded store forgets.
        self._dirty[row_key] = row
        if self._log_at_flush:
            self._log(row_key, row)


class _CachedTimestampedLruStore(_CachedLruStore, TimestampedLruStore):
    pass


class _CachedWindowStore(_Cached, WindowStore):
    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, _ = row_key
        return Windowed(self._keys.show(key), start, min(start + self._size, MAX_LONG))


class _CachedTimestampedWindowStore(_CachedWindowStore, TimestampedWindowStore):
    pass


class _CachedSessionStore(_Cached, SessionStore):
    def _heard_key(self, row_key: Any) -> Windowed:
        key, start, end = row_key
        return Windowed(self._keys.show(key), start, end)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return int(row_key[2])


_KINDS: dict[str, type[Any]] = {
    "key_value": _CachedKeyValueStore,
    "timestamped": _CachedTimestampedStore,
    "lru": _CachedLruStore,
    "timestamped_lru": _CachedTimestampedLruStore,
    "window": _CachedWindowStore,
    "timestamped_window": _CachedTimestampedWindowStore,
    "session": _CachedSessionStore,
}


def cached_store(
    kind: str, spec: StoreSpec, table: OrderedBytes, task: StoreContext, cache: RecordCache
) -> WriteBehindStore | None:
    """The store of a kind (see `open.py`) with a record cache; None for the kinds that have none."""
    opened = _KINDS.get(kind)
    if opened is None:
        return None
    store: _Cached = opened(spec, table, task)
    store.attach(cache)
    return store
