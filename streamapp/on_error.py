"""Answers to an exception: ``on_error=`` of an operator, and the exception handlers of `StreamsConfig`.

An exception is a *failure* if a service is the cause (`FAILURES`), and otherwise an *error*, whose cause is the record.
An answer decides what happens to the record. `Retry` keeps the record of a failure for another attempt, and does not
count the failed call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from math import log
from typing import Any, Literal
from zlib import crc32

from streamapp._base.callables import is_plain_function
from streamapp._base.durations import Duration, to_ms
from streamapp._base.names import check_topic_name
from streamapp._base.whole_numbers import check_whole
from streamapp.errors import ConfigError, ServiceDown, TopologyError
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
"""The answer to a record that fails.

- ``fail`` ends the worker or consumer. The record is not committed, and is read again after the next start (not by a
  consumer with ``"at_most_once"``). If ``dead_letter_queue_topic`` is set, topologies, and consumers without
  ``output``, also send a dead letter, which ``exactly_once_v2`` rolls back.
- ``skip`` drops the record and counts the drop.
- ``dead_letter`` sends the record to ``dead_letter_queue_topic``, which has to be set.
- ``continue``, Kafka Streams' word, means ``dead_letter`` if ``dead_letter_queue_topic`` is set, otherwise ``skip``.

After the failure of a service (`FAILURES`), ``skip`` and ``dead_letter`` mean ``fail``, but without a dead letter. A
consumer then ends under every answer except a `Retry`.
"""

ANSWERS = ("fail", "continue", "skip", "dead_letter")

DROPS = (
    "late",
    "expired",
    "null_key",
    "null_value",
    "out_of_order",
    "no_partition",
    "superseded",
    "negative_timestamp",
)
"""Reasons for which operators drop records without an error; docs/failures.md explains each. Metrics count the dropped
records by these names, and ``dead_letter_drops`` of `StreamsConfig` takes them."""

FAILURES: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, ServiceDown)
"""Exceptions that count as the failure of a service, because the record is not their cause."""


@dataclass(frozen=True)
class ErrorContext:
    """The record that failed, and the operator in which it failed; the first argument of an exception handler.

    ``topic``, ``partition``, ``offset``, ``timestamp`` (ms), ``headers``, ``key`` and ``value`` (bytes) belong to the
    source record. ``processor`` is the name of the operator, agent or consumer.

    ``task_id`` is the task, for example ``0_3``. For a consumer, ``task_id`` consists of its name and the partition,
    for example ``charge_3``. For an agent, ``task_id`` is empty.

    ``attempt`` counts the calls of the operator's function for the record, the failed call included. With a `Retry`,
    calls that ended because a service failed do not count.

    A punctuator has no source record, and an agent may fail outside of a record. Then ``topic`` is empty, ``partition``
    and ``offset`` are -1, and ``key`` and ``value`` are None. A row of a `ColumnSource` (Spark) has a topic, but no
    task, partition or offset, and ``value`` is its text.
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
    """An answer with dead letters of your own, which replace the usual dead letter.

    A `Response` is the result of a function that is an exception handler, or the ``on_error`` of an operator or a
    consumer. Keys and values of the letters are bytes or None. Raises `ConfigError` for a letter that is
    no `OutputRecord`, and for an illegal name of a topic. The same holds for keys, values, timestamps or partitions of
    a wrong type.

    Source: KIP-1034, ``ProcessingExceptionHandler.Response``.

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
            _check_letter(letter)

    @classmethod
    def resume(cls, *dead_letters: OutputRecord) -> Response:
        """The answer to go on without the record, and to send these dead letters."""
        return cls("continue", dead_letters)

    @classmethod
    def fail(cls, *dead_letters: OutputRecord) -> Response:
        """The answer to end the worker, and to send these dead letters. ``exactly_once_v2`` rolls them back."""
        return cls("fail", dead_letters)


Chooser = Callable[[ErrorContext, Exception], "Answer | Response"]


@dataclass(frozen=True)
class Backoff:
    """The wait between two attempts: ``first``, then each time ``factor`` times the wait before, up to ``limit``.

    Each wait is shortened by a share between 0 and ``jitter`` (at least 0, below 1). Keys that fail at the same time
    therefore have their next attempts at different times. The share is computed from key and attempt, so a test sees
    the same waits each time. Durations are timedelta or ms. Raises `ConfigError` for values out of range.

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
        numbers = all(isinstance(each, int | float) for each in (self.factor, self.jitter))
        if not numbers or not 1 <= self.factor <= 1_000 or not 0 <= self.jitter < 1:
            raise ConfigError(
                f"factor of Backoff is between 1 and 1000, jitter at least 0 and below 1, not {self.factor!r} "
                f"and {self.jitter!r}"
            )

    @property
    def limit_ms(self) -> int:
        """The longest wait in ms."""
        return to_ms(self.limit, "limit")

    def delay_ms(self, attempt: int, key: bytes = b"") -> int:
        """The wait in ms after this attempt has failed. The first attempt is 1."""
        first, limit = to_ms(self.first, "first"), self.limit_ms
        grown = (attempt - 1) * log(self.factor) < log(limit / first)
        wait = first * self.factor ** (attempt - 1) if grown else limit if self.factor > 1 else first
        share = crc32(b"%d %b" % (attempt, key)) / 2**32
        return max(1, round(wait * (1 - self.jitter * share)))


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Tries a failed record again later.

    Three methods make the three kinds. With `by_key`, later records of the same key wait behind the failed record. With
    `in_place`, all later records of the task wait. With `topics`, no other record waits. The failed record itself is
    in a store with a changelog, or with `topics` in an internal topic. After a crash, the task goes on with the records
    and attempts of the last commit.

    In a consumer (`App.consume`), failed records wait in memory, and after a crash the attempts begin anew.
    ``max_records`` and ``max_bytes`` apply to each partition. With `in_place`, later records of the partition wait. If
    a service fails, the record waits as after an error. All partitions of the consumer wait if the service fails too
    often for the setting ``circuit_breaker`` of the consumer.

    ``backoff`` gives the wait before each attempt (`Backoff`). ``then`` is the answer if ``times`` more attempts have
    failed, or if an attempt fails when ``max_age`` has passed since the first error. With ``times=None`` the number of
    attempts has no limit. ``choose(context, exception)`` is an optional function that decides after each error:
    "retry", or an `Answer`. "retry" does not lift the limits ``times`` and ``max_age``.

    ``failures`` are the exceptions that count as the failure of a service. A failure uses up no attempt. With `by_key`
    and `in_place`, the operator's task takes no further record until the service answers again. Meanwhile ``/status``
    shows an open circuit breaker. With `topics`, the failed record waits for the same delay again, and other records
    go on.

    ``max_records`` and ``max_bytes`` limit the records of the operator that wait in one task. At a limit ``when_full``
    decides. With "wait", the default, the task takes no further record until fewer records wait. Each other answer
    applies to the record that exceeds the limit.

    ``key_serde`` and ``value_serde`` encode the records that wait. The default is the stream's serde, then the
    configuration's. Raises `ConfigError` for a wrong option.

    On Spark no record waits: all attempts follow each other at once. The failure of a service ends the run there.
    Spark refuses `topics` and ``times=None``.

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
        if self.times is not None:
            check_whole(self.times, "times of Retry (None: no limit)")
        if not isinstance(self.backoff, Backoff):
            raise ConfigError(f"backoff of Retry has to be a Backoff, not {self.backoff!r}")
        _one_of(self.then, ("fail", "skip", "dead_letter"), "then of Retry")
        _one_of(self.when_full, ("wait", "fail", "skip", "dead_letter"), "when_full of Retry")
        kinds = self.failures if isinstance(self.failures, Iterable) else (self.failures,)
        object.__setattr__(self, "failures", tuple(kinds))
        for kind in self.failures:
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise ConfigError(f"failures of Retry have to be types of exceptions, not {kind!r}")
        if self.choose is not None and not is_plain_function(self.choose, 2):
            raise ConfigError(
                "choose of Retry has to be a function (no coroutine function) of an ErrorContext and an exception, not "
                f"{self.choose!r}"
            )
        check_whole(self.max_records, "max_records of Retry")
        check_whole(self.max_bytes, "max_bytes of Retry")
        if self.max_age is not None and to_ms(self.max_age, "max_age of Retry") < 1:
            raise ConfigError(f"max_age of Retry has to be at least 1 ms, not {self.max_age}")
        for part in ("key_serde", "value_serde"):
            if getattr(self, part) is not None:
                check_serde(getattr(self, part), f"{part} of Retry")

    @classmethod
    def by_key(cls, **options: Any) -> Retry:
        """The failed record waits for its next attempt, and later records of its key wait behind the failed record.

        The records of a key keep their order. Records of other keys go on, and so do all records if the failed record
        has no key. The whole task waits after the failure of a service, and while the records that wait have reached a
        limit (``max_records``, ``max_bytes``, ``when_full``). Options are the fields of `Retry`.
        """
        _check_options("by_key", options)
        return cls(by="key", **options)

    @classmethod
    def in_place(cls, **options: Any) -> Retry:
        """The task takes no further record until the failed record is done, so the order within the partition stays.

        In a consumer, only the partition of the failed record waits. Options are the fields of `Retry`.
        """
        _check_options("in_place", options)
        return cls(by="partition", **options)

    @classmethod
    def topics(cls, *delays: Duration, **options: Any) -> Retry:
        """The failed record waits in an internal topic, and all other records go on.

        Each delay has a topic of its own. A later record of the same key may overtake the failed record. One attempt
        comes after each delay. If the last attempt fails, ``then`` is the answer. After the failure of a service, the
        record waits for the same delay again, and no attempt is used up. Consumers cannot have `topics`.

        Durations are timedelta or ms. Options are ``then``, ``failures``, ``choose``, ``key_serde`` and
        ``value_serde``. Raises `ConfigError` for other options, and without a delay.

        >>> Retry.topics(5_000, 60_000, 600_000).times
        3
        """
        if not delays:
            raise ConfigError(
                "Retry.topics() needs a delay for each attempt, such as Retry.topics(5_000, 60_000)"
            )
        for delay in delays:
            if to_ms(delay, "a delay of Retry.topics()") < 1:
                raise ConfigError(f"a delay of Retry.topics() has to be at least 1 ms, not {delay}")
        unknown = options.keys() - {"then", "failures", "choose", "key_serde", "value_serde"}
        if unknown:
            raise ConfigError(
                f"Retry.topics() takes no {', '.join(sorted(unknown))}: the delays already say how often and when the "
                "record is tried again, and a topic has no limit of records"
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
        """The answers ``then`` and ``when_full``, for checks while the topology is built."""
        return frozenset((self.then, self.when_full)) - {"wait"}


OnError = Answer | Retry | Chooser
"""The ``on_error=`` of an operator: an answer, a `Retry`, or a function that chooses by record and exception."""


def check_on_error(on_error: object, where: str) -> None:
    """Raises `ConfigError` if ``on_error`` is no `OnError`.

    >>> check_on_error("ignore", "map_values()")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: on_error of map_values() is "fail", "skip", "dead_letter", "continue", a Retry or \
a function (no coroutine function) of an ErrorContext and an exception, not 'ignore'
    """
    if isinstance(on_error, str) and on_error in ANSWERS:
        return
    if isinstance(on_error, Retry) or (not isinstance(on_error, type) and is_plain_function(on_error, 2)):
        return
    raise ConfigError(
        f'on_error of {where} is "fail", "skip", "dead_letter", "continue", a Retry or a function (no coroutine '
        f"function) of an ErrorContext and an exception, not {on_error!r}"
    )


def _check_letter(letter: OutputRecord) -> None:
    where = f"a letter of the Response, for topic {letter.topic!r},"
    try:
        check_topic_name(letter.topic, "the topic of a letter")
    except TopologyError as error:
        raise ConfigError(str(error)) from None
    for name, content in (("key", letter.key), ("value", letter.value)):
        if not isinstance(content, bytes | None):
            raise ConfigError(
                f"{where} has the {name} {content!r}: give bytes or None, such as those of the ErrorContext"
            )
    for name, number in (("timestamp", letter.timestamp), ("partition", letter.partition)):
        if not isinstance(number, int | None):
            raise ConfigError(f"{where} has the {name} {number!r}: give an int or None")


def _check_options(method: str, options: Iterable[str]) -> None:
    known = [each.name for each in fields(Retry) if each.name not in ("by", "delays")]
    for name in options:
        if name in ("first", "limit", "factor", "jitter"):
            raise ConfigError(f"Retry.{method}() takes no {name}: give backoff=Backoff({name}=...)")
        if name not in known:
            raise ConfigError(f"Retry.{method}() takes no {name}: its options are {', '.join(known)}")


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ConfigError(f"{what} is one of {', '.join(allowed)}, not {value!r}")
