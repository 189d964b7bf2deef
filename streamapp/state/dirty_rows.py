"""The rows of a store that wait for the commit, as a scan sees them while writes go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from streamapp.state.sorted_entries import SortedEntries

__all__ = ["DirtyOrder", "Row"]

Row = tuple[Any, int]
"""A value in its kept form (see `Codec`; None: the row is deleted), and its timestamp in ms."""

_FIRST_PIECE, _LAST_PIECE = 16, 512
"""The number of rows that a scan takes at its first step, and at most at a later one."""


class DirtyOrder:
    """The dirty rows of a store (those written since the last commit), ordered by their local keys, the keys in the
    backend.

    A scan takes rows only as its caller asks for them, but shows all rows as they were at the scan's first step. So a
    long scan has a *watch*: a dictionary with the earlier value of each row that was written since the first step.
    Without an open watch, a write takes no extra step.

    In the example, row 19 changes during a scan. This scan shows the old value, and a later scan the new one.

    >>> rows = {f"{number:02}": ("old", 0) for number in range(20)}
    >>> order = DirtyOrder(rows, str.encode)
    >>> scan = order.between(b"01", None)
    >>> next(scan)
    (b'01', ('old', 0))
    >>> order.note("19")
    >>> rows["19"] = ("new", 1)
    >>> list(scan)[-1], list(order.between(b"19", None))
    ((b'19', ('old', 0)), [(b'19', ('new', 1))])
    """

    __slots__ = ("_dirty", "_gap", "_local_key", "_order", "watches")

    def __init__(self, dirty: dict[Any, Row], local_key: Callable[[Any], bytes]) -> None:
        self._dirty, self._local_key = dirty, local_key
        self._order = SortedEntries()
        """Local key and row key of each row, as far as a scan has needed the order."""
        self.watches: list[dict[Any, Row | None]] = []
        """The open watches. While there is one, each write first calls `note`."""
        self._gap: tuple[bytes, bytes, dict[Any, Row | None]] | None = None
        """A range of local keys in which no row is left, and a watch of the rows that were written since."""

    def watch(self) -> dict[Any, Row | None]:
        """A new watch, which gets each row before its first write from now on; None for a row that was not dirty."""
        watch: dict[Any, Row | None] = {}
        self.watches.append(watch)
        return watch

    def unwatch(self, watch: dict[Any, Row | None]) -> None:
        self.watches[:] = [other for other in self.watches if other is not watch]

    def note(self, row_key: Any) -> None:
        """Notes a row in all watches. Called before the row is written."""
        row = self._dirty.get(row_key)
        for watch in self.watches:
            watch.setdefault(row_key, row)

    def between(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Row]]:
        """The local keys in [start, end) and their rows, as they are at the first step."""
        return chain.from_iterable(self._pieces(start, end, reverse))

    def _pieces(
        self, start: bytes | None, end: bytes | None, reverse: bool
    ) -> Iterator[list[tuple[bytes, Row]]]:
        """The rows of `between` in lists that grow, because many callers need only the first rows."""
        order, dirty = self._order, self._dirty
        new = len(dirty) - len(order)
        if new:
            # Rows leave `_dirty` only after `clear`, so new rows are at the end of the dict.
            local_key = self._local_key
            order.update([(local_key(row_key), row_key) for row_key in islice(reversed(dirty), new)])
        size = _FIRST_PIECE
        entries = order.between(None if start is None else (start,), None if end is None else (end,), reverse)
        piece = [(local, dirty[row_key]) for local, row_key in islice(entries, size)]
        if len(piece) < size:
            yield piece
            return
        watch = self.watch()
        try:
            while piece:
                yield piece
                size = min(2 * size, _LAST_PIECE)
                more = islice(entries, size)
                if watch:
                    piece = [(local, watch.get(row_key) or dirty[row_key]) for local, row_key in more]
                else:
                    piece = [(local, dirty[row_key]) for local, row_key in more]
        finally:
            self.unwatch(watch)

    def begin_of(self, start: bytes | None) -> bytes | None:
        """The begin of a scan from ``start``: behind the gap, if the scan starts in the gap."""
        if self._gap is None:
            return start
        first, end, written = self._gap
        for row_key in written:
            if self._dirty[row_key][0] is not None and first <= (local := self._local_key(row_key)) < end:
                end = local
        written.clear()
        self._gap = first, end, written
        return end if first <= (start or b"") < end else start

    def note_gap(self, start: bytes | None, end: bytes) -> None:
        """Notes that a reader finds no row with a local key in [start, end): all such rows are deleted."""
        self._drop_gap()
        self._gap = start or b"", end, self.watch()

    def _drop_gap(self) -> None:
        if self._gap is not None:
            self.unwatch(self._gap[2])
            self._gap = None

    def clear(self) -> None:
        """Called before rows leave the store's dirty rows. The open watches get all rows that they do not have."""
        self._drop_gap()
        for watch in self.watches:
            watch.update({**self._dirty, **watch})
        self.watches.clear()
        self._order.clear()
