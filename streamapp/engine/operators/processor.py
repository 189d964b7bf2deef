"""The operator that runs a user's processor (``process``, ``process_values``, `Topology.add_processor`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from streamapp._base.callables import require_function
from streamapp._base.durations import to_ms
from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.processor import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    PunctuationType,
    RecordMetadata,
    check_same_key,
)
from streamapp.engine.punctuation import Schedule
from streamapp.errors import StreamsError
from streamapp.records import MAX_LONG, Headers, Record, check_timestamp
from streamapp.state.spec import StoreSpec

__all__ = ["BoundProcessorContext", "ProcessorOperator"]


_WRITES = frozenset({"put", "put_if_absent", "delete", "remove"})


class _ReadOnly:
    """A global store in a processor of a task, which may only read the store. (``AbstractReadOnlyDecorator``, with
    which Kafka Streams' ``ProcessorContextImpl`` wraps global stores)

    Every worker has a copy of the store. A write of one task would be in one copy only, and the next restore would
    lose it.
    """

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            raise StreamsError(
                f"{self._store.name} is a global store, which only its topic and its own processor change: write a "
                "record to the topic"
            )
        return getattr(self._store, name)


class BoundProcessorContext:
    """The `ProcessorContext` of one processor in one task."""

    key: Any = None
    """The key of the current record, to check that a fixed-key processor does not change it."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self._task: Any = ctx.task
        self.application_id: str = ctx.task.application_id
        self.task_id: str = ctx.task.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        task = self._task
        return None if task.topic is None else RecordMetadata(task.topic, task.partition, task.offset)

    def forward(self, record: Record, child: str | None = None) -> None:
        if not isinstance(record, Record):
            raise StreamsError(
                f"forward() of {self._ctx.name} takes a Record, as in forward(record.with_value(value)), "
                f"not {record!r:.60}"
            )
        key, value, timestamp, headers = record
        if timestamp.__class__ is not int or timestamp > MAX_LONG:
            check_timestamp(timestamp)
        if timestamp < 0:
            raise StreamsError(
                f"{self._ctx.name} forwarded timestamp {timestamp}; timestamps must not be negative"
            )
        target = self._ctx.forward if child is None else self._ctx.forward_to(child)
        task = self._task
        if timestamp == task.timestamp and headers is task.headers:
            target(key, value, timestamp, headers)
        else:
            task.restamped(timestamp, headers, target, key, value, timestamp, headers)

    def get_state_store(self, store: str | StoreSpec[Any]) -> Any:
        name = store if isinstance(store, str) else store.name
        found = self._ctx.store(name)
        return _ReadOnly(found) if name in self._task.global_stores else found

    def schedule(
        self,
        interval: Any,
        type: PunctuationType,
        callback: Callable[[int], None],
        start_time: datetime | int | None = None,
    ) -> Schedule:
        milliseconds = to_ms(interval, f"punctuation interval of {self._ctx.name}")
        if not isinstance(type, PunctuationType):
            raise StreamsError(
                f"the punctuation of {self._ctx.name} follows PunctuationType.STREAM_TIME or .WALL_CLOCK_TIME, "
                f"not {type!r}"
            )
        if milliseconds < 1:
            raise StreamsError(
                f"the punctuation interval of {self._ctx.name} must be at least 1 ms, not {milliseconds}"
            )
        require_function(callback, f"schedule() of {self._ctx.name}", "a punctuator of the time in ms", 1)
        start_ms = round(start_time.timestamp() * 1_000) if isinstance(start_time, datetime) else start_time
        if start_ms is not None and (not isinstance(start_ms, int) or start_ms < 0):
            raise StreamsError(
                f"the punctuation of {self._ctx.name} starts at a datetime or ms since the epoch, "
                f"not {start_time!r}"
            )
        return self._task.schedule(  # type: ignore[no-any-return]
            self._ctx.name, milliseconds, type, callback, start_ms
        )

    def current_stream_time_ms(self) -> int:
        return self._task.stream_time  # type: ignore[no-any-return]

    def current_system_time_ms(self) -> int:
        return self._task.wall_clock_ms()  # type: ignore[no-any-return]

    def commit(self) -> None:
        self._task.commit_requested = True


class _FixedKeyContext(BoundProcessorContext):
    def forward(self, record: Record, child: str | None = None) -> None:
        if self._task.topic is not None:
            check_same_key(self._ctx.name, self.key, record)
        super().forward(record, child)


class ProcessorOperator(Operator):
    """Runs one instance of a user's processor for each task."""

    persistent_name = "ProcessorOperator"

    def __init__(
        self, supplier: Callable[[], Processor], fixed_key: bool = False, stores: tuple[Any, ...] = ()
    ) -> None:
        self.supplier = supplier
        self.fixed_key = fixed_key
        self.stores = stores
        """The stores that the processor brings along."""

    def bind(self, ctx: NodeContext) -> ProcessFn:
        processor = self.supplier()
        if not callable(getattr(processor, "process", None)):
            raise StreamsError(
                f"the supplier of {ctx.name} gave {processor!r}, which has no process(record) method"
            )
        task: Any = ctx.task
        fixed = self.fixed_key or isinstance(processor, FixedKeyProcessor)
        context = _FixedKeyContext(ctx) if fixed else BoundProcessorContext(ctx)
        task.add_processor(ctx.name, processor, context)
        process = processor.process
        record_class = FixedKeyRecord if fixed else Record

        def run(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            task.timestamp = timestamp
            task.headers = headers
            if fixed:
                context.key = key
            process(record_class(key, value, timestamp, headers))

        return run
