"""The entries of a record cache: their bytes as Kafka Streams counts them, and the search for the oldest one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamapp.records import Headers
from streamapp.state.formats import Codec
from streamapp.state.write_behind import Row

__all__ = ["ENTRY_BYTES", "CacheEntry", "LeastRecentlyUsed", "context_bytes", "size_of_kept"]

ENTRY_BYTES = 3 * 8 + 1 + 2 * 8 + 4
"""The bytes of an entry besides key, value, topic and headers: links, dirty flag, offset, timestamp and partition.
The source is Kafka Streams' ``NamedCache.LRUNode`` and ``LRUCacheEntry``."""


class CacheEntry:
    """A row in a record cache, with the source of the record that changed the row last.

    The entry keeps topic, offset, timestamp and headers of this record. Until the flush, the entry also keeps the bytes
    of the record's key and value, if the task keeps bytes for dead letters (`CurrentRecord.keeps_source_bytes`). An
    entry changes in place, which is faster than a new object for each update.
    """

    __slots__ = (
        "before",
        "headers",
        "key_bytes",
        "number",
        "offset",
        "row",
        "size",
        "source_raw_key",
        "source_raw_value",
        "timestamp",
        "topic",
        "used",
        "value",
    )

    before: Row
    """The row as of the last flush, if the row has changed after it."""
    row: Row
    topic: str | None
    """The topic of the record that changed the row last. Offset, timestamp and headers belong to the same record."""
    offset: int
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None
    source_raw_value: bytes | None
    number: int
    """The number of the last write, or of the read that made the entry. All reads and writes of a cache are numbered in
    their order."""
    used: int
    """The number of the last read of the entry; 0 if there was none."""
    value: Any
    """The decoded value of the row, if it is known; None if it has to be decoded from its bytes."""
    key_bytes: int
    """The bytes of the entry without value, topic and headers."""
    size: int
    """The bytes of the entry, as they count for the limit of the cache."""


def _last_use(item: tuple[Any, CacheEntry]) -> int:
    entry = item[1]
    return entry.used if entry.used > entry.number else entry.number


class LeastRecentlyUsed:
    """Finds the entry of a cache that was used longest ago.

    A use only writes a number into the entry, because uses are much more frequent than searches. The first search sorts
    all entries by this number, and later searches take the next entry of this order. An entry that was used after the
    sort is skipped. At the end of the order, all entries are sorted again. So usually one sort serves many
    searches.

    >>> from itertools import count
    >>> uses, entries = count(1), {}
    >>> for key in "abc":
    ...     entries[key] = entry = CacheEntry()
    ...     entry.number, entry.used = next(uses), 0
    >>> eldest = LeastRecentlyUsed(entries, uses.__next__)
    >>> entries["a"].used = next(uses)
    >>> eldest.find()[0], eldest.find()[0]
    ('b', 'c')
    """

    __slots__ = ("_eldest", "_entries", "_sorted_at", "_use")

    def __init__(self, entries: dict[Any, CacheEntry], use: Callable[[], int]) -> None:
        self._entries, self._use = entries, use
        self._eldest: list[tuple[Any, CacheEntry]] = []
        self._sorted_at = 0

    def find(self) -> tuple[Any, CacheEntry]:
        """The key and the entry that was used longest ago. The caller removes the entry. The cache must not be
        empty."""
        entries, sorted_at = self._entries, self._sorted_at
        while True:
            eldest = self._eldest
            while eldest:
                item = eldest.pop()
                row_key, entry = item
                if (
                    entry.number < sorted_at
                    and entry.used < sorted_at
                    and entries.get(row_key) is entry
                    and not self._noted(row_key)
                ):
                    return item
            self._settle()
            self._eldest = sorted(entries.items(), key=_last_use, reverse=True)
            self._sorted_at = sorted_at = self._use()

    def _noted(self, row_key: Any) -> bool:
        """True if an entry was used after the last sort, and only a note tells so."""
        return False

    def _settle(self) -> None:
        """Writes the numbers of noted uses into the entries."""


def context_bytes(topic: str | None, headers: Headers) -> int:
    """The bytes of topic and headers in an entry, as they count for the limit of the cache."""
    size = 0 if topic is None else len(topic)
    for name, value in headers:
        size += len(name) + (0 if value is None else len(value))
    return size


def size_of_kept(codec: Codec) -> tuple[Callable[[Any], int], bool]:
    """A function that gives the size in bytes of a key or value in its kept form (see `Codec`); and a flag. The flag is
    True if all keys or values of the codec have the same size."""
    kept_class = codec.kept_class
    if kept_class is None or kept_class is bytes:
        return len, False
    if kept_class is str:
        return _utf8_length, False
    size: int | None = None

    def fixed(kept: Any) -> int:
        # Integers, booleans and UUIDs have one length for each serde.
        nonlocal size
        if size is None:
            size = len(codec.to_bytes(kept))
        return size

    return fixed, True


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
