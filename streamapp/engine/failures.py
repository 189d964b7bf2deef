"""What happens to a record that cannot be handled: the configured handlers and the dead-letter topic."""

from __future__ import annotations

import logging
import traceback
from types import CodeType, TracebackType

from streamapp.config import ErrorContext, ExceptionHandler
from streamapp.engine.collector import ResultRefused
from streamapp.engine.running_task import RunningTask
from streamapp.errors import BrokerError, ProcessorStateError, StreamsError
from streamapp.records import Headers

__all__ = ["Failures", "ProcessingFailed", "error_headers"]

logger = logging.getLogger(__name__)


_MOST_TEXT = 16_000
"""Characters of a header of a dead letter."""

_NO_FAULT_OF_THE_RECORD = (ProcessorStateError, BrokerError)
"""The disk's, the brokers' or the schema registry's: no handler's business."""


class ProcessingFailed(StreamsError):
    """A record could not be handled, and the handler said to stop."""


class Failures:
    """Decides, for one task, what a failure means; sends dead letters; counts and logs drops."""

    def __init__(self, task: RunningTask) -> None:
        self._task = task
        self._config = task.plan.config
        self.codes: dict[CodeType, str] = {}
        """Which node a frame of a traceback belongs to."""

    def node_of(self, traceback: TracebackType | None, default: str) -> str:
        """The innermost node on the way to where an exception was raised."""
        name = default
        while traceback is not None:
            name = self.codes.get(traceback.tb_frame.f_code, name)
            traceback = traceback.tb_next
        return name

    def deserialization(self, error: Exception, source: str) -> None:
        """A source record's bytes could not be decoded, or its timestamp not be extracted."""
        if isinstance(error, _NO_FAULT_OF_THE_RECORD):
            raise error
        self._handle(
            self._config.deserialization_exception_handler,
            error,
            source,
            "could not be deserialized",
            'set deserialization_exception_handler to "continue" to drop such records (to the dead-letter topic, if one is set)',
        )

    def processing(self, error: Exception, node: str) -> None:
        """An operator raised."""
        if isinstance(error, _NO_FAULT_OF_THE_RECORD):
            raise error
        self._handle(
            self._config.processing_exception_handler,
            error,
            node,
            "failed",
            'set processing_exception_handler to "continue" to drop such records (to the dead-letter topic, if one is set)',
        )

    def behind_source(self, error: Exception, source: str) -> None:
        """What follows on a source raised. If no operator did, a sink right behind the source has, and nobody asks a handler about
        that (StreamTask.process)."""
        node = self.node_of(error.__traceback__, source)
        if node != source or isinstance(error, _NO_FAULT_OF_THE_RECORD):
            self.processing(error, node)
        else:
            remedy = "no exception handler is asked about a sink right behind a source"
            raise ProcessingFailed(f"{self._message(error, node, 'failed')}; {remedy}") from error

    def production(self, error: Exception, node: str, topic: str) -> None:
        """A result could not be serialized."""
        if isinstance(error, _NO_FAULT_OF_THE_RECORD):
            raise error
        self._handle(
            self._config.production_exception_handler,
            error,
            node,
            f"gave a result that cannot be serialized for topic {topic}",
            "check the serdes given to to(), or set production_exception_handler",
        )

    def refused(self, error: ResultRefused, node: str, topic: str) -> None:
        """Brokers do not take a result."""
        self._ask(
            "fail" if error.final else self._config.production_exception_handler,
            error,
            node,
            f"gave a result that {topic} does not take",
            error.remedy,
        )
        self._task.metrics.dropped_results += 1

    def _handle(self, handler: ExceptionHandler, error: Exception, node: str, what: str, remedy: str) -> None:
        self._ask(handler, error, node, what, remedy)
        self._task.drop()

    def _ask(self, handler: ExceptionHandler, error: Exception, node: str, what: str, remedy: str) -> None:
        """Raises `ProcessingFailed` unless the handler says to go on."""
        failure = self._message(error, node, what)
        message = f"{failure}; {remedy}"
        response = handler
        if callable(handler):
            try:
                response = handler(self._context(node), error)
            except Exception as fatal:
                raise ProcessingFailed(
                    f"the exception handler itself failed ({type(fatal).__name__}: {fatal}) for: {message}"
                ) from fatal
        if response not in ("fail", "continue"):
            raise ProcessingFailed(
                f'an exception handler must return "fail" or "continue", not {response!r}; it was asked about: {message}'
            )
        dead_letters = self._config.dead_letter_queue_topic
        if dead_letters is not None:
            self._send_dead_letter(dead_letters, error)
        if response == "fail":
            raise ProcessingFailed(message) from error
        # The reason often quotes the record, so that no two lines are the same: the kind is what a runner limits their rate by.
        logger.warning(
            "%s; going on without it%s",
            failure,
            "" if dead_letters is None else f", sent to {dead_letters}",
            extra={"kind": f"{node} {self._task.topic} {what} {type(error).__name__}"},
        )

    def _message(self, error: Exception, node: str, what: str) -> str:
        task = self._task
        where = (
            f"record of {task.topic}-{task.partition} at offset {task.offset}"
            if task.topic
            else "punctuation"
        )
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{node} (task {task.task_id}): {where} {what}: {why}"

    def _context(self, node: str) -> ErrorContext:
        topic, partition, offset, timestamp, headers, key, value = self._task.record_context
        return ErrorContext(
            topic or "", partition, offset, timestamp, headers, node, self._task.task_id, key, value
        )

    def _send_dead_letter(self, topic: str, error: Exception) -> None:
        source, partition, offset, timestamp, headers, key, value = self._task.record_context
        added: Headers = (
            *error_headers(error),
            ("__streams.errors.topic", (source or "null").encode()),
            ("__streams.errors.partition", str(partition).encode()),
            ("__streams.errors.offset", str(offset).encode()),
        )
        if isinstance(error, ResultRefused):
            # The timestamp may be the reason; brokers have to take the letter.
            timestamp = min(timestamp, self._task.wall_clock_ms())
        self._task.collector.send(topic, key, value, timestamp, headers + added, None)


def error_headers(error: Exception) -> Headers:
    """What a dead letter says of an exception (KIP-1034)."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    stack = "".join(traceback.format_exception(error))
    return (
        ("__streams.errors.exception", name.encode()),
        ("__streams.errors.stacktrace", _cut(stack)),
        ("__streams.errors.message", _cut(str(error))),
    )


def _cut(text: str) -> bytes:
    """Beginning and end of a text: with all of a deep recursion a dead letter may be larger than its topic takes."""
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT // 2]}\n...\n{text[-_MOST_TEXT // 2 :]}"
    return text.encode(errors="replace")
