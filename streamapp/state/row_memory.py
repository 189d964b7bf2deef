"""Rows that stores keep in memory for later reads, with one limit for all stores of a process.

The rows are clean, that is, they are also in the backend; only a `KeyImage` has rows that wait for the commit, too. A
store has two generations of rows, young and old. When the young rows of the process would take more than half of the
limit, all stores *turn*. A turn drops the old generation, and the young one becomes the old one. A read makes an old
row young again, so rows in use stay. Rows need not be sorted by their use, so a read takes the same time for any number
of rows.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

__all__ = ["DEFAULT_ROW_BYTES", "Generations", "RowMemory", "Shown", "kept_size"]

DEFAULT_ROW_BYTES = 64 * 1024 * 1024

T = TypeVar("T")
_OBJECT_BYTES, _BYTES_BYTES, _STR_BYTES = 40, getsizeof(b""), getsizeof("")


def kept_size(kept: Any) -> int:
    """An estimate of the bytes in memory of a key or value in its kept form (see `Codec`)."""
    kind = kept.__class__
    if kind is bytes:
        return _BYTES_BYTES + len(kept)
    if kind is str:
        return _STR_BYTES + len(kept) if kept.isascii() else getsizeof(kept)
    if kind is tuple:
        value, headers = kept
        return kept_size(value) + sum(100 + len(name) + len(data or b"") for name, data in headers)
    return _OBJECT_BYTES


class Turning(Protocol):
    def turn(self) -> None:
        """Drops all rows that were not used since the last turn."""


class RowMemory:
    """The limit in bytes that all stores of a process share, and the bytes in use.

    In the example, 100 rows of 100 bytes come in, and 10 of them stay within the limit of 1,000 bytes.

    >>> memory = RowMemory(1_000)
    >>> rows = Generations(memory)
    >>> for number in range(100):
    ...     rows.keep(number, "row", 100)
    >>> len(rows.young) + len(rows.old), memory.used_bytes
    (10, 1000)
    """

    def __init__(self, max_bytes: int = DEFAULT_ROW_BYTES) -> None:
        self._half = max_bytes // 2
        self._young = self._old = 0
        self._turns: WeakSet[Turning] = WeakSet()

    @property
    def used_bytes(self) -> int:
        """The bytes of the rows of all stores, which never exceed the limit."""
        return self._young + self._old

    def share(self, cache: Turning) -> None:
        """Adds a store's rows to this memory, so that they turn together with those of all other stores."""
        self._turns.add(cache)

    def give_back(self, size: int) -> None:
        """Frees ``size`` bytes of young rows."""
        self._young -= size

    def take(self, size: int) -> bool:
        """Reserves ``size`` bytes. If there is not enough room, all stores first turn: their old rows leave memory.

        Returns False, and reserves nothing, if ``size`` is more than half of the limit.
        """
        young = self._young + size
        if young > self._half:
            if size > self._half:
                return False
            for cache in self._turns:
                cache.turn()
            self._old, young = self._young, size
        self._young = young
        return True


class Generations(Generic[T]):
    """The rows of one store within a `RowMemory`."""

    __slots__ = ("__weakref__", "_take", "old", "young")

    def __init__(self, memory: RowMemory) -> None:
        self.young: dict[Any, T] = {}
        self.old: dict[Any, T] = {}
        self._take = memory.take
        memory.share(self)

    def keep(self, key: Any, value: T, size: int) -> None:
        """Keeps a value of ``size`` bytes. If the value is too large for the limit, the key is dropped."""
        if self._take(size):
            self.young[key] = value
        else:
            self.forget(key)

    def forget(self, key: Any) -> None:
        self.young.pop(key, None)
        self.old.pop(key, None)

    def turn(self) -> None:
        self.old, self.young = self.young, {}

    def clear(self) -> None:
        self.young.clear()
        self.old.clear()


class Shown(Generic[T]):
    """Decoded rows. A turn of `RowMemory` drops all of them, because rows can be decoded again.

    ``rows`` stays the same dictionary.
    """

    __slots__ = ("__weakref__", "rows")

    def __init__(self, memory: RowMemory) -> None:
        self.rows: dict[Any, T] = {}
        memory.share(self)

    def turn(self) -> None:
        self.rows.clear()
