"""`Operator`: a step of a topology, and the interfaces between an operator and the task that runs it.

The DSL creates operators, which are immutable, picklable data. A task calls `Operator.bind` once, and gets the function
that handles one record. The functions of a sub-topology call each other directly, because lookups and new objects for
each record would be slow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from streamapp.records import Headers, RecordContext

if TYPE_CHECKING:
    from streamapp.engine.processor import PunctuationType
    from streamapp.on_error import Answer, Chooser, ErrorContext
    from streamapp.serdes.base import Serde

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
"""The value of a record between table operators: (new value, old value, is_latest).

A new value of None means that the row is deleted. The old value is always None if no operator needs old values.
``is_latest`` is False if a versioned table already has a later version of the row (KIP-914).
"""

ValueGetter = Callable[[Any], "tuple[Any, int] | None"]
"""Reads a table's current row by key: (value, timestamp in ms), or None."""


class TaskContext(Protocol):
    """The part of a task that stores and operators see. The task sets the fields of the record for each record."""

    application_id: str
    task_id: str
    partition: int
    topic: str | None
    """Source topic of the current record; None in a punctuator."""
    offset: int
    timestamp: int
    """Timestamp of the current record in ms; in a punctuator, the time of the call. Operators get timestamps as
    arguments. The Processor API reads this field, and so do stores whose caller gives no timestamp for a write."""
    headers: Headers
    stream_time: int
    """Largest timestamp that the task, or an earlier task of this partition, has seen, in ms; -1: none."""
    log_each_write: bool
    """True: stores send a changelog record for every write, as Kafka Streams without a cache does (the test driver).
    False: stores send the last value of each key at a commit, versioned stores each version (workers and Spark)."""
    retries_at_once: bool
    """True: the attempts of a `Retry` follow each other without a wait (Spark)."""
    one_task: bool
    """True: this task runs all sub-topologies of the application (the test driver)."""
    foreign_key_join_recheck: bool
    """True: foreign-key joins check stale rows again (`StreamsConfig.foreign_key_join_recheck`; on Spark always)."""

    @property
    def record_context(self) -> RecordContext:
        """The current record as one immutable value, for operators that hold records back."""

    def work_as(self, record: RecordContext, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function while ``record``, which was held back, is the current record. Returns its result."""

    def restamped(self, timestamp: int, headers: Headers, call: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function while the current record has another timestamp and headers."""

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        """Sends one changelog record of a store; does nothing for a store without changelog."""

    def log_rows(
        self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Logs each of these records, which have no headers, as `log` does. Timestamps are in ms."""

    def drop(self, count: int, where: str, reason: str, *, in_total: bool = True) -> None:
        """Counts records that an operator or store drops, by reason. For a reason in ``dead_letter_drops`` of the
        configuration, the current record also becomes a dead letter.

        ``in_total`` is true if Kafka Streams counts such records in its metric ``dropped-records-total``, too.
        """

    def add_parking(self, name: str, parking: Parking) -> None:
        """Registers an operator in which records may wait for a retry."""

    def wall_clock_ms(self) -> int:
        """The wall clock of the runner, in ms since the epoch."""

    def follow_clock(self, follow: Callable[[int], None]) -> None:
        """Registers a function that gets each jump of the wall clock, in ms (`Task.clock_jumped`)."""

    def remember(self, name: str, read: Callable[[], int], *, may_fall: bool = False) -> int:
        """Registers a number that has to survive a restart, for example an operator's own stream time.

        Each commit calls ``read`` to get the number. ``may_fall`` is True for a number that may become smaller. Returns
        the number that the commit before the start of the task has under this name; -1 if there is none.
        """

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """An object that several operators of a task share. The first call with a name makes the object."""

    def add_async_step(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """Adds a step that calls the coroutine function ``call(key, value)`` for each record. Returns the function that
        takes the records of the step.

        When a call is done, ``forward`` gets the result of the call, and key, timestamp and headers of the record.
        ``limits`` are further arguments of `streamapp.engine.asynchronous.AsyncStep`.
        """

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
    """Records of one operator that wait for a retry, as the task and status pages see them."""

    @property
    def room(self) -> int:
        """The number of records that the task may take before it reads ``room`` again; 0 if it must take none now."""

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
    """True if the operator's task takes no further record for now."""
    circuit: str | None = None
    """The failure of a service that has opened the circuit breaker; None if the circuit breaker is closed."""
    open_since: int | None = None
    """The time at which the circuit breaker opened."""


class OperatorFailures(Protocol):
    """The task's answer to an exception, for an operator with ``on_error``."""

    def operator(self, error: Exception, node: str, on_error: Answer | Chooser) -> None:
        """Follows ``on_error`` for the current record, after the operator ``node`` has raised ``error``.

        The record is dropped, with a dead letter if the answer says so. Raises `ProcessingFailed` if the answer is to
        stop. If a service has failed (`FAILURES`), the answers "skip" and "dead_letter" mean "fail", unless a function
        has given the answer. Errors of the runner, the disk, the brokers or the schema registry are raised again, but
        not the refusal of a record."""

    def settle(
        self,
        error: Exception,
        node: str,
        on_error: Answer | Chooser,
        *,
        attempt: int = 1,
        reason: str = "failed",
    ) -> None:
        """As `operator`, for a record whose last attempt has failed, or that exceeds the limits of its `Retry`."""

    def context(self, node: str, attempt: int = 1) -> ErrorContext:
        """The current record as the first argument of an exception handler."""


class NodeContext(Protocol):
    """The argument of `Operator.bind`, through which an operator uses its task, its stores and its children."""

    name: str
    task: TaskContext
    forward: ProcessFn
    """Hands a record to all children of the node except its side outputs, in the order in which they were added."""

    def forward_to(self, child: str) -> ProcessFn:
        """The function that hands a record to one child."""

    def drop(self, reason: str, count: int = 1, *, in_total: bool = True) -> None:
        """Counts records that the operator drops (see `TaskContext.drop`)."""

    @property
    def failures(self) -> OperatorFailures:
        """Decides what happens to a record for which a function raised."""

    def handled(self, function: Callable[..., None]) -> Callable[..., None]:
        """Returns ``function`` with the exception handler around it, for records that an operator has held back.

        If the call raises, the handler runs while the held record is still the current record. So the error and its
        dead letter name the right record.
        """

    def store(self, name: str) -> Any:
        """The store of this task with this name, if it is connected to the node, or the global store with this name.

        Raises `StreamsError` if there is no such store.
        """


class Operator:
    """The description of one step of a topology.

    Each class has a ``persistent_name``, under which snapshots of a topology list the step. The name must never change,
    because later versions of the topology are compared with old snapshots.
    """

    calls_functions: ClassVar[bool] = True
    """False: the operator only hands records on or drops them, so that no record fails in the operator itself."""
    drops: ClassVar[tuple[str, ...]] = ()
    """The reasons for which the operator may drop a record without an error, for metrics that begin with 0."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        """The names of children for special records, for example late ones. `NodeContext.forward` leaves them out."""
        return ()

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        """The serdes that the operator itself binds to a topic name, which gives a schema its subject (`Serde.bind`).

        The serdes of stores, sources and sinks are not among them. A worker registers the schemas of all serdes, so
        `planned_schemas` asks for these, too.
        """
        return ()

    def bind(self, ctx: NodeContext) -> ProcessFn:
        """Returns the function that handles one record on one task."""
        raise NotImplementedError
