"""`WatchedStream`: a stream that knows the records of the batch that its agent works on, and whose operators lose no
record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from contextvars import ContextVar
from typing import Any
from weakref import ref

import faust
from faust.exceptions import ImproperlyConfigured
from faust.streams import _current_event, maybe_forward
from faust.types import EventT, FieldDescriptorT, Message
from mode.utils.futures import maybe_async

from streamapp._base.cancellation import own_cancellation
from streamapp.engine.judging import ProcessingFailed, record_at, said
from streamapp.errors import StreamsError

__all__ = [
    "RecordMoved",
    "WatchedStream",
    "batch_under_work",
    "moved",
    "note_batch",
    "partition_in_batch",
    "witnesses_under_work",
]

_ONE_STREAM = "Faust cannot combine or join streams and tables (&, combine, join, left_join ...)"
_batch: ContextVar[tuple[Message, ...]] = ContextVar("batch", default=())
_witnesses: ContextVar[tuple[Message, ...]] = ContextVar("witnesses", default=())
_partitions: ContextVar[Mapping[Any, Set[int]]] = ContextVar("partitions", default={})  # noqa: B039 (nobody writes it)
"""Key -> the partitions of the batch's records with this key."""


class RecordMoved(asyncio.CancelledError):
    """The record on which an agent works belongs to another worker now, so Faust starts the agent anew."""


def moved(error: BaseException, record: Message | None, consumer: Any) -> bool:
    """True if an agent got ``error`` because its record belongs to another worker now.

    True for `RecordMoved`. An agent that waits for its message with ``asyncio.shield`` gets a plain ``CancelledError``
    instead. For this error, the consumer is asked if it still has the agent's record, or the records of its batch.
    """
    if isinstance(error, RecordMoved):
        return True
    records = witnesses_under_work() or (() if record is None else (record,))
    return isinstance(error, asyncio.CancelledError) and not all(map(consumer.has, records))


def batch_under_work() -> tuple[Message, ...]:
    """The records of the batch that the running agent has taken (``stream.take()``); empty for single records."""
    return _batch.get()


def witnesses_under_work() -> tuple[Message, ...]:
    """One record of the batch for each generation of the group in which records of the batch were fetched.

    If these records still belong to the worker, all records of the batch do. A check of all records for each message
    of the agent would take minutes for a batch of 10,000 records.
    """
    return _witnesses.get()


def partition_in_batch(table: str, key: Any) -> int:
    """The partition of the records with this key in the batch on which the agent works.

    If no record has the key, the partition of all records. Raises `StreamsError` if the records leave the partition
    open. Another partition than that of later records with the key would have two rows for the key.
    """
    found = _partitions.get().get(key) or {record.partition for record in batch_under_work()}
    if len(found) == 1:
        return next(iter(found))
    listed = ", ".join(map(str, sorted(found)))
    raise StreamsError(
        f"the table {table} cannot change the row {key!r}, because the agent works on a batch (take). Its records are "
        f"in several partitions ({listed}), and not one of them has all records with this key. Rows need the keys of "
        "the records. Check key_type of the topic, regroup the stream (group_by), or process the records one by one"
    )


def note_batch(records: tuple[Message, ...], keys: Iterable[Any] = ()) -> None:
    """Notes the batch on which the running agent works from now on. ``keys`` are the decoded keys of the records."""
    _batch.set(records)
    _witnesses.set(tuple({record.generation_id: record for record in records}.values()))
    partitions: dict[Any, set[int]] = {}
    for record, key in zip(records, keys, strict=False):
        # A key without a hash, such as a list or a Record with a list, is no key of a table.
        with suppress(TypeError):
            partitions.setdefault(key, set()).add(record.partition)
    _partitions.set(partitions)


class WatchedStream(faust.Stream[Any]):  # type: ignore[misc]
    """A stream of Faust that notes the batch (``take``) on which its agent works, for `batch_under_work`.

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

    def echo(self, *channels: Any) -> WatchedStream:
        """Sends each value to the channels, too.

        Faust's own method drops the error of a message that cannot be sent.
        """
        targets = [self.derive_topic(each) if isinstance(each, str) else each for each in channels]

        async def echoing(value: Any) -> Any:
            for target in targets:
                await maybe_forward(value, target)
            return value

        self.add_processor(echoing)
        return self

    def combine(self, *nodes: Any, **options: Any) -> Any:
        """Refuses ``a & b``, of which Faust reads the first stream only."""
        raise ImproperlyConfigured(
            f"{_ONE_STREAM}. To read several topics, name all of them: app.topic(a, b)"
        )

    def _join(self, join_strategy: Any) -> Any:
        """Refuses joins. Faust has none, and would raise an error for each record."""
        raise ImproperlyConfigured(f"{_ONE_STREAM}. Use a topology for joins, which can run in the same App")

    async def _format_key(self, key: Any, value: Any) -> Any:
        """The new key of a record in ``group_by``. Faust's own method drops a record for which ``key`` raises."""
        return key.getattr(value) if isinstance(key, FieldDescriptorT) else await maybe_async(key(value))

    async def _passive_drainer(self, channel: Any, declare: bool = False) -> None:
        """Reads the stream for ``take``, ``group_by`` or ``through``, in an asyncio task beside the agent."""
        await super()._passive_drainer(_Ahead(self, channel), declare)

    async def failed_ahead(self, error: BaseException) -> bool:
        """Ends the worker, because an operator of this stream has raised an exception while Faust read ahead.

        True: the record belongs to another worker now. The worker then goes on, and the agent starts anew. A mere
        cancellation of the reading does not end the worker, either.

        Faust reads ahead for ``take``, ``group_by`` and ``through``, in an asyncio task beside the agent. Faust would
        pass the exception to a channel that the agent may never read, and would read no further record.
        """
        event = self.current_event
        record = None if event is None else event.message
        if isinstance(error, asyncio.CancelledError):
            own = own_cancellation(error)
            if own is None:
                return False
            if moved(error, record, self.app.consumer):
                return self._start_agent_anew()
            error = own
        where = "" if record is None else f" for {record_at(record.topic, record.partition, record.offset)}"
        await self.app.consumer.fail(
            ProcessingFailed(
                f"{self.shortlabel}: an operator of the stream failed{where}: {said(error, self.app.config)}; a worker "
                "cannot go on without a record behind take, group_by or through: handle the exception in the operator"
            ),
            record,
        )
        return False

    def _start_agent_anew(self) -> bool:
        """Cancels the agent, so that Faust starts the agent anew. The old agent would get no further records.

        False: no agent has this stream.
        """
        root = self.get_root_stream()
        actors = [
            actor for agent in self.app.agents.values() for actor in agent._actors if actor.stream is root
        ]
        for actor in actors:
            actor.actor_task.cancel()
        return bool(actors)

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
                note_batch(tuple(event.message for event in events), [event.key for event in events])
                _current_event.set(ref(events[-1]))
                yield batch
                note_batch(())
                _current_event.set(None)
        finally:
            self._processors.remove(note)
            await batches.aclose()


class _Ahead:
    """The channel of a stream that Faust reads ahead. An error for this channel also ends the worker."""

    def __init__(self, stream: WatchedStream, channel: Any) -> None:
        self._stream, self._channel = stream, channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def throw(self, error: BaseException) -> None:
        if not await self._stream.failed_ahead(error):
            await self._channel.throw(error)
