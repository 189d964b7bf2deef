"""Handles records that fail: asks the configured exception handlers, and sends dead letters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import CodeType, TracebackType

from streamapp._base.stacks import STREAMAPP, passed
from streamapp.engine.collector import ResultRefused
from streamapp.engine.global_letters import LetterCollector
from streamapp.engine.judging import (
    LETTER,
    PASSES,
    ProcessingFailed,
    dead_letter,
    error_headers,
    going_on,
    hides_text,
    judge,
    letter_refused,
    masked,
    no_fault_of_the_record,
    said,
    send_letter,
    topics_of,
    without_loss,
)
from streamapp.engine.running_task import RunningTask
from streamapp.errors import RecordDropped
from streamapp.on_error import Answer, Chooser, ErrorContext
from streamapp.records import OutputRecord
from streamapp.serdes.types import excerpt

__all__ = ["LETTER", "REPRODUCE", "Failures", "ProcessingFailed", "error_headers"]

logger: logging.Logger = logging.getLogger(__name__)


REPRODUCE = ". To run it again: "
"""Begins the part of a message that has the command for another run of the record."""


class Failures:
    """Handles the exceptions of one task: asks handlers, sends dead letters, counts and logs dropped records.

    Errors that are no fault of the record (`no_fault_of_the_record`) are raised again, and no handler is asked. For a
    result that brokers refuse, a sink calls `refused`, which asks the handler.
    """

    def __init__(self, task: RunningTask) -> None:
        self._task = task
        self._config = task.plan.config
        self.codes: dict[CodeType, str] = {}
        """The name of a node by the code object of its function, to find the node in a traceback."""
        self.answers: dict[str, Answer | Chooser] = {}
        """The ``on_error`` of sources and sinks, by name."""

    def node_of(self, traceback: TracebackType | None, default: str) -> str:
        """The innermost node in a traceback; ``default`` if the traceback has none."""
        name = default
        while traceback is not None:
            name = self.codes.get(traceback.tb_frame.f_code, name)
            traceback = traceback.tb_next
        return name

    def deserialization(self, error: Exception, source: str) -> None:
        """Asks ``on_error`` of the source, or else the handler, about a record whose bytes cannot be decoded."""
        if no_fault_of_the_record(error):
            raise error
        self._handle(
            self.answers.get(source, self._config.deserialization_exception_handler),
            error,
            source,
            "could not be deserialized",
            'set deserialization_exception_handler to "dead_letter" to keep such records in the dead-letter topic, or '
            'to "skip" to drop them',
            "undecodable",
        )

    def processing(self, error: Exception, node: str) -> None:
        """Asks the handler about a record for which an operator has raised."""
        if no_fault_of_the_record(error):
            raise error
        self._handle(
            self._config.processing_exception_handler,
            error,
            node,
            "failed",
            'set processing_exception_handler to "dead_letter" to keep such records in the dead-letter topic, or '
            'to "skip" to drop them',
            "failed",
        )

    def behind_source(self, error: Exception, source: str) -> None:
        """Asks the handler about a record for which a node downstream of the source has raised.

        The traceback shows which operator has raised. If it shows none, a sink directly behind the source has raised.
        This sink has asked its own handler about a result that cannot be serialized, or that brokers refuse. As in
        Kafka Streams (``StreamTask.process``), no handler is asked about the sink's other errors, for example of a
        topic function. For these, the method raises `ProcessingFailed`.
        """
        node = self.node_of(error.__traceback__, source)
        if node != source or no_fault_of_the_record(error):
            self.processing(error, node)
        else:
            remedy = (
                "no exception handler is asked about this error, because the sink is right behind a source"
            )
            raise ProcessingFailed(f"{self._message(error, node, 'failed')}; {remedy}") from error

    def extraction(self, error: Exception, source: str) -> ProcessingFailed:
        """The error for a record to which the timestamp extractor of a source gives no time.

        As in Kafka Streams, no exception handler is asked.
        """
        remedy = (
            "no exception handler is asked about a timestamp extractor. To drop such a record, let the extractor "
            "return a negative number"
        )
        return self._fatal(error, self._message(error, source, "has no time: the extractor failed"), remedy)

    def operator(self, error: Exception, node: str, on_error: Answer | Chooser) -> None:
        """Follows ``on_error`` of an operator that has raised. Raises `ProcessingFailed` if the answer is to stop."""
        if no_fault_of_the_record(error):
            raise error
        remedy = 'give the operator on_error="skip", "dead_letter" or a Retry'
        self._handle(on_error, error, node, "failed", remedy, "failed")

    def settle(
        self,
        error: Exception,
        node: str,
        on_error: Answer | Chooser,
        *,
        attempt: int = 1,
        reason: str = "failed",
    ) -> None:
        """Follows ``on_error``, an answer of the operator's `Retry`, for a record whose last attempt has failed.

        The answers "skip" and "dead_letter" drop the record. Unlike in `operator`, this holds also for a failure of a
        service (`FAILURES`), because the `Retry` decides which failures the record waits out. If the record is dropped,
        the metrics count it under ``reason``, or under "dead_letter" if it becomes a dead letter.

        Raises `ProcessingFailed` if the answer is to stop. Errors of the disk, the brokers or the schema registry
        (`no_fault_of_the_record`) are raised again.
        """
        if no_fault_of_the_record(error):
            raise error
        remedy = "the Retry of the operator says so"
        dead = self._follow(on_error, error, node, "failed", remedy, attempt)
        self._task.drop(1, node, "dead_letter" if dead else reason)

    def dropped(self, node: str, reason: str) -> None:
        """Sends a dead letter of the current record, which an operator drops for a reason in ``dead_letter_drops``."""
        topic = self._config.dead_letter_queue_topic
        assert topic is not None
        error = RecordDropped(f"{node} drops the record: {reason}")
        self._send(self._dead_letter(topic, error, node, reason, 1), node, f"is dropped: {reason}")

    def context(self, node: str, attempt: int = 1) -> ErrorContext:
        """The current record as the first argument of an exception handler."""
        topic, partition, offset, timestamp, headers, key, value = self._task.record_context
        return ErrorContext(
            topic or "", partition, offset, timestamp, headers, node, self._task.task_id, key, value, attempt
        )

    def production(self, error: Exception, node: str, topic: str) -> None:
        """Asks ``on_error`` of the sink, or else the handler, about a result that cannot be serialized."""
        if no_fault_of_the_record(error):
            raise error
        self._handle(
            self.answers.get(node, self._config.production_exception_handler),
            error,
            node,
            f"gave a result that cannot be serialized for topic {topic}",
            "check the serdes given to to(), or set production_exception_handler",
            "unserializable",
        )

    def refused(self, error: ResultRefused, node: str, topic: str) -> None:
        """Asks ``on_error`` of the sink, or else the handler, about a result that brokers have refused.

        Nobody is asked about a final refusal, which each further result of the topic would get, too. An example is a
        client that may not write to the topic. Raises `ProcessingFailed` for a final refusal, and if the answer is to
        stop.
        """
        self._follow(
            "fail" if error.final else self.answers.get(node, self._config.production_exception_handler),
            error,
            node,
            f"gave a result that {topic} does not take",
            error.remedy,
        )
        self._task.metrics.dropped_results += 1

    def _handle(
        self,
        on_error: Answer | Chooser,
        error: Exception,
        node: str,
        what: str,
        remedy: str,
        reason: str,
    ) -> None:
        if without_loss(on_error, error) != on_error:
            # The record comes again, so a letter would make two records of it.
            raise self._fatal(error, self._message(error, node, what), PASSES)
        dead = self._follow(on_error, error, node, what, remedy)
        self._task.drop(1, node, "dead_letter" if dead else reason)

    def _follow(
        self,
        on_error: Answer | Chooser,
        error: Exception,
        node: str,
        what: str,
        remedy: str,
        attempt: int = 1,
    ) -> bool:
        """Asks the handler and follows its answer. Returns True if the record is now a dead letter.

        Raises `ProcessingFailed` if the answer is to stop.
        """
        failure = self._message(error, node, what)
        message = f"{failure}; {remedy}"
        topic = self._config.dead_letter_queue_topic
        answer, letters = judge(on_error, lambda: self.context(node, attempt), error, message, topic)
        if letters is None and topic is not None and answer != "skip":
            letters = (self._dead_letter(topic, error, node, what, attempt),)
        for letter in letters or ():
            self._send(letter, node, f"{what}: {said(error, self._config)}")
        if answer == "fail":
            raise self._fatal(error, failure, remedy)
        # A runner limits how often it logs lines of one kind. The kind is not the text, which often quotes the record.
        logger.warning(
            "%s; %s",
            failure,
            self._going_on(letters or ()),
            extra={"kind": f"{node} {self._task.topic} {what} {type(error).__name__}"},
        )
        return bool(letters)

    def _fatal(self, error: Exception, failure: str, remedy: str) -> ProcessingFailed:
        fatal = ProcessingFailed(f"{failure}; {remedy}{self._how_to_reproduce(error)}")
        fatal.remedy = remedy
        fatal.place = "" if self._task.topic is None else self._task.at
        fatal.__cause__ = None if hides_text(error, self._config) else error
        fatal.__suppress_context__ = True  # as after `raise ... from`
        return fatal

    def _going_on(self, letters: Sequence[OutputRecord]) -> str:
        if letters and isinstance(self._task.collector, LetterCollector):
            topics = topics_of(letters)
            return f"{going_on(())}; one process of the application writes its dead letter to {topics}, once"
        return going_on(letters)

    def _how_to_reproduce(self, error: Exception) -> str:
        """The end of an error message: the user's function, the record, and the command that runs the record again.

        A part that is not known is left out: a punctuator has no record, and an error of a serde may have no function.
        Without the record's offset in Kafka, the end has no command.
        """
        task, shown = self._task, self._config.show_record
        function = _users_function(error)
        said = f". Raised in {function}" if function else ""
        if task.topic is None:
            return said
        key, value = task.record_context[-2:]
        if shown is None:
            record = f"key {excerpt(key)}, value {excerpt(value, size=200)}"
        else:
            record = masked(shown, key, value)
        if task.topic in task.numbered_topics:
            return f"{said}. Record: {record}. The offset is a number of this run, and not an offset in Kafka"
        where = f"--topic {task.topic} --partition {task.partition} --offset {task.offset}"
        return f"{said}. Record: {record}{REPRODUCE}streamapp try APPLICATION {where}"

    def _message(self, error: Exception, node: str, what: str) -> str:
        return f"{self._record(node)} {what}: {said(error, self._config)}"

    def _record(self, node: str) -> str:
        return f"{node} (task {self._task.task_id}): {self._task.at}"

    def _dead_letter(self, topic: str, error: Exception, node: str, what: str, attempt: int) -> OutputRecord:
        now = self._task.wall_clock_ms()
        return dead_letter(topic, self.context(node, attempt), error, what, self._config, now)

    def _send(self, letter: OutputRecord, node: str, cause: str) -> None:
        try:
            send_letter(self._task.collector.send, letter, self._task.wall_clock_ms())
        except ResultRefused as refused:
            record = self._record(node)
            raise letter_refused(record, letter.topic, refused, cause, self._config) from refused


def _users_function(error: BaseException) -> str:
    """The first function in the traceback that is not streamapp's, with file and line; "" if there is none."""
    for code, line in passed(error, STREAMAPP, "<"):
        return f"{code.co_qualname} ({code.co_filename}:{line})"
    return ""
