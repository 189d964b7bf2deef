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
    "ONLY_GROUP",
    "PASSES",
    "REPLAY",
    "SERVICE_FAILED",
    "Judgement",
    "ProcessingFailed",
    "dead_letter",
    "error_headers",
    "going_on",
    "hides_text",
    "is_untimely",
    "judge",
    "letter_refused",
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
    "without_loss",
]

_MOST_TEXT = 16_000
"""The number of characters that a header of a dead letter keeps of a traceback or of an exception's text."""
_MOST_SAID = 2_000
"""The number of characters that a message has of an exception's text."""

_NEAR_MS = 10_000

LETTER = "__streamapp.errors."
"""The prefix of the headers that streamapp adds to a dead letter. KIP-1034 has the other headers."""

REPLAY = "__streamapp.replay."
"""The prefix of the headers that a replayed record has.

These headers name the letter and its operator, say if the letter was edited, and count the replays.
"""

ONLY_GROUP = f"{REPLAY}only-group"
"""The header of a record that is replayed for one consumer group: the topic of the record, a space, the group.

Topologies copy headers to their results. So the header names the topic, and means nothing in other topics.
"""

SERVICE_FAILED = "a service failed and not the record"
"""Begins the remedy for the failure of a service (`FAILURES`)."""

PASSES = (
    f"{SERVICE_FAILED}: the record comes again after a restart. An operator with on_error=Retry.by_key() or "
    "Retry.in_place() waits until the service is back"
)
"""The remedy for the failure of a service, if the answer stops the worker (`without_loss`)."""

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


def without_loss(on_error: Answer | Chooser, error: BaseException) -> Answer | Chooser:
    """The ``on_error`` to follow for an error: "fail" in place of "skip" and "dead_letter" if a service has failed.

    The failure of a service (`FAILURES`) is not the fault of the record, so an outage must drop no records. The
    function returns "continue" (as in Kafka Streams) and a function of the user as they are. For all other errors, the
    function returns every ``on_error`` as it is.

    >>> without_loss("skip", ConnectionError("registry")), without_loss("continue", ConnectionError("registry"))
    ('fail', 'continue')
    """
    return "fail" if on_error in ("skip", "dead_letter") and service_failed(error) else on_error


class ProcessingFailed(StreamsError):
    """A record could not be handled, and the task must stop, for example because the exception handler says so.

    ``remedy`` is the part of the message that says how the application may go on, and ``place`` names the record.
    """

    remedy: str = ""
    place: str = ""


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
        return letter._replace(timestamp=min(context.timestamp, now_ms))
    return letter


def is_untimely(timestamp: int | None, now_ms: int) -> bool:
    """True if brokers may refuse a record for its timestamp. False for a timestamp of the last 10 seconds, and for
    None.

    A topic takes no record further ahead than ``message.timestamp.after.max.ms`` (by default an hour), and no record
    older than ``message.timestamp.before.max.ms`` (by default any age). Brokers may take seconds for their answer. So a
    timestamp of the last 10 seconds counts as that of the clock.
    """
    return timestamp is not None and not now_ms - _NEAR_MS <= timestamp <= now_ms


def with_clock(letter: OutputRecord, now_ms: int) -> OutputRecord | None:
    """The letter with the time of the clock, for brokers that have refused the letter.

    None: the time of the letter is that of the clock already, so brokers have another reason. In a usual letter
    (`dead_letter`), a header keeps the time of the record.

    >>> ahead, old = OutputRecord("dead", None, b"v", 90_000), OutputRecord("dead", None, b"v", 10)
    >>> with_clock(ahead, 60_000).timestamp, with_clock(old, 60_000).timestamp
    (60000, 60000)
    """
    return letter._replace(timestamp=now_ms) if is_untimely(letter.timestamp, now_ms) else None


def send_letter(send: Callable[..., None], letter: OutputRecord, now_ms: int) -> None:
    """Sends a dead letter with ``send``, the method of a `Collector`.

    If brokers have refused the letter, perhaps for its timestamp, sends the letter with the time of the clock instead
    (`with_clock`). Raises `ResultRefused` if brokers refuse the letter for another reason.
    """
    try:
        send(*letter)
    except ResultRefused:
        again = with_clock(letter, now_ms)
        if again is None:
            raise
        send(*again)


def letter_refused(
    record: str, topic: str, refused: Exception, cause: str, config: StreamsConfig
) -> ProcessingFailed:
    """The error for a dead letter that brokers refuse. ``record`` begins the message, and ``cause`` is the failure of
    the record itself, such as "failed: ValueError"."""
    remedy = f". {refused.remedy}" if isinstance(refused, ResultRefused) and refused.remedy else ""
    why = f"{said(refused, config)}{remedy}"
    return ProcessingFailed(
        f"{record} has a dead letter that {topic} does not take: {why}. The record {cause}"
    )


def going_on(letters: Iterable[OutputRecord]) -> str:
    """The words for a record that is dropped, and for its dead letters, which brokers may still refuse.

    >>> going_on([OutputRecord("dead", None, None, None)]), going_on([])
    ('going on without it, once brokers have its dead letter in dead', 'going on without it')
    """
    topics = topics_of(letters)
    return (
        f"going on without it, once brokers have its dead letter in {topics}"
        if topics
        else "going on without it"
    )


def hides_text(error: BaseException, config: StreamsConfig) -> bool:
    """True if a message must leave out the text of an exception: ``show_record`` is set, and the text may quote a
    record."""
    own = isinstance(error, StreamsError) and not isinstance(error, SerializationError)
    return config.show_record is not None and not own and not isinstance(error, FAILURES)


def said(error: BaseException, config: StreamsConfig) -> str:
    """An exception as it stands in a message: the type, and the text unless the text is hidden (`hides_text`).

    The text may quote a whole record, so a long text is cut. The message may stand in a log. So further lines of the
    text are indented, and no further line can pass for a line of the log.
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
    """The type and the text of an exception in one line of at most 500 characters.

    >>> short(ValueError("no flight")), short(TimeoutError())
    ('ValueError: no flight', 'TimeoutError')
    """
    kind, text = type(error).__name__, printable(text_of(error)).replace("\n", " ")
    return f"{kind}: {text}"[:500] if text else kind


def record_at(topic: str, partition: int, offset: int) -> str:
    """The place of a record, as it stands in a message.

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
