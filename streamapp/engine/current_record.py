"""The record that a task is processing, and methods to process a record that was held back in its place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from streamapp.engine.judging import record_at
from streamapp.records import NO_HEADERS, Headers, RecordBatch, RecordContext, RecordSource

__all__ = ["CurrentRecord"]

_NOTHING = (None, None)


class CurrentRecord:
    """The record that a task is processing, field by field. Stores and operators read the fields.

    The task's loop sets the fields for each record, because a new object for each record would be slower. Operators use
    the methods. `record_context` gives the record as one immutable value. An operator that has held a record back, for
    example in a buffer, later processes the record within `work_as` or `work_through`. Errors and stores then see this
    record. `restamped` calls a function while the record has another timestamp and other headers.

    A punctuator has no record, so ``topic`` is None, ``offset`` is -1, and ``timestamp`` is the time of the call (ms).
    """

    partition: int
    keeps_source_bytes: bool = False
    """True: record caches keep the bytes of source records, because a handler may need them for a dead letter."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.offset: int = -1
        self.timestamp: int = -1
        self.headers: Headers = NO_HEADERS
        self.batch: RecordBatch | None = None
        """The batch that has the record's bytes."""
        self._raw: tuple[bytes | None, bytes | None] = _NOTHING
        """The bytes of the record's key and value, if ``batch`` is None."""

    @property
    def at(self) -> str:
        """The present place in the input, for errors: the record, or a punctuation."""
        if self.topic is None:
            return "punctuation"
        return record_at(self.topic, self.partition, self.offset)

    @property
    def source_partition(self) -> int:
        """The partition of the record; -1 in a punctuator."""
        return -1 if self.topic is None else self.partition

    @property
    def record_context(self) -> RecordContext:
        """The record as one immutable value, for operators that hold records back."""
        return RecordContext(
            self.topic,
            self.source_partition,
            self.offset,
            self.timestamp,
            self.headers,
            *self.source_bytes(),
        )

    def work_as(self, record: RecordContext, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function while ``record`` is the current record, and returns the function's result.

        An error in the call names ``record``. Afterwards the earlier record is the current record again.
        """
        before = self._fields()
        self.topic, self.offset = record.topic, record.offset
        self.timestamp, self.headers = record.timestamp, record.headers
        self.batch, self._raw = None, (record.source_raw_key, record.source_raw_value)
        try:
            return call(*arguments)
        finally:
            self._go_back(before)

    def work_through(
        self, held: Iterable[tuple[Any, RecordSource]], call: Callable[[Any, Any], None]
    ) -> None:
        """Calls a function with each pair of ``held``, while the second element of the pair is the current record.

        A flush of a record cache hands over thousands of rows. So, unlike `work_as`, this method goes back to the
        record before the call only once, after the last pair.
        """
        before = self._fields()
        self.batch = None
        try:
            for key, record in held:
                self._raw = record.source_raw_key, record.source_raw_value
                self.topic, self.offset = record.topic, record.offset
                self.timestamp, self.headers = record.timestamp, record.headers
                call(key, record)
        finally:
            self._go_back(before)

    def restamped(self, timestamp: int, headers: Headers, call: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function while the same record has another timestamp and headers."""
        before = self.timestamp, self.headers
        self.timestamp, self.headers = timestamp, headers
        try:
            call(*arguments)
        finally:
            self.timestamp, self.headers = before

    def _fields(self) -> tuple[Any, ...]:
        return self.topic, self.offset, self.timestamp, self.headers, self.batch, self._raw

    def _go_back(self, fields: tuple[Any, ...]) -> None:
        self.topic, self.offset, self.timestamp, self.headers, self.batch, self._raw = fields

    def source_bytes(self) -> tuple[bytes | None, bytes | None]:
        """The bytes of the source record's key and value. Both are None if they are not known."""
        batch = self.batch
        if batch is None or self.topic is None:
            return self._raw
        offset, offsets = self.offset, batch.offsets
        at = offset - offsets[0]
        # Offsets may be missing, for example those of compacted records.
        if at >= len(offsets) or offsets[at] != offset:
            at = bisect_left(offsets, offset)
        return batch.keys[at], batch.values[at]
