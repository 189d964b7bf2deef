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

from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from streamapp.records import Headers
from streamapp.state.write_behind import FlushListener, Fold, Row, Write, WriteBehindStore

__all__ = ["CachedStore", "RecordCache", "ShowingCachedStore"]

_ENTRY_BYTES = 70  # what Kafka Streams counts for an entry beside key, value and topic, roughly


_NO_VALUE = bytes(8)  # is counted for a deletion


def _length(value: Any) -> int:
    return len(value) if value.__class__ is bytes or value.__class__ is str else 8


class RecordCache:
    """The bytes that the caches of a process hold together, and may hold."""

    __slots__ = ("max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes
        self.used: int = 0


class News:
    """A row that has changed since the last flush, with the source of the record that changed it last. The bytes of that record are
    not kept: they would keep its whole batch in memory.
    It changes in place, which costs less than to be taken out and put in anew,
    and is sorted by the number of its last change in the end."""

    __slots__ = ("before", "headers", "number", "offset", "row", "size", "timestamp", "topic", "value")

    before: Row
    row: Row
    topic: str | None
    """Of the record that changed it last, as offset, timestamp and headers are."""
    offset: int
    timestamp: int
    headers: Headers
    number: int
    value: Any
    """The row's value, if it is known without being read from its bytes; else None."""
    size: int
    """Bytes that it counts in the cache."""


def _number(entry: tuple[Any, News]) -> int:
    return entry[1].number


class CachedStore(WriteBehindStore):
    """The cache of a store; mixed in before the store's own class."""

    cached = True
    _write: Write
    """Writes a row below the cache."""

    def attach(self, cache: RecordCache) -> None:
        """Gives the store its cache, before `open_writes`."""
        self._cache = cache
        self._news: dict[Any, News] = {}
        self._news_bytes = 0
        # Its first entry is found at once, also when many before it have gone.
        self._held: OrderedDict[Any, Row] = OrderedDict()
        """What left the cache for the store and is still in the cache; least recently written first. So a store keeps its share of the limit
        while nothing is new: else others would take it, and each update would make room by itself."""
        self._held_bytes = 0
        self._numbers = count()
        self._silent = False
        """Nobody hears of updates: writes pass the cache by."""
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
        self._silent = not self._log_at_flush and not self.spec.headers_format
        self.open_writes()

    def _write_steps(self) -> list[Callable[[Write], Write]]:
        steps = super()._write_steps()
        return steps if self._silent else [*steps, self._caching]

    def _caching(self, write: Write) -> Write:
        self._write = write
        return self._put_news

    def _put_news(self, row_key: Any, row: Row) -> None:
        task, known = self._task, self._news.get(row_key)
        if known is None:
            before, size = self._stored(row_key), _ENTRY_BYTES + _length(row[0])
            held = self._held.pop(row_key, None)
            if held is not None:
                self._count(held, -1)
            self._write(row_key, row)
            self._news[row_key] = known = News()
            known.before, known.size = before, size
        else:
            size = 0 if self._shown else len(row[0] or _NO_VALUE) - len(known.row[0] or _NO_VALUE)
            known.size += size
            self._write(row_key, row)
        known.row, known.value, known.number = row, None, next(self._numbers)
        known.topic, known.offset, known.timestamp, known.headers = (
            task.topic,
            task.offset,
            task.timestamp,
            task.headers,
        )
        if size:
            self._grow(size)

    def _grow(self, size: int) -> None:
        self._news_bytes += size
        cache = self._cache
        cache.used += size
        if cache.used > cache.max_bytes:
            self._make_room()

    def _rewriting(self) -> Write:
        """Writes a row that is news already: steps that depend on the key alone have been done."""
        return self._write

    def _folder(self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]) -> Fold:
        first = super()._folder(initializer, aggregator)
        if self._silent:
            return first
        put_row = self.put_row
        task, news_of, rewrite, number = self._task, self._news.get, self._rewriting(), self._numbers.__next__
        show, keep, value_class, sound = (
            self._values.show,
            self._keep_value,
            self._value_class,
            self._sound_value,
        )
        sized, exact = not self._shown, self._values.exact

        def fold(row_key: Any, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            news = news_of(row_key)
            if news is None or news.row[0] is None:
                return first(row_key, key, value, timestamp)
            before, latest = news.row
            old = news.value
            if old is None:
                old = show(before)
            new = after = aggregator(key, value, old)
            if new is None:
                put_row(row_key, (None, timestamp))
                return None, old, timestamp if timestamp > latest else latest
            if timestamp > latest:
                latest = timestamp
            if new.__class__ is not value_class or not sound(new):
                after = keep(new)
            news.row = row = after, latest
            news.topic, news.offset, news.timestamp = task.topic, task.offset, task.timestamp
            news.headers, news.number = task.headers, number()
            news.value = new if new.__class__ is exact else None
            rewrite(row_key, row)
            if sized and len(after) != len(before):
                news.size += len(after) - len(before)
                self._grow(len(after) - len(before))
            return new, old, latest

        return fold

    def flush(self) -> None:
        if not self._news:
            return
        # The listener may put again, which is then news of its own.
        news = sorted(self._news.items(), key=_number)
        self._news.clear()
        self._cache.used -= self._news_bytes
        self._news_bytes = 0
        self._task.work_through(news, self._tell)

    def flush_key(self, key: Any) -> None:
        row_key = self._row_key(key)
        news = self._news.pop(row_key, None)
        if news is not None:
            self._news_bytes -= news.size
            self._cache.used -= news.size
            self._task.work_through([(row_key, news)], self._tell)

    def _tell(self, row_key: Any, news: News) -> None:
        """A row that has changed leaves for the store, its changelog and the listener."""
        row, show = news.row, self._values.show
        old, new = self._leaves(row_key, news.before, row), row[0]
        if new is None and old is None and self._of_table:
            return
        if self._log_at_flush:
            self._log(row_key, row)
        if self._listener is not None:
            self._listener(
                self._heard_key(row_key),
                None if new is None else show(new),
                None if old is None else show(old),
                self._heard_timestamp(row_key, row),
                news.headers,
            )

    def _leaves(self, row_key: Any, before: Row, row: Row) -> Any:
        """A row leaves the cache for the store; returns the value that the store had."""
        self._hold(row_key, row)
        return before[0]

    def _hold(self, row_key: Any, row: Row) -> None:
        """A row stays in the cache after it has left it for the store; a deletion does not."""
        earlier = self._held.pop(row_key, None)
        if earlier is not None:
            self._count(earlier, -1)
        if row[0] is not None:
            self._held[row_key] = row
            self._count(row, 1)

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
            row_key, row = held.popitem(last=False)
            size = _ENTRY_BYTES + _length(row[0])
            self._held_bytes -= size
            cache.used -= size
            self._let_go(row_key)

    def _count(self, row: Row, sign: int) -> None:
        size = sign * (_ENTRY_BYTES + _length(row[0]))
        self._held_bytes += size
        self._cache.used += size

    def close(self) -> None:
        self._cache.used -= self._news_bytes + self._held_bytes
        self._news_bytes = self._held_bytes = 0

    def _heard_key(self, row_key: Any) -> Any:
        return self._keys.show(row_key)

    def _row_key(self, key: Any) -> Any:
        """The form in memory of a key that the listener hears."""
        return key if key.__class__ is self._key_class else self._keep_key(key)

    def _heard_timestamp(self, row_key: Any, row: Row) -> int:
        return row[1]


class ShowingCachedStore(CachedStore):
    """For stores that know less than their cache: rows that stay in the cache are seen there, until it must make room.

    So it is in Kafka Streams, whose caches keep what they have handed on. For most stores that makes no difference; but windows
    expire, a bounded store forgets rows, and one without timestamps forgets those.
    """

    def let_through(self) -> None:
        """Here what the cache holds is also what reads see."""
        self._of_table = True

    def _cached_row(self, row_key: Any) -> Row | None:
        """The row that the cache holds; its value may be None: a deletion."""
        known = self._news.get(row_key)
        return known.row if known is not None else self._held.get(row_key)
