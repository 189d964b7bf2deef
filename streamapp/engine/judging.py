"""The answer to an error, and the dead letter of a record. Operators, agents and consumers share this code."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple

from streamapp._base.counted import counted
from streamapp._base.printable import printable
from streamapp.config import StreamsConfig
from streamapp.engine.collector import ResultRefused
from streamapp.errors import (
    BrokerError,
    ProcessorStateError,
    SerializationError,
    StreamsError,
    UnsupportedOperation,
)
from streamapp.on_error import ANSWERS, FAILURES, Answer, Chooser, ErrorContext, Response
from streamapp.records import Headers, OutputRecord

__all__ = [
    "LETTER",
    "SERVICE_FAILED",
    "Judgement",
    "ProcessingFailed",
    "dead_letter",
    "error_headers",
    "hides_text",
    "judge",
    "masked",
    "no_fault_of_the_record",
    "record_at",
    "said",
    "send_letter",
    "service_failed",
    "short",
    "text_of",
    "topics_of",
    "with_clock",
]

_MOST_TEXT = 16_000
"""The number of characters that a header of a dead letter keeps of a traceback or of an exception's text."""
_MOST_SAID = 2_000
"""The number of characters that a message has of an exception's text."""

LETTER = "__streamapp.errors."
"""The prefix of the headers that streamapp adds to a dead letter. KIP-1034 has the other headers."""

SERVICE_FAILED = "a service failed and not the record"
"""Begins the remedy for the failure of a service (`FAILURES`)."""

_NO_FAULT = (ProcessorStateError, BrokerError, UnsupportedOperation)


def no_fault_of_the_record(error: BaseException) -> bool:
    """True for errors of the disk, the brokers, the schema registry or the runner, except the refusal of a record.

    No exception handler is asked about these errors, because the next record would have the same error. But if brokers
    refuse a record that a function sends (`BrokerError.refused`), the record that the function works on is the cause.

    >>> no_fault_of_the_record(BrokerError("no broker answers")), no_fault_of_the_record(ValueError())
    (True, False)
    """
    return service_failed(error, _NO_FAULT)


def service_failed(error: BaseException, failures: tuple[type[Exception], ...] = FAILURES) -> bool:
    """True for errors of these types, except the refusal of a record."""
    return isinstance(error, failures) and not (isinstance(error, BrokerError) and error.refused)


class ProcessingFailed(StreamsError):
    """A record could not be handled, and the task must stop, for example because the exception handler says so."""


class Judgement(NamedTuple):
    """An answer. ``letters`` are the dead letters of a handler's `Response`; None means the usual letter, if any."""

    answer: Answer
    letters: tuple[OutputRecord, ...] | None


def judge(
    on_error: Answer | Chooser,
    context: Callable[[], ErrorContext],
    error: Exception,
    message: str,
    dead_letter_topic: str | None,
) -> Judgement:
    """The answer of ``on_error``, which is asked if it is a function.

    Raises `ProcessingFailed` if the function raises or returns no answer, and for "dead_letter" without a dead-letter
    topic.
    """
    answer: object = on_error
    if callable(on_error):
        try:
            answer = on_error(context(), error)
        except Exception as fatal:
            raise ProcessingFailed(
                f"the exception handler itself failed ({short(fatal)}) for: {message}"
            ) from fatal
    letters: tuple[OutputRecord, ...] | None = None
    if isinstance(answer, Response):
        letters, answer = answer.dead_letters, answer.action
    if answer not in ANSWERS:
        raise ProcessingFailed(
            f'an exception handler must return "fail", "continue", "skip", "dead_letter" or a Response, not '
            f"{answer!r}; it was asked about: {message}"
        )
    if answer == "dead_letter" and dead_letter_topic is None:
        raise ProcessingFailed(
            f"dead_letter_queue_topic is not set, and a dead letter is needed for: {message}"
        ) from error
    return Judgement(answer, letters)  # type: ignore[arg-type]


def dead_letter(
    topic: str,
    context: ErrorContext,
    error: Exception,
    what: str,
    config: StreamsConfig,
    now_ms: int | None = None,
) -> OutputRecord:
    """The usual dead letter of a record: the record itself, with headers that describe the failure.

    ``now_ms`` is the time of the clock. A letter for a result that brokers refuse is never ahead of this time.
    """
    headers = (
        *context.headers,
        *error_headers(error),
        ("__streams.errors.topic", context.topic.encode() if context.topic else None),
        ("__streams.errors.partition", str(context.partition).encode()),
        ("__streams.errors.offset", str(context.offset).encode()),
        *(
            (f"{LETTER}{name}", str(said).encode())
            for name, said in (
                ("application", config.application_id),
                ("version", config.application_version),
                ("task", context.task_id),
                ("operator", context.processor),
                ("what", what),
                ("timestamp", context.timestamp),
                ("attempt", context.attempt),
            )
        ),
    )
    letter = OutputRecord(topic, context.key, context.value, context.timestamp, headers)
    if isinstance(error, BrokerError) and now_ms is not None:
        # Brokers may have refused the result for its timestamp, and must not refuse the letter for the same reason.
        return with_clock(letter, now_ms) or letter
    return letter


def with_clock(letter: OutputRecord, now_ms: int) -> OutputRecord | None:
    """The letter with the time of the clock, for brokers that have refused the letter.

    None: the letter is not ahead of the clock, so brokers have another reason. By default, brokers take no record that
    is more than an hour ahead (``message.timestamp.after.max.ms``), and take records of any age. A header of the letter
    keeps the time of its record.

    >>> with_clock(OutputRecord("dead", None, b"late", 9_000), 1_000).timestamp
    1000
    """
    if letter.timestamp is None or letter.timestamp <= now_ms:
        return None
    return letter._replace(timestamp=now_ms)


def send_letter(send: Callable[..., None], letter: OutputRecord, now_ms: int) -> None:
    """Sends a dead letter with ``send``, the method of a `Collector`. A refused letter goes out `with_clock`.

    Raises `ResultRefused` if brokers refuse the letter for another reason.
    """
    try:
        send(*letter)
    except ResultRefused:
        again = with_clock(letter, now_ms)
        if again is None:
            raise
        send(*again)


def hides_text(error: BaseException, config: StreamsConfig) -> bool:
    """True if a message must leave out the text of an exception: ``show_record`` is set, and the text may quote a
    record."""
    own = isinstance(error, StreamsError) and not isinstance(error, SerializationError)
    return config.show_record is not None and not own and not isinstance(error, FAILURES)


def said(error: BaseException, config: StreamsConfig) -> str:
    """An exception in a message: the type, and the text unless the text is hidden (`hides_text`).

    The text may quote a record, and the message may stand in a log. So further lines of the text are indented, and none
    of them can pass for a line of the log.
    """
    kind = type(error).__name__
    if hides_text(error, config):
        return f"{kind} (its text is hidden, because show_record is set)"
    text = text_of(error)
    if len(text) > _MOST_SAID:  # the text may quote the whole record
        text = f"{text[:_MOST_SAID]}... ({counted(len(text), 'character')})"
    return f"{kind}: {printable(text)}".replace("\n", "\n    ") if text else kind


def text_of(error: BaseException) -> str:
    """The text of an exception. The class of the exception may be the user's, and its ``__str__`` may raise."""
    try:
        return str(error)
    except Exception as wrong:
        return f"the exception has no text, because its __str__ raises {type(wrong).__name__}"


def short(error: BaseException) -> str:
    """An exception in one line.

    >>> short(ValueError("no flight")), short(TimeoutError())
    ('ValueError: no flight', 'TimeoutError')
    """
    kind, text = type(error).__name__, printable(text_of(error)).replace("\n", " ")
    return f"{kind}: {text}"[:500] if text else kind


def record_at(topic: str, partition: int, offset: int) -> str:
    """The place of a record, in a message.

    >>> record_at("flights", 2, 81)
    'record of flights-2 at offset 81'
    """
    return f"record of {topic}-{partition} at offset {offset}"


def masked(show: Callable[[bytes | None, bytes | None], str], key: bytes | None, value: bytes | None) -> str:
    """The record as ``show_record`` shows it."""
    try:
        return show(key, value)
    except Exception as wrong:
        return f"hidden: show_record itself failed with {type(wrong).__name__}"


def topics_of(letters: Iterable[OutputRecord]) -> str:
    """The topics of dead letters, for a message."""
    return ", ".join(dict.fromkeys(letter.topic for letter in letters))


def error_headers(error: Exception) -> Headers:
    """The headers that describe an exception in a dead letter (KIP-1034)."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    stack = "".join(traceback.format_exception(error))
    return (
        ("__streams.errors.exception", name.encode()),
        ("__streams.errors.stacktrace", _cut(stack)),
        ("__streams.errors.message", _cut(text_of(error))),
    )


def _cut(text: str) -> bytes:
    """The beginning and end of a long text.

    The traceback of a deep recursion could make a dead letter larger than its topic allows.
    """
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT // 2]}\n...\n{text[-_MOST_TEXT // 2 :]}"
    return text.encode(errors="replace")
