"""Answers to a failure: ``on_error=`` of an operator, and the exception handlers of `StreamsConfig`.

A function raises an *error* because of the record, or a *failure* because a service does not answer. An answer decides
about the record of an error. After a failure, `Retry` waits until the service is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

from streamapp._base.callables import accepts
from streamapp._base.durations import Duration, to_ms
from streamapp.errors import ConfigError, ServiceDown
from streamapp.records import Headers, OutputRecord
from streamapp.serdes.base import Serde, check_serde

__all__ = [
    "ANSWERS",
    "DROPS",
    "FAILURES",
    "Answer",
    "Backoff",
    "Chooser",
    "ErrorContext",
    "OnError",
    "Response",
    "Retry",
    "check_on_error",
]

Answer = Literal["fail", "continue", "skip", "dead_letter"]
"""``fail`` ends the worker. ``skip`` drops the record and counts the drop. ``dead_letter`` sends the record to the
dead-letter topic. ``continue``, Kafka Streams' word, is ``dead_letter`` where a dead-letter topic is set, else
``skip``."""

ANSWERS = ("fail", "continue", "skip", "dead_letter")

DROPS = (
    "late",
    "expired",
    "null_key",
    "null_value",
    "out_of_order",
    "superseded",
    "negative_timestamp",
)
"""Reasons for which operators drop records without an error; ``drops`` counts the records by reason."""

FAILURES: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, ServiceDown)
"""Exceptions that mean: a service fails, and the record is not the cause."""


@dataclass(frozen=True)
class ErrorContext:
    """The place where a record failed, for exception handlers.

    ``timestamp`` is in ms. ``key`` and ``value`` are the bytes of the source record. ``attempt`` counts from 1.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    processor: str
    task_id: str
    key: bytes | None = None
    value: bytes | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Response:
    """An answer with dead letters that the handler has made. No other letter is sent.

    Handlers for deserialization, processing and production may return a `Response`, also handlers of agents and
    consumers. The letters have the bytes that brokers get. Raises `ConfigError`. Source: KIP-1034,
    ``ProcessingExceptionHandler.Response``.

    >>> Response.resume(OutputRecord("flights-bad", b"N1", b"?", None)).action
    'continue'
    """

    action: Literal["fail", "continue"]
    dead_letters: tuple[OutputRecord, ...] = ()

    def __post_init__(self) -> None:
        if self.action not in ("fail", "continue"):
            raise ConfigError(f'the action of a Response is "fail" or "continue", not {self.action!r}')
        object.__setattr__(self, "dead_letters", tuple(self.dead_letters))
        for letter in self.dead_letters:
            if not isinstance(letter, OutputRecord):
                raise ConfigError(f"the dead_letters of a Response are OutputRecords, not {letter!r}")

    @classmethod
    def resume(cls, *dead_letters: OutputRecord) -> Response:
        """Goes on without the record."""
        return cls("continue", dead_letters)

    @classmethod
    def fail(cls, *dead_letters: OutputRecord) -> Response:
        """Ends the worker."""
        return cls("fail", dead_letters)


Chooser = Callable[[ErrorContext, Exception], "Answer | Response"]


@dataclass(frozen=True)
class Backoff:
    """The wait between two attempts: ``first``, then ``factor`` times as long each time, up to ``limit``.

    ``jitter`` shortens each wait by up to this share, so that the attempts of many keys do not come at once. The share
    follows from the key and the attempt. Durations are timedelta or ms. Raises `ConfigError` for values out of range.

    >>> [Backoff(100, limit=500, jitter=0).delay_ms(attempt) for attempt in (1, 2, 3, 4)]
    [100, 200, 400, 500]
    """

    first: Duration = 1_000
    limit: Duration = 60_000
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        first, limit = to_ms(self.first, "first wait of Backoff"), to_ms(self.limit, "limit of Backoff")
        if first < 1 or limit < first:
            raise ConfigError(
                f"Backoff waits at least 1 ms, and its limit is no shorter than the first wait: first={first} ms, "
                f"limit={limit} ms"
            )
        if not 1 <= self.factor <= 1_000 or not 0 <= self.jitter < 1:
            raise ConfigError(
                f"factor of Backoff is between 1 and 1000, jitter at least 0 and below 1, not {self.factor} and "
                f"{self.jitter}"
            )

    def delay_ms(self, attempt: int, key: bytes = b"") -> int:
        """The wait in ms after an attempt, counted from 1, has failed."""
        first, limit = to_ms(self.first, "first"), to_ms(self.limit, "limit")
        wait = min(float(limit), first * self.factor ** min(attempt - 1, 60))
        share = crc32(b"%d %b" % (attempt, key)) / 2**32
        return max(1, round(wait * (1 - self.jitter * share)))


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Tries a failed record again later.

    `Retry.by_key`, `Retry.in_place` and `Retry.topics` make the three kinds. The kinds differ in the records that wait
    meanwhile. A record waits in a store with a changelog, so that an attempt is counted once and the count survives a
    crash.

    ``then`` answers after ``times`` more attempts, or when the record has waited for ``max_age``. With ``times=None``
    the number of attempts has no limit. ``choose(context, exception)`` may answer for an error: "retry", or one of
    `Answer`.

    ``failures`` are exceptions that mean: a service fails. A failure uses up no attempt. The operator's task takes no
    further record until the service answers, and ``/status`` shows the open circuit breaker.

    ``max_records`` and ``max_bytes`` limit the waiting records of one task. At a limit ``when_full`` decides. With
    ``wait`` the task takes no further record until fewer records wait. The other answers are for the record above the
    limit.

    ``key_serde`` and ``value_serde`` write the records that wait. The default is the stream's serde, then the
    configuration's. On Spark nothing waits: the attempts follow each other at once. Raises `ConfigError`.

    >>> Retry.by_key(times=3).then
    'dead_letter'
    """

    by: Literal["key", "partition", "topic"]
    times: int | None = 5
    backoff: Backoff = field(default_factory=Backoff)
    then: Literal["fail", "skip", "dead_letter"] = "dead_letter"
    failures: tuple[type[Exception], ...] = FAILURES
    choose: Callable[[ErrorContext, Exception], Answer | Literal["retry"]] | None = None
    max_records: int = 10_000
    max_bytes: int = 16 * 1024 * 1024
    max_age: Duration | None = None
    when_full: Literal["wait", "fail", "skip", "dead_letter"] = "wait"
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    delays: tuple[Duration, ...] = ()

    def __post_init__(self) -> None:
        if self.times is not None and (
            isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1
        ):
            raise ConfigError(f"times of Retry is 1 or more, or None for ever, not {self.times!r}")
        if not isinstance(self.backoff, Backoff):
            raise ConfigError(f"backoff of Retry is a Backoff, not {self.backoff!r}")
        _one_of(self.then, ("fail", "skip", "dead_letter"), "then of Retry")
        _one_of(self.when_full, ("wait", "fail", "skip", "dead_letter"), "when_full of Retry")
        kinds = self.failures if isinstance(self.failures, Iterable) else (self.failures,)
        object.__setattr__(self, "failures", tuple(kinds))
        for kind in self.failures:
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise ConfigError(f"failures of Retry are types of exceptions, not {kind!r}")
        if self.choose is not None and not accepts(self.choose, 2):
            raise ConfigError("choose of Retry is a function of an ErrorContext and an exception")
        if self.max_records < 1 or self.max_bytes < 1:
            raise ConfigError("max_records and max_bytes of Retry are at least 1")
        if self.max_age is not None and to_ms(self.max_age, "max_age of Retry") < 1:
            raise ConfigError(f"max_age of Retry is too short: {self.max_age}")
        for part in ("key_serde", "value_serde"):
            if getattr(self, part) is not None:
                check_serde(getattr(self, part), f"{part} of Retry")

    @classmethod
    def by_key(cls, **options: Any) -> Retry:
        """The failed record waits, and later records of its key wait behind it in order. All other keys go on.

        A record without a key waits alone. Options are the fields of `Retry`.
        """
        return cls(by="key", **options)

    @classmethod
    def in_place(cls, **options: Any) -> Retry:
        """The task takes no further record until the failed record is done, so that the partition's order is kept."""
        return cls(by="partition", **options)

    @classmethod
    def topics(cls, *delays: Duration, **options: Any) -> Retry:
        """The failed record waits in an internal topic, one topic for each delay; all other records go on.

        Records of one key may change their order. There is one attempt after each delay, then ``then`` answers. A
        failure of a service uses up no attempt: the record waits for the same delay again. Durations are timedelta or
        ms. Options are ``then``, ``failures``, ``choose``, ``key_serde`` and ``value_serde``. Raises `ConfigError`.

        >>> Retry.topics(5_000, 60_000, 600_000).times
        3
        """
        if not delays:
            raise ConfigError(
                "Retry.topics() needs a delay for each attempt, such as Retry.topics(5_000, 60_000)"
            )
        for delay in delays:
            if to_ms(delay, "a delay of Retry.topics()") < 1:
                raise ConfigError(f"a delay of Retry.topics() is too short: {delay}")
        unknown = options.keys() - {"then", "failures", "choose", "key_serde", "value_serde"}
        if unknown:
            raise ConfigError(
                f"Retry.topics() takes no {', '.join(sorted(unknown))}: the delays say how often and when, and topics "
                "have no bound"
            )
        return cls(by="topic", delays=delays, times=len(delays), **options)

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """``delays`` in ms."""
        return tuple(to_ms(delay, "a delay") for delay in self.delays)

    @property
    def max_age_ms(self) -> int | None:
        """``max_age`` in ms."""
        return None if self.max_age is None else to_ms(self.max_age, "max_age")

    @property
    def answers(self) -> frozenset[str]:
        """The answers of ``then`` and ``when_full``, which are known before a record fails."""
        return frozenset((self.then, self.when_full)) - {"wait"}


OnError = Answer | Retry | Chooser
"""The ``on_error=`` of an operator: an answer, a `Retry`, or a function that chooses by record and exception."""


def check_on_error(on_error: object, where: str) -> None:
    """Raises `ConfigError` if ``on_error`` is no `OnError`.

    >>> check_on_error("ignore", "map_values()")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: on_error of map_values() is "fail", "skip", "dead_letter", "continue", a Retry or \
a function of an ErrorContext and an exception, not 'ignore'
    """
    if isinstance(on_error, str) and on_error in ANSWERS:
        return
    if isinstance(on_error, Retry) or (not isinstance(on_error, type) and accepts(on_error, 2)):
        return
    raise ConfigError(
        f'on_error of {where} is "fail", "skip", "dead_letter", "continue", a Retry or a function of an ErrorContext '
        f"and an exception, not {on_error!r}"
    )


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ConfigError(f"{what} is one of {', '.join(allowed)}, not {value!r}")
