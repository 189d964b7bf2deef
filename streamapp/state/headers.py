"""Stores whose rows keep the headers of their records, for stream joins and foreign-key joins.

Joins use these stores if their rows are in memory, or on disk with ``dsl_store_format="headers"``. In memory and on
disk, headers are part of the value. In the changelog, the headers belong to the changelog record, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from streamapp.records import NO_HEADERS, Headers, RecordBatch, Windowed
from streamapp.serdes.base import Serde
from streamapp.state.backend import WriteSet
from streamapp.state.formats import Codec, pack_headers, unpack_headers
from streamapp.state.key_value import SubscriptionStore
from streamapp.state.last_written import LastWritten
from streamapp.state.store import ChangelogFn
from streamapp.state.window import TimestampedWindowStore
from streamapp.state.write_behind import Row, WriteBehindStore

__all__ = ["HeadersSubscriptionStore", "HeadersWindowStore"]


class HeadersCodec(Codec):
    """A codec of pairs (value, headers). In bytes, the headers come before the value."""

    __slots__ = ("show_value",)

    def __init__(self, serde: Serde[Any] | None, store: str) -> None:
        super().__init__(serde, store, "value")
        self.show_value: Callable[[Any], Any] = self.show
        kept_class, keep, show = self.kept_class, self.keep, self.show
        to_bytes, from_bytes = self.to_bytes, self.from_bytes

        def keep_both(pair: tuple[Any, Headers]) -> tuple[Any, Headers]:
            value, headers = pair
            return (value if value.__class__ is kept_class else keep(value)), headers

        def show_both(kept: tuple[Any, Headers]) -> tuple[Any, Headers]:
            return show(kept[0]), kept[1]

        def both_to_bytes(kept: tuple[Any, Headers]) -> bytes:
            return pack_headers(kept[1]) + to_bytes(kept[0])

        def both_from_bytes(data: bytes) -> tuple[Any, Headers]:
            headers, value = unpack_headers(data)
            return from_bytes(value), headers

        self.kept_class: type | None = None
        self.keep: Callable[[Any], Any] = keep_both
        self.show: Callable[[Any], Any] = show_both
        self.to_bytes: Callable[[Any], bytes] = both_to_bytes
        self.from_bytes: Callable[[bytes], Any] = both_from_bytes


class _HeadersStore(WriteBehindStore):
    _values: HeadersCodec

    def _logger(self) -> ChangelogFn:
        log = self._task.log

        def log_value(
            store: str, key: bytes, data: bytes | None, timestamp: int | None, headers: Headers
        ) -> None:
            if data is not None:
                headers, data = unpack_headers(data)
            log(store, key, data, timestamp, headers)

        return log_value

    def _log_rows(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        log = self._logger()
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            log(self.name, key, value, timestamp, NO_HEADERS)

    def _value_codec(self) -> Codec:
        return HeadersCodec(self.spec.value_serde, self.name)

    def last_written(self) -> LastWritten | None:
        return None  # the kept form is a pair of value and headers, not bytes

    def restore(self, batch: RecordBatch, write_set: WriteSet) -> None:
        headers = batch.headers or [NO_HEADERS] * len(batch.offsets)
        values = [
            None if value is None else pack_headers(of_record) + value
            for value, of_record in zip(batch.values, headers, strict=True)
        ]
        super().restore(batch._replace(values=values), write_set)


class HeadersWindowStore(_HeadersStore, TimestampedWindowStore):
    """A `TimestampedWindowStore` with headers.

    ``get`` gives ``(value, timestamp, headers)``. The rows of all other reads have the headers as their last element.
    """

    def put(
        self,
        key: Any,
        value: Any,
        start: int,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        if value is None:
            super().put(key, None, start, timestamp, headers)
        else:
            super().put(key, (value, headers), start, timestamp)

    def get(self, key: Any, start: int) -> Any:
        row = super().get(key, start)
        return None if row is None else (row[0][0], row[1], row[0][1])

    def _show_fetched(self, rows: Iterable[tuple[Any, Row]]) -> list[Any]:
        show = self._values.show_value
        return [(slot[0], show(row[0][0]), row[1], row[0][1]) for slot, row in rows]

    def _show_scanned(self, key: Windowed, row: Row) -> tuple[Any, ...]:
        value, headers = self._values.show(row[0])
        return key, value, row[1], headers


class HeadersSubscriptionStore(_HeadersStore, SubscriptionStore):
    """A `SubscriptionStore` with headers: reads give ``(value, timestamp, headers)``."""

    def put(self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = NO_HEADERS) -> None:
        if value is None:
            super().put(key, None, timestamp, headers)
        else:
            super().put(key, (value, headers), timestamp)

    def get(self, key: Any) -> Any:
        row = super().get(key)
        return None if row is None else (row[0][0], row[1], row[0][1])

    def _entries(self, start: bytes | None, end: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        for key, ((value, headers), timestamp) in super()._entries(start, end, reverse):
            yield key, (value, timestamp, headers)
