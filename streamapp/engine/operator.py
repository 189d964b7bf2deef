"""The port between a described step of a topology and the running task.

An operator is immutable, picklable data; the DSL creates it. `Operator.bind` is called once for each task and
returns the function that handles one record. The functions of a sub-topology call each other directly, so a
record runs through a chain of plain Python calls: nothing is looked up or allocated per record and node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamapp.records import Headers, RecordContext

if TYPE_CHECKING:
    from streamapp.engine.processor import PunctuationType
    from streamapp.on_error import Answer, Chooser, ErrorContext

__all__ = [
    "Change",
    "NodeContext",
    "Operator",
    "OperatorFailures",
    "ParkedStatus",
    "Parking",
    "ProcessFn",
    "TaskContext",
    "ValueGetter",
]

ProcessFn = Callable[[Any, Any, int, Headers], None]
"""Handles one record: key, value, timestamp in ms, headers."""

Change = tuple[Any, Any, bool]
"""What flows between table operators as the value: (new value, old value, is_latest).

The old value is None where nobody asked for it. ``is_latest`` is False for an out-of-order update of a versioned table (KIP-914).
"""

ValueGetter = Callable[[Any], "tuple[Any, int] | None"]
"""Reads a table's current row by key: (value, timestamp in ms), or None."""


class TaskContext(Protocol):
    """What stores and operators may know of their task. Mutable: the task sets the record's part for each record."""

    application_id: str
    task_id: str
    partition: int
    topic: str | None
    """Source topic of the record that is being processed."""
    offset: int
    timestamp: int
    """Timestamp of the source record in ms; operators pass timestamps on explicitly, only the Processor API and plain stores look here."""
    headers: Headers
    stream_time: int
    """Largest timestamp the task has seen, in ms; -1 before the first record."""
    log_each_write: bool
    """True: stores send a changelog record with every write, as Kafka Streams without a cache does (the test
    driver). False: the last value per key and commit (workers and Spark)."""
    retries_at_once: bool
    """`TaskRules.retries_at_once`."""
    foreign_key_join_recheck: bool
    """`StreamsConfig.foreign_key_join_recheck`, or True on a runner that always does."""

    @property
    def record_context(self) -> RecordContext:
        """The current record as one immutable value, for operators that hold records back."""

    def work_as(self, record: RecordContext, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function while the task processes a record that was held back; returns the function's result."""

    def restamped(self, timestamp: int, headers: Headers, call: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function while the current record has another timestamp and headers."""

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        """Sends one changelog record of a store (a no-op for stores without changelog)."""

    def drop(self, count: int, where: str, reason: str, *, in_total: bool = True) -> None:
        """Counts records that an operator or store drops, by reason. ``in_total``: Kafka Streams counts them in
        ``dropped-records-total``, too."""

    def add_parking(self, name: str, parking: Parking) -> None:
        """Registers an operator in which records may wait for a retry."""

    def wall_clock_ms(self) -> int:
        """The wall clock in ms, as the runner injects it."""

    def remember(self, name: str, read: Callable[[], int]) -> int:
        """Declares a number that has to survive a restart, such as an operator's own stream time. ``read`` gives
        it for each commit; the return value is that of the commit that the task continues from, or -1."""

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """An object that several operators of a task share; made by the first that asks."""

    def add_async_step(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """A step whose records wait for a coroutine of key and value; what it returns goes to ``forward`` with the record's
        key, timestamp and headers. See `streamapp.engine.asynchronous.AsyncStep`."""

    def schedule(
        self,
        node: str,
        interval_ms: int,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Any:
        """Calls ``callback(time in ms)`` at intervals of a clock."""


class Parking(Protocol):
    """Records of one operator that wait for a retry, as the task and those who look at it see them."""

    @property
    def room(self) -> int:
        """The number of records that the task may take before it asks again; 0: none for now."""

    @property
    def parked(self) -> ParkedStatus:
        """The records that wait, in numbers."""


@dataclass(frozen=True)
class ParkedStatus:
    """The records of one operator that wait for a retry. Times are ms since the epoch."""

    operator: str
    keys: int
    records: int
    bytes: int
    next_attempt: int | None
    closed: bool
    """The operator's task takes no further record."""
    circuit: str | None = None
    """The failure of a service that has opened the circuit; None: the circuit is closed."""
    open_since: int | None = None


class OperatorFailures(Protocol):
    """The task's answer to an exception, for an operator with ``on_error``."""

    def operator(self, error: Exception, node: str, on_error: Answer | Chooser) -> None:
        """Drops the record as the answer says. Raises `ProcessingFailed` where the answer is to stop."""

    def settle(
        self,
        error: Exception,
        node: str,
        on_error: Answer | Chooser,
        *,
        attempt: int = 1,
        reason: str = "failed",
    ) -> None:
        """Gives a record up that was tried, or could not be."""

    def context(self, node: str, attempt: int = 1) -> ErrorContext:
        """The current record, for a function that chooses."""


class NodeContext(Protocol):
    """What an operator gets to bind itself into one task."""

    name: str
    task: TaskContext
    forward: ProcessFn
    """Hands a record to all children of the node, in the order in which they were added, but its side outputs."""

    def forward_to(self, child: str) -> ProcessFn:
        """Hands a record to one child."""

    def drop(self, reason: str, count: int = 1, *, in_total: bool = True) -> None:
        """Counts records that the operator drops (see `TaskContext.drop`)."""

    @property
    def failures(self) -> OperatorFailures:
        """The decision about a record whose function raised."""

    def handled(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function for callers that work as a record that was held back. The exception handler is asked about an
        exception while the task still works as that record."""

    def store(self, name: str) -> Any:
        """The state store of that name, opened for this task (or the global store)."""


class Operator:
    """One step of a topology, described.

    Each class has a ``persistent_name`` of its own, by which snapshots remember the step. The name never changes.
    """

    @property
    def side_outputs(self) -> tuple[str, ...]:
        """Children that get only what the operator sends them by name, such as its late records."""
        return ()

    def bind(self, ctx: NodeContext) -> ProcessFn:
        """Returns the function that handles one record on one task."""
        raise NotImplementedError
