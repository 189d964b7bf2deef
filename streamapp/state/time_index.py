"""An index of rows by their time, so that an operator takes the rows that are due without a scan.

The index is part of the store's table in the backend, and changes in the same commit as the rows. A row has this entry:

    0x80 time (8) changelog key     -> no bytes

The first rows in the order of time are also in memory, with all rows that wait for the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from streamapp.state.backend import OrderedBytes
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.write_behind import Row, Write

__all__ = ["INDEX", "TimeIndex"]

INDEX, _END = b"\x80", b"\x81"
_PART = 500
"""The number of rows that are read from the backend at once. About three times as many stay in memory after a commit,
at most."""


class TimeIndex:
    """The rows of one store in the order of their times.

    ``row_key_of`` gives a row's key in memory for its changelog key. ``time_at`` is the index of the time in this key.
    """

    def __init__(self, table: OrderedBytes, row_key_of: Callable[[bytes], Any], time_at: int) -> None:
        self._table, self._row_key_of, self._time_at = table, row_key_of, time_at
        self._rows_at: dict[int, set[Any]] = {}
        """The keys of the rows of each time: all dirty rows, and all rows before `_complete_to`, but no row that `take`
        has given."""
        self._times: list[int] = []
        """A heap of the times in `_rows_at`."""
        self._complete_to = 0
        self._taken_to = -1
        self._noted = 0
        """The number of rows in memory at the last count, plus the rows of the commits since this count."""

    def noting(self, write: Write) -> Write:
        """A step of a write that also notes the row in the index."""
        note, time_at = self._note, self._time_at

        def write_and_note(row_key: Any, row: Row) -> None:
            write(row_key, row)
            if row[0] is not None:
                note(row_key[time_at], row_key)
            elif (rows := self._rows_at.get(row_key[time_at])) is not None:
                rows.discard(row_key)

        return write_and_note

    def take(self, time_from: int, time_to: int, dirty: Iterable[Any]) -> Iterator[set[Any]]:
        """Gives the keys of the rows between two times: one set of keys for each time, in the order of the times.

        Both bounds are inclusive. Some of these rows may have been deleted since the index noted them. The index gives
        each row once. So each call should begin after the ``time_to`` of the last call. A call that begins earlier
        builds the index anew, and gives rows again. The rows then come from the backend and from ``dirty``, the keys of
        all rows that wait for the commit.
        """
        if time_to < time_from:
            return
        if time_from <= self._taken_to:
            self.forget(dirty)
        self._taken_to = time_to
        self._complete_to = max(self._complete_to, time_from)
        times, rows_at = self._times, self._rows_at
        while True:
            if self._complete_to <= time_to and not (times and times[0] < self._complete_to):
                self._read_part()
            elif times and times[0] <= time_to:
                time = heappop(times)
                rows = rows_at.pop(time)
                if time >= time_from:
                    yield rows
            else:
                return

    def forget(self, dirty: Iterable[Any]) -> None:
        """Reads the index anew with the next `take`."""
        self._complete_to, self._taken_to = 0, -1
        self._rows_at.clear()
        self._times.clear()
        self._note_all(dirty)

    def written(self, count: int, dirty: Iterable[Any]) -> None:
        """Called after a commit of ``count`` rows. If memory has many rows, the rows with the latest times leave
        memory, except rows that are still dirty."""
        self._noted += count
        if self._noted <= 2 * _PART:
            return
        rows_at, kept = self._rows_at, 0
        # A session that grows leaves a time without rows for each of its old ends.
        for time in [time for time, left in rows_at.items() if not left]:
            del rows_at[time]
        times = self._times
        times[:] = sorted(rows_at)  # a sorted list is a heap
        for at, time in enumerate(times):
            rows = len(rows_at[time])
            if kept + rows > _PART:
                self._complete_to = min(self._complete_to, time)
                for later in times[at:]:
                    del rows_at[later]
                del times[at:]
                self._note_all(dirty)
                break
            kept += rows
        self._noted = kept

    def _note(self, time: int, row_key: Any) -> None:
        rows = self._rows_at.get(time)
        if rows is None:
            self._rows_at[time] = {row_key}
            heappush(self._times, time)
        else:
            rows.add(row_key)

    def _note_all(self, row_keys: Iterable[Any]) -> None:
        for row_key in row_keys:
            self._note(row_key[self._time_at], row_key)

    def _read_part(self) -> None:
        """Notes the next rows of the backend, with all rows of the last of their times."""
        count, last = 0, -1
        for entry, _ in self._table.range(INDEX + LONG.pack(self._complete_to), _END):
            time = int.from_bytes(entry[1:9], "big")
            if count >= _PART and time != last:
                self._complete_to = time
                return
            count, last = count + 1, time
            self._note(time, self._row_key_of(entry[9:]))
        self._complete_to = MAX_LONG + 1
