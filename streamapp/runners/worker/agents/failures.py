"""Failures of agents. The exception handlers of the application decide about the record, as for a topology."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import faust
from faust.exceptions import PartitionsMismatch
from faust.streams import current_event
from faust.types import Message

from streamapp._base.counted import counted
from streamapp.config import ErrorContext, ExceptionHandler
from streamapp.engine.judging import (
    ProcessingFailed,
    dead_letter,
    judge,
    no_fault_of_the_record,
    said,
    topics_of,
)
from streamapp.records import OutputRecord
from streamapp.runners.worker.agents.taken_batches import batch_under_work

__all__ = ["WatchedAgent", "WatchedTopic"]

logger: logging.Logger = logging.getLogger(__name__)


class WatchedAgent(faust.Agent):  # type: ignore[misc]
    """An agent whose exceptions go to ``processing_exception_handler``. An exception for a batch ends the worker.

    Requests (`ask`, `map`, `join`) go out at once, also with exactly_once_v2. The answer to a request in a transaction
    would come after the commit, and the commit waits for the agent that waits for the answer.
    """

    async def ask_nowait(self, *args: Any, **kwargs: Any) -> Any:
        return await super().ask_nowait(*args, **{**kwargs, "force": True})

    async def _execute_actor(self, coro: Any, aref: Any) -> None:
        await super()._execute_actor(self._watched(coro), aref)

    async def _watched(self, coro: Coroutine[Any, Any, None]) -> None:
        try:
            await coro
        except Exception as exc:
            if batch := batch_under_work():
                await self.app.consumer.fail(self._failed_batch(batch, exc), None)
                raise
            event = current_event()
            record = None if event is None else event.message
            await _decide(
                self.app,
                self.app.config.processing_exception_handler,
                exc,
                f"agent {self.name}",
                record,
                "failed",
                "processing_exception_handler",
            )
            raise  # Faust calls on_error and starts the agent anew

    def _failed_batch(self, batch: Sequence[Message], exc: Exception) -> ProcessingFailed:
        """The error for a batch, which ends the worker.

        No handler is asked, because Faust would start the agent anew. The restart may lose the record that Faust has
        already taken for the next batch.
        """
        first = batch[0]
        return ProcessingFailed(
            f"agent {self.name}: a batch of {counted(len(batch), 'record')}, with the record of {first.topic}-"
            f"{first.partition} at offset {first.offset}, failed: {said(exc, self.app.config)}; a worker cannot go on "
            "without a batch: handle the exception in the agent, or take the records one by one"
        )


class WatchedTopic(faust.Topic):  # type: ignore[misc]
    """A topic whose undecodable records go to ``deserialization_exception_handler``.

    A topic that Faust creates has as many replicas as the application's internal topics, unless it names another
    number.
    """

    replicas: int | None

    async def declare(self) -> None:
        """Creates the topic if the topic does not exist."""
        self.replicas = self.replicas or self.app.topic_replicas
        await super().declare()

    async def on_key_decode_error(self, exc: Exception, message: Any) -> None:
        await self._on_undecodable(exc, message)

    async def on_value_decode_error(self, exc: Exception, message: Any) -> None:
        await self._on_undecodable(exc, message)

    async def _on_undecodable(self, exc: Exception, message: Any) -> None:
        await self.on_decode_error(exc, message)
        await _decide(
            self.app,
            self.app.config.deserialization_exception_handler,
            exc,
            f"topic {message.topic}",
            message,
            "could not be deserialized",
            "deserialization_exception_handler",
        )


async def _decide(
    app: Any, handler: ExceptionHandler, exc: Exception, who: str, record: Any, what: str, setting: str
) -> None:
    """Asks ``handler`` about a failed record. If the record is not the cause, ends the worker without a question.

    After "skip", "continue" or "dead_letter", the worker logs a warning and continues with the next record. "continue"
    sends the record to the dead-letter topic, if such a topic is set; "dead_letter" requires the topic. A handler's
    `Response` brings letters of its own. Any other answer, or an exception of the handler, ends the worker after a
    commit of the finished records.
    """
    known = record is not None and app.topics.acks_enabled_for(record.topic)
    where = f"record of {record.topic}-{record.partition} at offset {record.offset}" if known else "it"
    failure = f"{who}: {where} {what}: {said(exc, app.config)}"
    context, topic = _context(record if known else None, who), app.config.dead_letter_queue_topic
    answer: str = "fail"
    letters: tuple[OutputRecord, ...] | None = ()
    if not (no_fault_of_the_record(exc) or isinstance(exc, PartitionsMismatch)):
        remedy = f'set {setting} to "continue" to drop such records (to the dead-letter topic, if one is set)'
        try:
            answer, letters = judge(handler, lambda: context, exc, f"{failure}; {remedy}", topic)
        except ProcessingFailed as fatal:
            await app.consumer.fail(fatal, record if known else None)
            return
        failure += f"; {remedy}" if answer == "fail" else ""
    if letters is None:
        letters = ()
        if topic is not None and known and answer in ("continue", "dead_letter"):
            letters = (dead_letter(topic, context, exc, what, app.config),)
    for letter in letters:
        await _send(app, letter, record if known else None)
    if answer == "fail":
        await app.consumer.fail(ProcessingFailed(failure), record if known else None)
        return
    logger.warning(
        "%s; going on without it%s",
        failure,
        f", sent to {topics_of(letters)}" if letters else "",
        extra={"kind": f"{who} {what} {type(exc).__name__}"},
    )


def _context(record: Any, who: str) -> ErrorContext:
    if record is None:
        return ErrorContext("", -1, -1, -1, (), who, "", None, None)
    timestamp = int(record.timestamp * 1000) if record.timestamp else -1
    headers = tuple((record.headers or {}).items())
    return ErrorContext(
        record.topic, record.partition, record.offset, timestamp, headers, who, "", record.key, record.value
    )


async def _send(app: Any, letter: OutputRecord, record: Any) -> None:
    """Sends a letter. With exactly-once, the letter of a record goes out with the record's commit."""
    channel = app.topic(letter.topic, key_serializer="raw", value_serializer="raw")
    time = letter.timestamp
    sending = {
        "key": letter.key,
        "value": letter.value,
        "partition": letter.partition,
        "timestamp": time / 1000 if time is not None and time >= 0 else None,
        "headers": list(letter.headers),
    }
    if app.config.exactly_once and record is not None:
        app._attachments.put(record, channel, **sending)
    else:
        await channel.send(**sending)
