"""The Processor API: operators that a user writes, with state stores and punctuators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, overload

from streamapp.engine.equality import same
from streamapp.errors import StreamsError
from streamapp.records import Record
from streamapp.state.spec import StoreSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # has defaults, which only type checkers need

    K = TypeVar("K", default=Any)
    KIn = TypeVar("KIn", default=Any, contravariant=True)
    VIn = TypeVar("VIn", default=Any, contravariant=True)
    KOut = TypeVar("KOut", default=Any, covariant=True)
    VOut = TypeVar("VOut", default=Any, covariant=True)
    KForward = TypeVar("KForward", default=Any, contravariant=True)
    VForward = TypeVar("VForward", default=Any, contravariant=True)
else:
    from typing import TypeVar

    K, KIn, VIn, KOut, VOut, KForward, VForward = map(
        TypeVar, ("K", "KIn", "VIn", "KOut", "VOut", "KForward", "VForward")
    )

S = TypeVar("S")

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
    """The largest record timestamp of the task. This clock stands still without input."""
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
    """A scheduled punctuator.

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
        """Ends the calls."""


class ProcessorContext(Protocol[KForward, VForward]):
    """The argument of `Processor.init`: forwards records, and gives stores, times, punctuators and commits.

    ``ProcessorContext[str, int]`` forwards records with keys and values of these types.

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
        """Hands a record to all children, or to the child with this name.

        Raises `StreamsError` for a value that is no `Record`, for a negative timestamp, and for an unknown child.
        """

    @overload
    def get_state_store(self, store: StoreSpec[S]) -> S: ...
    @overload
    def get_state_store(self, store: str) -> Any: ...
    def get_state_store(self, store: str | StoreSpec[Any]) -> Any:
        """A store that is connected to this processor, or a global store, by name or by its specification.

        With a specification, a type checker knows the type of the store. Raises `StreamsError` for a store that is not
        connected.
        """

    def schedule(
        self,
        interval: Any,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_time: datetime | int | None = None,
    ) -> Cancellable:
        """Calls ``callback(timestamp)`` once each interval (timedelta or ms). The timestamp is in ms.

        The first call comes with the first record (stream time), or one interval from now (wall clock). With
        ``start_time`` (datetime, or ms since the epoch), calls come at whole intervals from this time, for example at
        each full hour (KIP-1146). Raises `StreamsError` for an interval under 1 ms or a negative start, and
        `UnsupportedOperation` for the wall clock in a batch on Spark.
        """

    def current_stream_time_ms(self) -> int:
        """The largest timestamp that the task has seen, in ms; -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The wall clock in ms."""

    def commit(self) -> None:
        """Asks for a commit as soon as possible."""


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """Base of a user's processors. Each task has one instance. (Kafka Streams: ``processor.api.Processor``.)

    A type checker compares the types of keys and values, in and out, with the types of the streams. A processor
    without types fits every stream.

    >>> class Shout(Processor[str, str, str, str]):
    ...     def process(self, record: Record[str, str]) -> None:
    ...         self.context.forward(record.with_value(record.value.upper()))
    """

    stores: Sequence[StoreSpec] = ()
    """Stores that come with the processor. Each use of the processor adds and connects the stores."""
    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Keeps the context. Called once, before the first record."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Handles one record. Called for each record."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases resources. Called once, when the task closes."""


class FixedKeyProcessor(Processor[K, VIn, K, VOut], Generic[K, VIn, VOut]):
    """A processor for ``process_values``, which must keep the key: later groupings and joins need no repartition topic.

    >>> from streamapp.testing import try_out
    >>> class Length(FixedKeyProcessor):
    ...     def process(self, record: Record) -> None:
    ...         self.context.forward(record.with_value(len(record.value)))
    >>> try_out(lambda words: words.process_values(Length), [("a", "to")])
    [('a', 2)]
    """


def check_same_key(name: str, expected: Any, record: Record) -> None:
    """Raises `StreamsError` if a fixed-key processor forwards another key."""
    if record.key is not expected and not same(record.key, expected):
        raise StreamsError(
            f"{name} changed the key from {expected!r} to {record.key!r}: process_values() must keep it. "
            "Use process() instead"
        )
