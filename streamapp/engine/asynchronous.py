"""Asynchronous steps, for example of ``map_async``: a record waits inside the task for its coroutine, then goes on.

`AsyncStep.submit` takes a record in, and `AsyncStep.emit` hands the record on when its coroutine is done. The task's
own thread calls both, so all operators of a task run in one thread. Only the coroutines run elsewhere, on an event loop
of the runner.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Literal

from streamapp._base.cancellation import own_cancellation
from streamapp.engine.current_record import CurrentRecord
from streamapp.engine.failures import Failures, ProcessingFailed
from streamapp.engine.operator import ProcessFn
from streamapp.errors import UnsupportedOperation
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers, RecordContext

__all__ = ["AsyncStep", "AsyncSteps", "Order", "RunAsync"]

Order = Literal["key", "partition"]

RunAsync = Callable[[Coroutine[Any, Any, None]], "Future[None]"]
"""Starts a coroutine, on an event loop that is not the caller's, and returns at once."""


_STOOD_STILL_SECONDS = 1.0
"""If a timer is late by more, the event loop has stood still."""


class _Call:
    """One record in a step, with the result or the error of its coroutine."""

    __slots__ = (
        "context",
        "done",
        "error",
        "headers",
        "key",
        "lane",
        "result",
        "timestamp",
        "value",
    )

    def __init__(
        self, key: Any, value: Any, timestamp: int, headers: Headers, lane: Any, context: RecordContext
    ) -> None:
        self.key, self.value, self.timestamp, self.headers = key, value, timestamp, headers
        self.lane, self.context = lane, context
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


class _Timer:
    """Lets ``limit`` expire after some seconds in which the event loop runs.

    A process may be suspended, or its event loop blocked. Answers have then arrived, but no call could take its answer.
    So calls get their whole time anew.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._loop = asyncio.get_running_loop()
        self._begin()

    def _begin(self) -> None:
        self._due = self._loop.time() + self._seconds
        self._handle = self._loop.call_at(self._due, self._on_due)

    def _on_due(self) -> None:
        now = self._loop.time()
        if now - self._due > _STOOD_STILL_SECONDS:
            self._begin()
        else:
            self._limit.reschedule(now)

    def cancel(self) -> None:
        self._handle.cancel()


class AsyncStep:
    """The records of one asynchronous step in one task, each with its coroutine (its *call*).

    The task takes no new record while ``capacity`` records are in the step. A record whose call is done counts until it
    goes on. Earlier records of its key go on first (order "key"), or all earlier records (order "partition"). More
    records than ``capacity`` may still come from an operator upstream, for example from ``flat_map``. The calls of
    these surplus records begin later.

    A call that takes longer than ``timeout`` seconds ends with a `TimeoutError`. ``on_timeout``, if given, then
    computes the result in its place.
    """

    def __init__(
        self,
        name: str,
        record: CurrentRecord,
        failures: Failures,
        run_async: RunAsync,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        *,
        capacity: int,
        order: Order,
        timeout: float,
        on_timeout: Callable[[Any, Any], Any] | None,
        on_error: Answer | Chooser | None = None,
    ) -> None:
        self._name, self._record, self._failures, self._run_async = name, record, failures, run_async
        self._forward, self._call = forward, call
        self._capacity, self._order = capacity, order
        self._timeout, self._on_timeout, self._on_error = timeout, on_timeout, on_error
        self._lanes: dict[Any, deque[_Call]] = {}
        self._waiting: deque[_Call] = deque()
        self._started: list[Future[None]] = []
        self._finished: deque[_Call] = deque()  # appended to by the event loop's thread
        self._running = 0
        self.pending: int = 0
        """The number of records that are in the step: submitted, and not emitted yet."""

    @property
    def room(self) -> int:
        """The number of further records that may come in."""
        return self._capacity - self.pending

    def submit(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Takes a record in; its call begins with the next `start`."""
        lane = _lane(key) if self._order == "key" else None
        call = _Call(key, value, timestamp, headers, lane, self._record.record_context)
        self._lanes.setdefault(lane, deque()).append(call)
        self.pending += 1
        self._waiting.append(call)

    def start(self) -> None:
        """Begins calls until ``capacity`` calls run. All of them begin together, to wake the event loop only once."""
        calls = []
        while self._waiting and self._running < self._capacity:
            self._running += 1
            calls.append(self._waiting.popleft())
        if calls:
            self._started = [future for future in self._started if not future.done()]
            self._started.append(self._run_async(self._run_all(calls)))

    def emit(self) -> None:
        """Hands on each record whose call is done, unless an earlier record of its key (or partition) still waits."""
        while self._finished:
            call = self._finished.popleft()
            call.done = True
            self._running -= 1
            lane = self._lanes[call.lane]
            while lane and lane[0].done:
                self.pending -= 1
                self._hand_on(lane.popleft())
            if not lane:
                self._lanes.pop(call.lane, None)

    def cancel(self) -> None:
        """Cancels all calls. Their records are not committed, so the next task of this partition reads them again."""
        for future in self._started:
            future.cancel()
        self._lanes.clear()
        self._waiting.clear()
        self._finished.clear()
        self.pending = 0

    async def _run_all(self, calls: list[_Call]) -> None:
        await asyncio.gather(*map(self._run, calls))

    async def _run(self, call: _Call) -> None:
        limit = asyncio.timeout(None)
        timer = _Timer(limit, self._timeout)
        try:
            async with limit:
                call.result = await self._call(call.key, call.value)
        except asyncio.CancelledError as error:
            call.error = own_cancellation(error)
            if call.error is None:
                raise
        except GeneratorExit:
            raise
        except BaseException as error:
            # SystemExit, for example, would end the event loop. So the task raises the exception instead.
            late = TimeoutError(f"the call took longer than {self._timeout:g} s")
            call.error = late if limit.expired() else error
        finally:
            timer.cancel()
        self._finished.append(call)

    def _hand_on(self, call: _Call) -> None:
        self._record.work_as(call.context, self._go_on, call)

    def _go_on(self, call: _Call) -> None:
        try:
            if call.error is not None:
                if not isinstance(call.error, Exception):
                    raise call.error
                timed_out = isinstance(call.error, TimeoutError) and self._on_timeout is not None
                if self._on_error is not None and not timed_out:
                    self._failures.operator(call.error, self._name, self._on_error)
                    return
                if not isinstance(call.error, TimeoutError) or self._on_timeout is None:
                    raise call.error
                call.result = self._on_timeout(call.key, call.value)
            self._forward(call.result, call.key, call.timestamp, call.headers)
        except ProcessingFailed:
            raise
        except Exception as error:
            self._failures.processing(error, self._failures.node_of(error.__traceback__, self._name))


class AsyncSteps:
    """The asynchronous steps of one task. On a runner that has no ``run_async``, `add` refuses a step."""

    def __init__(self, record: CurrentRecord, failures: Failures, run_async: RunAsync | None) -> None:
        self._record, self._failures, self._run_async = record, failures, run_async
        self._steps: list[AsyncStep] = []

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(
        self,
        name: str,
        call: Callable[[Any, Any], Awaitable[Any]],
        forward: Callable[[Any, Any, int, Headers], None],
        **limits: Any,
    ) -> ProcessFn:
        """Adds an `AsyncStep` with these arguments, and returns the function that takes the records of the step.

        Raises `UnsupportedOperation` on a runner without an event loop.
        """
        if self._run_async is None:
            raise UnsupportedOperation(
                name,
                "this runner",
                "it is asynchronous, and this runner has no event loop that could run its coroutines",
                "Run this topology on workers, or call a blocking client with map() or map_values()",
            )
        step = AsyncStep(name, self._record, self._failures, self._run_async, call, forward, **limits)
        self._steps.append(step)
        return step.submit

    @property
    def room(self) -> int:
        """The number of further records that may come in: the smallest ``room`` of all steps."""
        return min(step.room for step in self._steps)

    @property
    def pending(self) -> int:
        return sum(step.pending for step in self._steps)

    def start(self) -> None:
        for step in self._steps:
            step.start()

    def emit(self) -> None:
        for step in self._steps:
            step.emit()

    def cancel(self) -> None:
        for step in self._steps:
            step.cancel()


def _lane(key: Any) -> Any:
    """A hashable value that identifies a key: the key itself, or its ``repr`` if the key is not hashable."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
