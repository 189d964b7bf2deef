"""`WatchedStream`: a stream that knows the records of the batch that its agent works on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import ref

import faust
from faust.streams import _current_event
from faust.types import EventT, Message

__all__ = ["WatchedStream", "batch_under_work", "note_batch", "witnesses_under_work"]

_batch: ContextVar[tuple[Message, ...]] = ContextVar("batch", default=())
_witnesses: ContextVar[tuple[Message, ...]] = ContextVar("witnesses", default=())


def batch_under_work() -> tuple[Message, ...]:
    """The records of the batch that the running agent has taken (``stream.take()``); empty for single records."""
    return _batch.get()


def witnesses_under_work() -> tuple[Message, ...]:
    """One record of the batch for each generation of the group in which records of the batch were fetched.

    If these records still belong to the worker, all records of the batch do. A check of all records for each message
    of the agent would take minutes for a batch of 10,000 records.
    """
    return _witnesses.get()


def note_batch(records: tuple[Message, ...]) -> None:
    """Notes the batch on which the running agent works from now on."""
    _batch.set(records)
    _witnesses.set(tuple({record.generation_id: record for record in records}.values()))


class WatchedStream(faust.Stream[Any]):  # type: ignore[misc]
    """A stream that tells the batch on which its agent works.

    While the agent works on a batch, Faust's `current_event` is the last event of the batch. Plain Faust has no current
    event then, so the messages of the agent would not be bound to a record.
    """

    def take(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[Any], None]:
        return self._noting(super().take(*arguments, **options))

    def take_events(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[Any], None]:
        return self._noting(super().take_events(*arguments, **options))

    def take_with_timestamp(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[Any], None]:
        return self._noting(super().take_with_timestamp(*arguments, **options))

    def noack_take(self, *arguments: Any, **options: Any) -> AsyncGenerator[Sequence[Any], None]:
        return self._noting(super().noack_take(*arguments, **options))

    async def _noting(
        self, batches: AsyncGenerator[Sequence[Any], None]
    ) -> AsyncGenerator[Sequence[Any], None]:
        taken: list[EventT[Any]] = []

        async def note(value: Any) -> Any:
            assert self.current_event is not None
            taken.append(self.current_event)
            return value

        # Faust's own processor fills the batch in the same order, and comes later.
        self.add_processor(note)
        try:
            async for batch in batches:
                events = taken[: len(batch)]
                del taken[: len(batch)]
                note_batch(tuple(event.message for event in events))
                _current_event.set(ref(events[-1]))
                yield batch
                note_batch(())
                _current_event.set(None)
        finally:
            self._processors.remove(note)
            await batches.aclose()
