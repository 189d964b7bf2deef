"""Session stores: rows by key, start and end of the session. A row expires by the end of its session."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from streamapp.records import Windowed, check_timestamp
from streamapp.state.formats import LONG, MAX_LONG
from streamapp.state.time_buckets import TimeBucketedStore
from streamapp.state.write_behind import MISSING, Row

__all__ = ["SessionStore"]

_END_START = struct.Struct(">qq")


class SessionStore(TimeBucketedStore):
    """A store of one value for each key and session.

    - ``get(key, start, end)``: the value, or None.
    - ``put(key, start, end, value, timestamp=None)``: sets the value; None deletes the session. The timestamp goes to
      the changelog.
    - ``remove(key, start, end, timestamp=None)``: deletes the session.
    - ``find_sessions(key, earliest_end, latest_start, reverse=False)``: (start, end, value) of one key's sessions with
      end >= earliest_end and start <= latest_start.
    - ``find_sessions_range(low, high, earliest_end, latest_start, reverse=False)``: (Windowed, value) of the same
      sessions of the keys from low to high. None means no bound.
    - ``fetch(key, reverse=False)``: (start, end, value) of all sessions of a key.
    - ``fetch_range(low, high, reverse=False)``, ``all(reverse=False)``: (Windowed, value) of all sessions of several
      keys.
    - ``find_closed(end_from, end_to)``: (Windowed, value) of all sessions with end_from <= end <= end_to.

    Times are ms, and all bounds are inclusive. The sessions of one key come by end, then start (in memory: start
    descending). The sessions of several keys come by segment, then key bytes, if the store is persistent. A store in
    memory gives the sessions of several keys by end, then key bytes.
    """

    _suffix = _END_START.size
    _time_at = 2

    def _row_bytes(self, row_key: Any) -> bytes:
        key, start, end = row_key
        return self._keys.to_bytes(key) + _END_START.pack(end, start)

    def _local_key(self, row_key: Any, row_bytes: bytes) -> bytes:
        return LONG.pack(row_key[2] // self._bucket) + row_bytes

    def _encoded(self, row_keys: Collection[Any]) -> tuple[list[bytes], Sequence[bytes | None]]:
        to_bytes, bucket = self._keys.to_bytes, self._bucket
        live = self._first_live_bucket()  # expired rows of a live bucket are kept for `find_closed`
        pack_suffix, pack_bucket = _END_START.pack, LONG.pack
        keys = [to_bytes(key) + pack_suffix(end, start) for key, start, end in row_keys]
        buckets = [end // bucket for _, _, end in row_keys]
        return keys, [
            None if number < live else pack_bucket(number) + key
            for number, key in zip(buckets, keys, strict=True)
        ]

    def _time_of(self, row_bytes: bytes) -> int:
        return int.from_bytes(row_bytes[-16:-8], "big")

    def get(self, key: Any, start: int, end: int) -> Any:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = self.row((key, start, end))[0]
        return None if value is None else self._values.show(value)

    def row(self, row_key: Any) -> Row:
        if row_key[2] < self._min_live():
            return MISSING
        return self._dirty.get(row_key) or self._read(row_key)

    def put(self, key: Any, start: int, end: int, value: Any, timestamp: int | None = None) -> None:
        self._put(key, start, end, value, timestamp)
        if value is None and not (self._exact or self.cached):
            self._observe(end)  # only a removal is never too late

    def _put(self, key: Any, start: int, end: int, value: Any, timestamp: int | None) -> None:
        if not (
            start.__class__ is end.__class__ is int
            and start <= MAX_LONG >= end
            and (timestamp is None or (timestamp.__class__ is int and timestamp <= MAX_LONG))
        ):
            self._check_times(start, end, timestamp)
        if value is not None and end < start:
            raise ValueError(f"store {self.name}: a session cannot end at {end}, before its start at {start}")
        if key.__class__ is not self._key_class or not self._sound_key(key):
            key = self._keep_key(key)
        if value is not None and (value.__class__ is not self._value_class or not self._sound_value(value)):
            value = self._keep_value(value)
        self.put_row((key, start, end), (value, self._task.timestamp if timestamp is None else timestamp))

    def remove(self, key: Any, start: int, end: int, timestamp: int | None = None) -> None:
        if self._exact and not self.cached:
            self._check_times(start, end, timestamp)
            # In memory a removal, unlike a put of None, does not advance stream time and is never too late.
            if key.__class__ is not self._key_class or not self._sound_key(key):
                key = self._keep_key(key)
            row_key = key, start, end
            row = None, self._task.timestamp if timestamp is None else timestamp
            self._store(row_key, row)
            if self._log_each:
                self._log(row_key, row)
        else:
            self._put(key, start, end, None, timestamp)

    def _check_times(self, start: int, end: int, timestamp: int | None) -> None:
        check_timestamp(start)
        check_timestamp(end)
        if timestamp is not None:
            check_timestamp(timestamp)

    def _takes(self, row_key: Any, row: Row) -> bool:
        end = row_key[2]
        if end > self._observed:
            self._observed = end
        # On disk a removal is never too late: a later session may merge with an expired session, which is removed.
        return (
            (row[0] is None and not self._exact)
            or end > self._observed - self._retention
            or self._observe(end)
        )

    def _slot(self, row_key: Any) -> tuple[int, int]:
        _, start, end = row_key
        return (end, -start) if self._exact else (end, start)

    def _slot_of(self, row_bytes: bytes) -> tuple[int, int]:
        end, start = _END_START.unpack(row_bytes[-16:])
        return (end, -start) if self._exact else (end, start)

    def _row_key_of(self, row_bytes: bytes) -> Any:
        end, start = _END_START.unpack(row_bytes[-16:])
        return self._keys.from_bytes(row_bytes[:-16]), start, end

    def _scan_order(self, row_bytes: bytes) -> Any:
        end, start = _END_START.unpack(row_bytes[-16:])
        return (end, row_bytes[:-16], -start) if self._exact else (end // self._segment, row_bytes)

    def find_sessions(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[int, int, Any]]:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        found = self._show_found(self._find(key, earliest_end, self._min_live()), latest_start)
        return reversed(found) if reverse else iter(found)

    def _find(self, key: Any, earliest_end: int, min_live: int) -> list[tuple[Any, Row]]:
        """Slots and rows of a key's sessions that have not expired, ordered by end. The key is in its kept form."""
        earliest_end = max(earliest_end, min_live, 0)
        image = self._image_from(key, earliest_end)
        slots = image.slots
        if not slots or slots[-1][0] < earliest_end:
            return []
        at = bisect_left(slots, (earliest_end,))
        return list(zip(slots[at:], image.rows[at:], strict=True))

    def _read(self, row_key: Any) -> Row:
        image = self._images.young.get(row_key[0]) or self._image_of(row_key[0])
        if image is not None and image.complete_from <= row_key[2]:
            return image.get(self._slot(row_key))
        return super()._read(row_key)

    def _keep_written(self, rows: dict[Any, Row]) -> None:
        """Keeps no single rows for later reads, because sessions are read by key and time, and images serve these
        reads."""
        if self._clean.young or self._clean.old:
            for row_key in rows:
                self._clean.forget(row_key)

    def _show_found(self, rows: Iterable[tuple[Any, Row]], latest_start: int) -> list[tuple[int, int, Any]]:
        sign, show = -1 if self._exact else 1, self._values.show
        return [
            (sign * slot[1], slot[0], show(row[0])) for slot, row in rows if sign * slot[1] <= latest_start
        ]

    def fetch(self, key: Any, reverse: bool = False) -> Iterator[tuple[int, int, Any]]:
        return self.find_sessions(key, 0, MAX_LONG, reverse)

    def find_sessions_range(
        self, low: Any, high: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Any]]:
        serialize, show_key, show = self._keys.serialize, self._show_key, self._values.show
        rows = self._visible(
            None if low is None else serialize(low),
            None if high is None else serialize(high),
            earliest_end,
            MAX_LONG,
            reverse,
        )
        for data, row in rows:
            end, start = _END_START.unpack(data[-16:])
            if start <= latest_start:
                yield Windowed(show_key(data), start, end), show(row[0])

    def fetch_range(self, low: Any, high: Any, reverse: bool = False) -> Iterator[tuple[Windowed, Any]]:
        return self.find_sessions_range(low, high, 0, MAX_LONG, reverse)

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed, Any]]:
        return self.find_sessions_range(None, None, 0, MAX_LONG, reverse)

    def find_closed(self, end_from: int, end_to: int) -> Iterator[tuple[Windowed, Any]]:
        """(Windowed, value) of the sessions whose end is between two times, ordered by end, start and key bytes.

        In a persistent store, unlike the other reads, `find_closed` also gives expired sessions, until their segment is
        deleted. A store in memory gives no expired sessions, and the order is the order of its other reads.
        """
        oldest = max(0, self._observed - self._retention) // self._segment * self._segment
        if self._exact:
            oldest = self._min_live()
        # On disk the order is that of Kafka Streams' time-first session keys: end, start, key.
        order = self._scan_order if self._exact else _start_and_key
        show_key, show = self._show_key, self._values.show
        rows = self._closed_between(max(end_from, oldest, 0), min(end_to, self._observed), order)
        for data, row in rows:
            end, start = _END_START.unpack(data[-16:])
            yield Windowed(show_key(data), start, end), show(row[0])


def _start_and_key(row_bytes: bytes) -> tuple[bytes, bytes]:
    return row_bytes[-8:], row_bytes
