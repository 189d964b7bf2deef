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
from typing import Self

from streamapp._base.aside import MustAsk, aside, unless_asking
from streamapp.producer.core import Core
from streamapp.producer.parcel import Parcel
from streamapp.producer.report import DeliveryReport
from streamapp.records import OutputRecord
from streamapp.registry.rest import RegistryAway

__all__ = ["InOrder", "Make"]

Make = Callable[[], OutputRecord]
"""Serializes a record."""


class InOrder:
    """The calls of one event loop. Only the thread of the loop may use an object."""

    def __init__(self, core: Core) -> None:
        self.core: Core = core
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

    def put_now(self, record: OutputRecord) -> Parcel:
        """Sends a record without waiting. Raises `BufferFull` if there is no space."""
        parcel = self.core.parcel([record])
        if self._placing:
            raise self.core.full(1)
        self.core.reserve_now(parcel)
        self.core.put(parcel)
        return parcel

    async def deliver(self, records: Sequence[OutputRecord]) -> tuple[DeliveryReport, ...]:
        """Sends records as one parcel, and returns their reports. The call first waits for space."""
        return await asyncio.wrap_future((await self.post(records)).future)

    async def post(self, records: Sequence[OutputRecord]) -> Parcel:
        """Waits for space, and sends records as one parcel. The parcel's future gets their reports."""
        parcel = self.core.parcel(records)
        place = self.core.reserve(parcel)
        if self._placing or not place.done():
            self._placing += 1
            try:
                await asyncio.wrap_future(place)
            except asyncio.CancelledError:
                if not place.cancelled():
                    self.core.release(parcel)
                raise
            finally:
                self._placing -= 1
        self.core.put(parcel)
        return parcel


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
