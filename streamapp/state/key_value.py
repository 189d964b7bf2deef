"""Key-value stores, without and with timestamps. Tables of the DSL and processors use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streamapp.errors import SerializationError
from streamapp.records import MAX_LONG, NO_HEADERS, Headers, check_timestamp
from streamapp.state.backend import OrderedBytes
from streamapp.state.formats import Codec, prefix_end
from streamapp.state.row_memory import RowMemory, kept_size
from streamapp.state.spec import StoreSpec
from streamapp.state.store import StoreContext
from streamapp.state.write_behind import Row, WriteBehindStore

__all__ = ["KeyValueStore", "PlainTableStore", "SubscriptionStore", "TimestampedKeyValueStore"]

_SHOWN_BYTES, _SHOWN_TIMES = 300, 3
"""The estimated memory of a decoded row: 300 bytes, and three times the bytes of its value."""


class KeyValueStore(WriteBehindStore):
    """A store of one value for each key.

    - ``get(key)``: the value, or None.
    - ``put(key, value, timestamp=None)``: sets the value; None deletes the key. The timestamp is written to the
      changelog. Its default is the timestamp of the current record, or in a punctuator the time of the call.
    - ``put_if_absent(key, value, timestamp=None)``: sets the value if the key has none. Returns the previous value.
    - ``delete(key, timestamp=None)``: deletes the key. Returns the previous value.
    - ``range(low=None, high=None, reverse=False)``, ``all(reverse=False)``: (key, value) in the order of the key bytes.
      Bounds are inclusive, and None means no bound.
    - ``prefix_scan(prefix)``: (key, value) of the keys whose bytes begin with the prefix. A prefix of bytes is
      taken as it is. The key serde turns any other prefix into bytes.
    """

    timestamped = False

    def __init__(
        self, spec: StoreSpec, table: OrderedBytes, task: StoreContext, memory: RowMemory | None = None
    ) -> None:
        super().__init__(spec, table, task, memory, timestamped=self.timestamped)
        self._row_bytes = self._keys.to_bytes  # type: ignore[assignment, method-assign]

    def _weigher(self) -> Callable[[Any, Row], int]:
        if not self._sized or type(self._values) is not Codec:
            return super()._weigher()
        row_bytes, key_length = self._weights()

        def weigh(row_key: Any, row: Row) -> int:  # as kept_size, without its calls
            value = row[0]
            return row_bytes + key_length(row_key) + (0 if value is None else len(value))

        return weigh

    def _weights(self) -> tuple[int, Callable[[Any], int]]:
        """The bytes of a row besides the lengths of key and value, and the length of a key (0 for a number)."""
        if self._key_class in (None, bytes, str):
            return self._ROW_BYTES + kept_size("") + kept_size(b""), len
        return self._ROW_BYTES + kept_size(0) + kept_size(b""), lambda key: 0

    def get(self, key: Any) -> Any:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = (self._dirty.get(key) or self._read(key))[0]
        return value if value is None or self._shown else self._values.show(value)

    def put(self, key: Any, value: Any, timestamp: int | None = None) -> None:
        if timestamp is None:
            timestamp = self._task.timestamp
        elif timestamp.__class__ is not int or timestamp > MAX_LONG:
            check_timestamp(timestamp)
        if key.__class__ is not self._key_class or not self._sound_key(key):
            key = self._keep_key(key)
        if value is not None and (value.__class__ is not self._value_class or not self._sound_value(value)):
            kept = self._keep_value(value)
            self._last.value, self._last.data = value, kept
            value = kept
        self.put_row(key, (value, timestamp))

    def writer(self) -> Callable[[Any, Any, int], None]:
        """The function of key, value and timestamp with which an operator writes rows, like `put` but in one call.

        Stores with a `put` or a write step of their own give their `put`. So do stores that keep values as objects.
        """
        if type(self).put is not KeyValueStore.put or not self._in_one_call:
            return self.put
        return self._writing()

    @property
    def _in_one_call(self) -> bool:
        """True if a write has no further steps, and values are kept as bytes."""
        return self.put_row is self._remember and type(self._values) is Codec and not self._shown

    def _writing(self) -> Callable[[Any, Any, int], None]:
        """`put` and the innermost step of a write, for stores with `_in_one_call`. Most of the time goes into calls."""
        key_class, sound_key, keep_key = self._key_class, self._sound_key, self._keep_key
        encode, keep, last = self._values.encode, self._values.keep, self._last
        dirty, known, watches, note = self._dirty, self._known, self._order.watches, self._order.note
        row_bytes, key_length = self._weights()

        def write(key: Any, value: Any, timestamp: int) -> None:
            if timestamp.__class__ is not int or timestamp > MAX_LONG:
                check_timestamp(timestamp)
            if key.__class__ is not key_class or not sound_key(key):
                key = keep_key(key)
            data, size = None, 0
            if value is not None:
                try:
                    data = encode(value)
                except SerializationError:
                    data = None
                if data.__class__ is not bytes:
                    data = keep(value)  # raises the error that names the store
                last.value, last.data = value, data
                size = len(data)
            if watches:
                note(key)
            before = dirty.get(key)
            if before is None:
                self._sized_bytes += row_bytes + key_length(key) + size
            else:
                self._sized_bytes += size - len(before[0] or b"")
            dirty[key] = data, timestamp
            if known:
                known.pop(key, None)

        return write

    def put_if_absent(self, key: Any, value: Any, timestamp: int | None = None) -> Any:
        previous = self.get(key)
        if previous is None:
            self.put(key, value, timestamp)
        return previous

    def delete(self, key: Any, timestamp: int | None = None) -> Any:
        previous = self.get(key)
        self.put(key, None, timestamp)
        return previous

    def range(self, low: Any = None, high: Any = None, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        serialize = self._keys.serialize
        start = None if low is None else serialize(low)
        end = None if high is None else serialize(high) + b"\0"
        if start is not None and end is not None and start >= end:
            return iter(())
        return self._entries(start, end, reverse)

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        return self._entries(None, None, reverse)

    def prefix_scan(self, prefix: Any) -> Iterator[tuple[Any, Any]]:
        start = prefix if isinstance(prefix, bytes) else self._keys.serialize(prefix)
        return self._entries(start, prefix_end(start), False)

    def _entries(self, start: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        show_key, show = self._show_key, self._values.show
        return ((show_key(key), show(row[0])) for key, row in self._merged(start, end, reverse))

    def _show_key(self, data: bytes) -> Any:
        return self._keys.show(self._keys.from_bytes(data))


class TimestampedKeyValueStore(KeyValueStore):
    """A `KeyValueStore` whose values have the timestamp of their last update.

    Each read of `KeyValueStore` that gives a value gives ``(value, timestamp in ms)`` here.
    """

    timestamped = True

    def get(self, key: Any) -> tuple[Any, int] | None:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        row = self._dirty.get(key) or self._read(key)
        if row[0] is None:
            return None
        return row if self._shown else (self._values.show(row[0]), row[1])

    def folder(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        keep_old: bool = False,
    ) -> Callable[[Any, Any, int], tuple[Any, Any, int]]:
        """A function of key, value and timestamp that adds the value to the aggregate of the key (`Fold`)."""
        key_class, keep_key = self._key_class, self._keep_key
        fold = self._folder(initializer, aggregator, keep_old)

        def fold_value(key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            return fold(key if key.__class__ is key_class else keep_key(key), key, value, timestamp)

        return fold_value

    def reader_before_put(self) -> Callable[[Any], tuple[Any, int] | None]:
        """The function with which a table reads the present row of a key, just before the table writes the next row.

        A read from the backend does not put the row into memory, because the write replaces the row. Stores with a
        `get` or a write step of their own give their plain `get`.
        """
        if type(self).get is not TimestampedKeyValueStore.get or self.put_row is not self._remember:
            return self.get  # other stores, and other steps of a write, read the row again
        key_class, keep_key, show = self._key_class, self._keep_key, self._values.show
        dirty, read, shown = self._dirty, self._read_to_write, self._shown

        def get(key: Any) -> tuple[Any, int] | None:
            if key.__class__ is not key_class:
                key = keep_key(key)
            row = dirty.get(key) or read(key)
            if row[0] is None:
                return None
            return row if shown else (show(row[0]), row[1])

        return get

    def reader(self) -> Callable[[Any], tuple[Any, int] | None]:
        """The function with which a join reads rows, like `get` but faster if a row is read more often than written.

        The decoded row of an immutable value is kept until the row is written again, or until other rows need the
        memory.
        """
        as_it_is = type(self).get is not TimestampedKeyValueStore.get  # a subclass has a get of its own
        return self.get if as_it_is else self._decoding_once()

    def _decoding_once(self) -> Callable[[Any], tuple[Any, int] | None]:
        if self._shown or not self._values.immutable:
            return self.get
        key_class, keep_key, show = self._key_class, self._keep_key, self._values.show
        known, read, dirty, memory = self._known, self._read, self._dirty, self._memory

        def get(key: Any) -> tuple[Any, int] | None:
            if key.__class__ is not key_class:
                key = keep_key(key)
            row = known.get(key)
            if row is None:
                value, timestamp = dirty.get(key) or read(key)
                if value is None:
                    return None
                row = show(value), timestamp
                if memory.take(_SHOWN_BYTES + _SHOWN_TIMES * kept_size(value)):
                    known[key] = row
            return row

        return get

    def reader_with_bytes(self, decoded: bool) -> Callable[[Any], tuple[Any, int, bytes] | None] | None:
        if self._shown or type(self).get is not TimestampedKeyValueStore.get:
            return None
        key_class, keep_key, show = self._key_class, self._keep_key, self._values.show
        read, dirty = self._read, self._dirty

        def get(key: Any) -> tuple[Any, int, bytes] | None:
            if key.__class__ is not key_class:
                key = keep_key(key)
            data, timestamp = dirty.get(key) or read(key)
            return None if data is None else (show(data) if decoded else None, timestamp, data)

        return get

    def _entries(self, start: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        show_key, show = self._show_key, self._values.show
        return ((show_key(key), (show(row[0]), row[1])) for key, row in self._merged(start, end, reverse))


class SubscriptionStore(TimestampedKeyValueStore):
    """The subscriptions of a foreign-key join. Headers that ``put`` gets are written to the changelog."""

    def put(self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = NO_HEADERS) -> None:
        self._note_headers(key, headers)
        super().put(key, value, timestamp)

    def subscriber(self) -> Callable[[bytes, Any, int, Headers], None]:
        """The function with which the join writes subscriptions, like `put` but in one call, as `writer` gives it."""
        if type(self).put is not SubscriptionStore.put or not self._in_one_call:
            return self.put
        write = self._writing()

        def subscribe(key: bytes, value: Any, timestamp: int, headers: Headers) -> None:
            if headers or self._log_headers:
                self._note_headers(key, headers)
            write(key, value, timestamp)

        return subscribe


class PlainTableStore(TimestampedKeyValueStore):
    """A table that keeps no timestamps. Reads give ``(value, -1)``, where -1 means that the timestamp is unknown."""

    timestamped = False

    def _shown_timestamp(self, row_key: Any) -> int:
        return -1

    def _rows_to_fold(self) -> tuple[dict[Any, Row], Callable[[Any], Row]]:
        row_of, timestamp = self.row, self._shown_timestamp
        return {}, lambda row_key: (row_of(row_key)[0], timestamp(row_key))

    def get(self, key: Any) -> tuple[Any, int] | None:
        if key.__class__ is not self._key_class:
            key = self._keep_key(key)
        value = self.row(key)[0]
        return None if value is None else (self._values.show(value), self._shown_timestamp(key))

    def _entries(self, start: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        keys, show, timestamp = self._keys, self._values.show, self._shown_timestamp
        for data, row in self._merged(start, end, reverse):
            key = keys.from_bytes(data)
            yield keys.show(key), (show(row[0]), timestamp(key))
