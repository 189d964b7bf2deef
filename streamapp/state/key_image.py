"""What one key has in a window or session store, in memory and in order."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from streamapp.state.write_behind import Row

__all__ = ["KeyImage"]


class KeyImage:
    """All rows of one key from a time on, so that a lookup by time needs no iterator of the backend."""

    __slots__ = ("complete_from", "rows", "slots")

    def __init__(self, complete_from: int) -> None:
        self.complete_from = complete_from
        self.slots: list[Any] = []
        self.rows: list[Row] = []

    def put(self, slot: Any, row: Row) -> None:
        slots = self.slots
        if not slots or slots[-1] < slot:
            if row[0] is not None:
                slots.append(slot)
                self.rows.append(row)
            return
        at = bisect_left(slots, slot)
        found = slots[at] == slot
        if row[0] is None:
            if found:
                del slots[at], self.rows[at]
        elif found:
            self.rows[at] = row
        else:
            slots.insert(at, slot)
            self.rows.insert(at, row)

    def trim(self, slot: Any) -> None:
        at = bisect_left(self.slots, slot)
        del self.slots[:at], self.rows[:at]
