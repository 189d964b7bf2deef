"""The record that a task is processing."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from streamapp.records import NO_HEADERS, Headers, RecordBatch

__all__ = ["CurrentRecord"]


class CurrentRecord:
    """Where the record that is being processed comes from. `Task` sets it, stores and operators look here.

    ``topic`` is None, and ``offset`` -1, in a punctuator, whose ``timestamp`` is the time it was called with.
    """

    def __init__(self) -> None:
        self.topic: str | None = None
        self.offset = -1
        self.timestamp = -1
        self.headers: Headers = NO_HEADERS
        self.batch: RecordBatch | None = None  # which has its bytes

    @property
    def record_context(self) -> tuple[Any, ...]:
        """All of it; set to go on with the record later."""
        return self.topic, self.offset, self.timestamp, self.headers, self.batch

    @record_context.setter
    def record_context(self, context: tuple[Any, ...]) -> None:
        self.topic, self.offset, self.timestamp, self.headers, self.batch = context

    @property
    def raw_record(self) -> tuple[bytes | None, bytes | None]:
        """Key and value of the source record as bytes: for handlers and dead letters."""
        if self.batch is None or self.topic is None:
            return None, None
        at = bisect_left(self.batch.offsets, self.offset)
        if at == len(self.batch.offsets) or self.batch.offsets[at] != self.offset:
            return None, None  # a record that came out of a buffer or a cache
        return self.batch.keys[at], self.batch.values[at]
