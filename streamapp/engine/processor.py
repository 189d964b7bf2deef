"""The Processor API: base classes for operators that a user writes, with state stores and punctuators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, overload

from streamapp.engine.equality import same
from streamapp.errors import StreamsError
from streamapp.records import Headers, Record
from streamapp.state.spec import StoreSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has defaults, which only type checkers need

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    KIn = TypeVar("KIn", default=Any, contravariant=True)
    VIn = TypeVar("VIn", default=Any, contravariant=True)
    KOut = TypeVar("KOut", default=Any, covariant=True)
    VOut = TypeVar("VOut", default=Any, covariant=True)
    KForward = TypeVar("KForward", default=Any, contravariant=True)
    VForward = TypeVar("VForward", default=Any, contravariant=True)
else:
    from typing import TypeVar

    K, V, KIn, VIn, KOut, VOut, KForward, VForward = map(
        TypeVar, ("K", "V", "KIn", "VIn", "KOut", "VOut", "KForward", "VForward")
    )

S = TypeVar("S")
V2 = TypeVar("V2")

__all__ = [
    "Cancellable",
    "FixedKeyProcessor",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "RecordMetadata",
]


class PunctuationType(Enum):
    """The clock that a punctuator follows.

    >>> PunctuationType("stream_time")
    <PunctuationType.STREAM_TIME: 'stream_time'>
    """

    STREAM_TIME = "stream_time"
    """The largest timestamp of all records that the task has processed. This clock stands still without input."""
    WALL_CLOCK_TIME = "wall_clock_time"
    """The clock of the machine; in `TopologyTestDriver`, the clock of the test."""


class RecordMetadata(NamedTuple):
    """The topic, partition and offset of the current record.

    >>> from streamapp.testing import try_out
    >>> class Where(Processor):
    ...     def process(self, record: Record) -> None:
    ...         self.context.forward(record.with_value(self.context.record_metadata))
    >>> try_out(lambda words: words.process(Where), [("a", "to")])
    [('a', RecordMetadata(topic='input-0', partition=0, offset=0))]
    """

    topic: str
    partition: int
    offset: int


class Cancellable(Protocol):
    """A scheduled punctuator, the result of `ProcessorContext.schedule`.

    >>> from streamapp.testing import try_out
    >>> class Once(Processor):
    ...     def init(self, context) -> None:
    ...         self.context = context
    ...         self.schedule = context.schedule(10, PunctuationType.STREAM_TIME, self.punctuate)
    ...     def process(self, record: Record) -> None: ...
    ...     def punctuate(self, time: int) -> None:
    ...         self.context.forward(Record("time", time, time))
    ...         self.schedule.cancel()
    >>> try_out(lambda words: words.process(Once), [("a", "to", 30), ("a", "be", 50)])
    [('time', 30)]
    """

    def cancel(self) -> None:
        """Stops the punctuator, so that its callback is not called again."""


class ProcessorContext(Protocol[KForward, VForward]):
    """The interface of a processor to its task: it forwards records, opens stores, and schedules punctuators.

    A processor gets its context as the argument of `Processor.init`. For type checkers, ``ProcessorContext[str, int]``
    forwards records with a str key and an int value.

    >>> from streamapp.testing import try_out
    >>> class Times(Processor):
    ...     def process(self, record: Record) -> None:
    ...         self.context.forward(record.with_value(self.context.current_stream_time_ms()))
    >>> try_out(lambda words: words.process(Times), [("a", "to", 30), ("a", "be", 10)])
    [('a', 30), ('a', 30)]
    """

    application_id: str
    task_id: str

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The source of the current record; None in a punctuator."""

    def forward(self, record: Record[KForward, VForward], child: str | None = None) -> None:
        """Hands a record to all operators that follow (children), or only to the child with this name.

        Raises `StreamsError` if ``record`` is no `Record` or has a negative timestamp, or if there is no such child.
        """

    @overload
    def get_state_store(self, store: StoreSpec[S]) -> S: ...
    @overload
    def get_state_store(self, store: str) -> Any: ...
    def get_state_store(self, store: str | StoreSpec[Any]) -> Any:
        """A global store, or a store that is connected to this processor. ``store`` is its name or its specification.

        With the specification (`StoreSpec`), a type checker knows the type of the store. Raises `StreamsError` for a
        store that is not connected.
        """

    def schedule(
        self,
        interval: Any,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_time: datetime | int | None = None,
    ) -> Cancellable:
        """Calls ``callback(timestamp)`` at intervals (timedelta or ms), but only once if several intervals have passed.

        ``type`` chooses the clock, and the timestamp is the time of this clock in ms. By stream time, the first call
        comes with the first record. Later calls come when stream time reaches a multiple of the interval (from 1970
        on). By the wall clock, the first call comes one interval from now. With ``start_time`` (datetime, or ms
        since the epoch), calls come at whole intervals from this time, for example at each full hour (KIP-1146).

        Raises `StreamsError` for an interval under 1 ms, for a negative start, and in the processor of a global store.
        Raises `UnsupportedOperation` for the wall clock on Spark.
        """

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has seen, also before a restart, in ms; -1: none."""

    def current_system_time_ms(self) -> int:
        """The wall clock in ms."""

    def commit(self) -> None:
        """Asks for a commit as soon as possible. The commit comes after the present record, not within this call."""


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """The base class of a user's processors. Each task has its own instance. (Kafka Streams:
    ``processor.api.Processor``.)

    The type arguments are the types of key and value that come in, then of key and value that go out. A type checker
    compares them with the types of the streams. A processor without type arguments fits every stream.

    >>> class Shout(Processor[str, str, str, str]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    stores: Sequence[StoreSpec] = ()
    """Stores of the processor. Each ``process()`` with this processor adds these stores to the topology and connects
    them."""
    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once, before the first record. Keeps the context as ``self.context``."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for each record."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once, when the task closes, to release resources of the processor."""


class FixedKeyRecord(Record[K, V]):
    """A record as a `FixedKeyProcessor` gets it. A copy with another value, timestamp or headers has the class, too. A
    copy with another key is a plain `Record`. So the class tells that the key is one that the processor has got. (Kafka
    Streams: ``processor.api.FixedKeyRecord``.)
    """

    __slots__ = ()

    def with_value(self, value: V2) -> FixedKeyRecord[K, V2]:
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K, V]:
        return FixedKeyRecord(*super().with_timestamp(timestamp))

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K, V]:
        return FixedKeyRecord(*super().with_headers(headers))

    def _replace(self, **changes: Any) -> Record[Any, Any]:  # type: ignore[override]
        return Record(*self)._replace(**changes)


class FixedKeyProcessor(Processor[K, VIn, K, VOut], Generic[K, VIn, VOut]):
    """A processor for ``process_values``, which must not change the key of a record.

    Because the key stays, later groupings and joins need no repartition topic. The processor may keep records, and
    forward them later, also while it processes a record of another key.

    >>> from streamapp.testing import try_out
    >>> class Length(FixedKeyProcessor):
    ...     def process(self, record: Record) -> None:
    ...         self.context.forward(record.with_value(len(record.value)))
    >>> try_out(lambda words: words.process_values(Length), [("a", "to")])
    [('a', 2)]
    """


def check_same_key(name: str, expected: Any, record: Record) -> None:
    """Raises `StreamsError` if a fixed-key processor forwards another key than ``expected``, and has not got the
    record."""
    if (
        record.__class__ is not FixedKeyRecord
        and record.key is not expected
        and not same(record.key, expected)
    ):
        raise StreamsError(
            f"{name} changed the key from {expected!r} to {record.key!r}: process_values() must keep it. "
            "Use process() instead"
        )
