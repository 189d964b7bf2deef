"""Failures of agents. The exception handlers of the application decide about the record, as for a topology."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

import faust
from faust.exceptions import PartitionsMismatch
from faust.streams import current_event

from streamapp.config import ErrorContext, ExceptionHandler
from streamapp.engine.failures import ProcessingFailed, error_headers
from streamapp.errors import BrokerError, ProcessorStateError

__all__ = ["WatchedAgent", "WatchedTopic"]

logger: logging.Logger = logging.getLogger(__name__)

_NO_FAULT_OF_THE_RECORD = (BrokerError, ProcessorStateError, PartitionsMismatch)


class WatchedAgent(faust.Agent):  # type: ignore[misc]
    """An agent whose exceptions go to ``processing_exception_handler``."""

    async def _execute_actor(self, coro: Any, aref: Any) -> None:
        await super()._execute_actor(self._watched(coro), aref)

    async def _watched(self, coro: Coroutine[Any, Any, None]) -> None:
        try:
            await coro
        except Exception as exc:
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
    """Asks ``handler`` about a failed record.

    After "skip", "continue" or "dead_letter" the worker goes on, with a warning. "continue" sends the record to the
    dead-letter topic, if such a topic is set; "dead_letter" requires the topic. Any other answer, or an exception of
    the handler, ends the worker after a commit of the finished records.
    """
    known = record is not None and app.topics.acks_enabled_for(record.topic)
    where = f"record of {record.topic}-{record.partition} at offset {record.offset}" if known else "it"
    failure = f"{who}: {where} {what}: {type(exc).__name__}: {exc}"
    decision: Any = handler
    if isinstance(exc, _NO_FAULT_OF_THE_RECORD):
        decision = "fail"
    elif callable(handler):
        try:
            decision = handler(_context(record if known else None, who), exc)
        except Exception as fatal:
            failure = f"the exception handler itself failed ({type(fatal).__name__}: {fatal}) for: {failure}"
            decision = "fail"
    letters = app.config.dead_letter_queue_topic
    if decision == "skip":
        letters = None
    if decision not in ("continue", "skip") and not (decision == "dead_letter" and letters is not None):
        if not isinstance(exc, _NO_FAULT_OF_THE_RECORD):
            failure += f'; set {setting} to "continue" to drop such records (to the dead-letter topic, if one is set)'
        await app.consumer.fail(ProcessingFailed(failure), record if known else None)
        return
    if letters is not None and known:
        await _send_dead_letter(app, letters, record, exc)
    logger.warning(
        "%s; going on without it%s",
        failure,
        f", sent to {letters}" if letters is not None and known else "",
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


async def _send_dead_letter(app: Any, topic: str, record: Any, exc: Exception) -> None:
    headers = [
        *(record.headers or {}).items(),
        *error_headers(exc),
        ("__streams.errors.topic", record.topic.encode()),
        ("__streams.errors.partition", str(record.partition).encode()),
        ("__streams.errors.offset", str(record.offset).encode()),
    ]
    letters = app.topic(topic, key_serializer="raw", value_serializer="raw")
    sending = {"key": record.key, "value": record.value, "timestamp": record.timestamp, "headers": headers}
    if app.config.exactly_once:
        app._attachments.put(record, letters, **sending)
    else:
        await letters.send(**sending)
