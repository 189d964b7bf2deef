"""`InOrder`: passes records from an event loop to a `Core`, the part of a producer that sends records to brokers.

The records of a partition keep the order of the calls. A call that waits for a schema registry holds back later calls
for the same topic. A call that waits for space in the buffer holds back later calls for all topics, and
`InOrder.put_now` raises `BufferFull` meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from streamapp._base.aside import MustAsk, aside, unless_asking
from streamapp.producer.core import Core
from streamapp.producer.parcel import Parcel, Reports, first_of
from streamapp.producer.report import DeliveryReport
from streamapp.records import OutputRecord
from streamapp.registry.rest import RegistryAway

__all__ = ["InOrder", "Make"]

T = TypeVar("T")

Make = Callable[[], OutputRecord]
"""Serializes a record."""


class InOrder:
    """The calls of one event loop at a time. Only the thread of this loop may use the object."""

    def __init__(self, core: Core) -> None:
        self.core: Core = core
        self._reports = _LoopReports(asyncio.get_running_loop())
        self._lines: dict[str, _Line] = {}
        self._placing = 0
        """The number of calls whose record has no space in the buffer yet, or has not used the space yet."""

    def at_once(self, topic: str, make: Make) -> OutputRecord | None:
        """The record, or None if the call has to `join` the line of the topic."""
        if topic not in self._lines:
            with suppress(MustAsk):
                return unless_asking(make)
        return None

    def waits(self, topic: str) -> bool:
        """True if a call for the topic waits for a registry."""
        return topic in self._lines

    def join(self, topics: Collection[str]) -> Place:
        """The place of a call behind all earlier calls for the topics. `Place` is entered with ``async with``.

        Each topic has a line, a queue of the calls that wait for a schema registry. A call joins the lines of all its
        topics at once, so no two calls wait for each other.
        """
        return Place(self, {topic: self._lines.setdefault(topic, _Line()) for topic in topics})

    async def ask(self, topic: str, line: _Line, make: Make) -> OutputRecord:
        """The result of ``make``, which may ask a registry in a thread. The call's turn in the line has come."""
        if line.asking is not None:  # by a call that was cancelled
            await asyncio.wait([line.asking])
        if line.away is not None:
            raise RegistryAway(str(line.away)) from line.away
        with suppress(MustAsk):
            return unless_asking(make)
        asking = asyncio.ensure_future(aside(make, f"{self.core.options.name}-registry"))
        line.asking = asking
        asking.add_done_callback(partial(self._answered, topic, line))
        await asyncio.wait([asking])
        return asking.result()

    def _answered(self, topic: str, line: _Line, asking: asyncio.Future[OutputRecord]) -> None:
        line.asking = None
        if not asking.cancelled() and isinstance(away := asking.exception(), RegistryAway):
            line.away = away
        self.forget(topic, line)

    def forget(self, topic: str, line: _Line) -> None:
        """Lets the next call for the topic ask for itself, if it would not wait for an answer."""
        over = line.away is not None or not (line.turns or line.asking)
        if over and self._lines.get(topic) is line:
            del self._lines[topic]

    def put_now(self, record: OutputRecord, report: asyncio.Future[DeliveryReport]) -> None:
        """Sends a record without waiting. The future gets the report. Raises `BufferFull` if there is no space."""
        parcel = self.core.parcel((record,), _Answer(self._reports_here(), report, first_of))
        if self._placing:
            raise self.core.full(1)
        try:
            self.core.reserve_now(parcel)
            self.core.put(parcel)
        except BaseException:
            self.core.give_up(parcel)
            raise

    async def deliver(self, records: Sequence[OutputRecord]) -> Reports:
        """Sends records as one parcel, and returns their reports. The call first waits for space."""
        here = self._reports_here()
        reports: asyncio.Future[Reports] = here.loop.create_future()
        await self._put(self.core.parcel(records, _Answer(here, reports, tuple)))
        return await reports

    async def post(self, record: OutputRecord, report: asyncio.Future[DeliveryReport]) -> None:
        """Waits for space, and sends a record. The future gets the report."""
        try:
            await self._put(self.core.parcel((record,), _Answer(self._reports_here(), report, first_of)))
        except Exception as exc:
            # The future may get this error. The former traceback has the parcel, which refers to the future. The
            # garbage collector does not know parcels, so it would never free the three.
            raise exc.with_traceback(None) from None

    def _reports_here(self) -> _LoopReports:
        """The reports for the loop of this call. An application may use a producer in several loops, one after the
        other."""
        loop = asyncio.get_running_loop()
        if self._reports.loop is not loop:
            self._reports = _LoopReports(loop)
        return self._reports

    async def _put(self, parcel: Parcel) -> None:
        try:
            if self._placing or not self.core.try_reserve(parcel):
                self._placing += 1
                try:
                    await asyncio.wrap_future(self.core.reserve(parcel))
                finally:
                    self._placing -= 1
            self.core.put(parcel)
        except BaseException:
            self.core.give_up(parcel)
            raise


class _LoopReports:
    """Sets the futures of an event loop from other threads. The loop is woken once for many reports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._told: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False

    def set(self, future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
        """Sets a future to the answer, or to the error. Any thread may call."""
        self._told.append((future, answer, error))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # The mark goes before the reports are taken. So a later report is taken below, or wakes the loop again.
        self._woken = False
        try:
            while self._told:
                future, answer, error = self._told[0]
                if not future.done():  # else it was cancelled
                    if error is None:
                        future.set_result(answer)
                    else:
                        future.set_exception(error)
                self._told.popleft()
        finally:
            if self._told:  # a Ctrl-C has ended this call
                self.loop.call_soon(self._settle)


class _Answer(msgspec.Struct, Generic[T], gc=False):
    """The sender of a parcel, with a future for the part of the reports that ``pick`` returns."""

    reports: _LoopReports
    future: asyncio.Future[T]
    pick: Callable[[Reports], T]

    def tell(self, reports: Reports, error: BaseException | None) -> None:
        self.reports.set(self.future, self.pick(reports) if error is None else None, error)


class _Line:
    """The calls for a topic that wait for the answer of a registry.

    A call that is cancelled leaves its thread behind, and the next call waits for this thread. With a thread for each
    call, an application with short time-outs would have thousands, because each thread may wait for a minute.
    """

    def __init__(self) -> None:
        self.turns: deque[asyncio.Future[None]] = deque()
        """A future for each call, done when the turn of the call has come."""
        self.asking: asyncio.Future[OutputRecord] | None = None
        self.away: RegistryAway | None = None
        """The error of all calls that have waited. Otherwise each of them would be patient, one after the other."""

    def join(self) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turns.append(turn)
        self._call()
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        self.turns.remove(turn)
        self._call()

    def _call(self) -> None:
        if self.turns and not self.turns[0].done():
            self.turns[0].set_result(None)


class Place:
    """The place of a call in the lines of its topics, from `InOrder.join` to the end of the ``async with`` block.

    The block begins when the turn of the call has come in all lines.
    """

    def __init__(self, order: InOrder, lines: dict[str, _Line]) -> None:
        self._order, self._lines = order, lines
        self._turns = {topic: line.join() for topic, line in lines.items()}

    async def __aenter__(self) -> Self:
        try:
            for turn in self._turns.values():
                await turn
        except BaseException:
            self.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    async def record(self, topic: str, make: Make) -> OutputRecord:
        """The result of ``make`` for one of the topics, which may ask a registry."""
        return await self._order.ask(topic, self._lines[topic], make)

    def leave(self) -> None:
        """Leaves the lines, unless the call has left them before."""
        turns, self._turns = self._turns, {}
        for topic, turn in turns.items():
            line = self._lines[topic]
            line.leave(turn)
            self._order.forget(topic, line)
