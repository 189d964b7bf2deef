"""`Pump`: the thread that hands units out, and the threads, or the event loop, that run them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from queue import SimpleQueue

from streamapp._base.failpoints import hit
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.handling import Handling
from streamapp.consumer.lanes import Unit
from streamapp.consumer.verdicts import HandlerTimeout, Settled
from streamapp.engine.judging import short
from streamapp.errors import StreamsError

__all__ = ["Pump"]

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SLOW_SECONDS = 30.0
_SERDE_SECONDS = 300.0
"""The least time for the serdes of a call. A registry that is away answers or fails sooner (``patience.ms``)."""


class Pump:
    """Takes units from the dispatcher and runs them, on threads or on the event loop, until `stop`.

    With the guarantee "at_most_once", ``commit_first`` commits units before they run, and returns the units that may
    run.
    """

    def __init__(
        self,
        options: ConsumeOptions,
        dispatcher: Dispatcher,
        handling: Handling,
        loop: asyncio.AbstractEventLoop | None,
        commit_first: Callable[[Sequence[Unit]], Sequence[Unit]],
    ) -> None:
        self._options, self._dispatcher, self._handling = options, dispatcher, handling
        self._loop, self._commit_first = loop, commit_first
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._tasks: dict[Unit, asyncio.Task[None]] = {}
        self._named: set[Unit] = set()
        """Units about which a log line has said that their call is slow."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"{options.name}-pump", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the threads. A thread whose handler hangs cannot be ended, so `stop` does not wait for it."""
        self._ended = True
        with self._dispatcher.changed:
            self._dispatcher.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for _ in self._threads:
            self._queue.put(None)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _run(self) -> None:
        try:
            while not self._ended:
                units = self._next()
                if units and self._options.guarantee == "at_most_once":
                    units = self._committed_first(units)
                for unit in units:
                    self._launch(unit)
                self._look_at_slow()
        except Exception as exc:
            self._dispatcher.fail(exc)

    def _committed_first(self, units: Sequence[Unit]) -> list[Unit]:
        self._dispatcher.started(units)
        certain = set(self._commit_first(units))
        for unit in units:
            if unit not in certain:
                self._dispatcher.finished(unit, Settled(back=unit.items), 0.0, 0)
        return [unit for unit in units if unit in certain]

    def _next(self) -> list[Unit]:
        dispatcher = self._dispatcher
        with dispatcher.changed:
            units: list[Unit] = []
            while (unit := dispatcher.next_unit()) is not None:
                units.append(unit)
            if not units and not self._ended:
                wait = dispatcher.next_time()
                dispatcher.changed.wait(_LOOK_SECONDS if wait is None else min(_LOOK_SECONDS, wait))
        return units

    def _launch(self, unit: Unit) -> None:
        hit("consumer-handing-out")
        if self._options.asynchronous:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._begin, unit)
            return
        if len(self._threads) < min(self._options.parallelism, len(self._dispatcher.running())):
            thread = threading.Thread(
                target=self._work, name=f"{self._options.name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._queue.put(unit)

    def _work(self) -> None:
        while (unit := self._queue.get()) is not None:
            try:
                self._handling.run(unit)
            except BaseException as exc:  # SystemExit, for example, would end the thread without a message
                self._broken(unit, exc)
            finally:
                self._handling.decoded.pop(unit, None)
        self._handling.leave()

    def _begin(self, unit: Unit) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_async(unit))
        self._tasks[unit] = task

        def over(task: asyncio.Task[None]) -> None:
            del self._tasks[unit]
            self._handling.timed_out.discard(unit)
            self._handling.decoded.pop(unit, None)
            if task.cancelled():  # perhaps before its first step
                self._dispatcher.finished(unit, Settled(back=unit.items), 0.0, 0)
            elif (error := task.exception()) is not None:
                self._broken(unit, error)

        task.add_done_callback(over)

    async def _run_async(self, unit: Unit) -> None:
        try:
            await self._handling.run_async(unit)
        except (SystemExit, KeyboardInterrupt) as exc:  # asyncio would end the event loop with them
            self._broken(unit, exc)

    def _broken(self, unit: Unit, error: BaseException) -> None:
        failure = StreamsError(f"{self._options.operator} ended with {short(error)}")
        failure.__cause__ = error
        self._dispatcher.finished(unit, Settled(back=unit.items, fail=failure), 0.0, 0)
        self._dispatcher.fail(
            failure
        )  # also if the call of the unit has ended already; only the first failure counts

    def _cancel(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()

    def _look_at_slow(self) -> None:
        """Logs calls that take more than 30 s. Cancels a coroutine that takes more than ``handler_timeout_ms``; if a
        plain function takes longer, the consumer ends."""
        limit = self._options.handler_timeout_ms / 1000
        running = self._dispatcher.running()
        self._named &= {unit for unit, _ in running}
        for unit, seconds in running:
            if seconds < min(limit, _SLOW_SECONDS):
                return
            where = f"the record of {unit.partition.source} at offset {unit.items[0].offset}"
            if unit not in self._named:
                self._named.add(unit)
                logger.warning(
                    "%s: %s has been in work for %.0f s; the records behind it wait",
                    self._options.name,
                    where,
                    seconds,
                )
            decoded = self._handling.decoded.get(unit, -inf)
            over = (
                seconds >= max(limit, _SERDE_SECONDS)
                if decoded == inf
                else time.monotonic() - decoded >= limit
            )
            if seconds < limit or not over:
                continue
            if self._options.asynchronous:
                assert self._loop is not None
                self._handling.timed_out.add(unit)
                self._loop.call_soon_threadsafe(self._cancel_one, unit)
            elif not unit.partition.lost:
                self._dispatcher.fail(
                    HandlerTimeout(
                        f"{self._options.operator} has not come back for {where} within "
                        f"{self._options.handler_timeout_ms} ms. A thread cannot be cancelled: give the calls in the "
                        "handler a time-out, or raise handler_timeout_ms"
                    )
                )

    def _cancel_one(self, unit: Unit) -> None:
        task = self._tasks.get(unit)
        if task is not None:
            task.cancel()
