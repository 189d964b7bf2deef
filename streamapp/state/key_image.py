"""`KeyImage`: the rows of one key of a window or session store, in memory and ordered by time."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from streamapp.state.formats import MAX_LONG
from streamapp.state.row_memory import kept_size
from streamapp.state.write_behind import MISSING, Row

__all__ = ["IMAGE_BYTES", "KeyImage"]

IMAGE_BYTES = 500
"""The bytes of an image without rows, estimated."""
_ROW_BYTES = 250
"""The bytes of a row in an image without the row's value, estimated."""
_LIMIT = 16
"""The smallest limit of rows in an image."""


class KeyImage:
    """All rows of one key between two times, so that a read by time needs no scan of the backend.

    The times ``complete_from`` and ``complete_to`` (ms) are inclusive. If a read is narrow and many later rows follow,
    ``complete_to`` is before them. Otherwise the image has all later rows.

    ``slots`` are the sort keys of the rows: tuples that begin with the row's time.

    Most reads want only the last rows. So an image with more than ``limit`` rows is shortened: its older half goes,
    except for rows that the present read wants. A later read of the dropped rows loads the image anew, and ``limit``
    becomes at least twice the number of loaded rows. So the image is shortened again only after at least as many new
    rows.
    """

    __slots__ = ("complete_from", "complete_to", "limit", "rows", "size", "slots")

    def __init__(self, complete_from: int) -> None:
        self.complete_from: int = complete_from
        self.complete_to: int = MAX_LONG
        self.limit: int = _LIMIT
        self.slots: list[Any] = []
        self.rows: list[Row] = []
        self.size: int = IMAGE_BYTES
        """The bytes of the image, estimated."""

    def put(self, slot: Any, row: Row) -> int:
        """Adds, replaces or (value None) removes a row. Returns the bytes by which the image grows; 0 if it shrinks."""
        slots = self.slots
        if not slots or slots[-1] < slot:
            if row[0] is None:
                return 0
            slots.append(slot)
            self.rows.append(row)
            grown = _ROW_BYTES + kept_size(row[0])
            self.size += grown
            return grown
        at = bisect_left(slots, slot)
        found = slots[at] == slot
        if row[0] is None:
            if found:
                self.size -= _ROW_BYTES + kept_size(self.rows[at][0])
                del slots[at], self.rows[at]
            return 0
        if found:
            before, self.rows[at] = self.rows[at], row
            grown = kept_size(row[0]) - kept_size(before[0])
            self.size += grown
            return max(0, grown)
        slots.insert(at, slot)
        self.rows.insert(at, row)
        grown = _ROW_BYTES + kept_size(row[0])
        self.size += grown
        return grown

    def get(self, slot: Any) -> Row:
        slots = self.slots
        if not slots or slots[-1] < slot:
            return MISSING
        at = bisect_left(slots, slot)
        return self.rows[at] if slots[at] == slot else MISSING

    def loaded(self, rows: int) -> None:
        """Sets the limit after a load that has read so many rows."""
        self.limit = max(_LIMIT, 2 * rows)

    def shorten(self, time: int) -> int:
        """Drops the older half of the rows, but none of the time ``time`` (ms) or later. Returns the bytes of the
        dropped rows."""
        slots = self.slots
        cut = min(time, slots[len(slots) // 2][0])
        at = bisect_left(slots, (cut,))
        if not at:
            return 0
        self.complete_from = cut
        freed = sum(_ROW_BYTES + kept_size(row[0]) for row in self.rows[:at])
        self.size -= freed
        del slots[:at], self.rows[:at]
        return freed
