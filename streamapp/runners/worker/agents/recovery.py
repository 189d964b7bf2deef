"""Faust's recovery of its tables, for changelogs whose last offset has no record."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery, ServiceStopped
from mode import Service
from mode.utils.queues import ThrowableQueue

from streamapp.errors import BrokerError

__all__ = ["AgentTableManager"]

_LOOK_SECONDS = 0.2
_FIRST_READ_SECONDS = 1.0
"""The longest wait for agents that do not read yet, which Faust always waits."""


class _ChangelogQueue(ThrowableQueue):  # type: ignore[misc]
    """The queue of changelog records for the tables. Records that were fetched for an earlier assignment are dropped.

    Faust sets the position of a table to the offset of the last record that arrives. A late record of an earlier
    assignment would move the position too far, and the records before it would be missing in the table.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(
            maxsize=app.conf.stream_buffer_maxsize, flow_control=app.flow_control, clear_on_resume=True
        )
        self._app = app

    async def get(self) -> Any:
        while True:
            event = await super().get()
            if self._app.consumer.has(event.message):
                return event


@dataclass(eq=False)
class _Reading:
    """One reading of the active changelogs."""

    fetches: int | None = None
    """The number of fetches at the moment when the ends were first reached. None: they are not reached yet."""


class _Recovery(Recovery):  # type: ignore[misc]
    """Faust's recovery, changed to end when the consumer's position is at the end of each changelog.

    Faust instead waits for a record at the last offset. Such a record may not exist: the offset may belong to the
    marker of a transaction, or compaction may have removed the record.

    Tables show the changes of other workers soon. Faust keeps up to 999 of these changes of a table in a buffer, for
    any time.
    """

    _reading: _Reading | None = None
    """The present reading of the active changelogs, from the seek to the end. None: no reading is under way."""

    @Service.task  # type: ignore[untyped-decorator]
    async def _look_for_the_end(self) -> None:
        async for _ in self.itertimer(_LOOK_SECONDS, name="recovery"):
            reading = self._reading
            if reading is not None and (not self.need_recovery() or await self._ends(reading)):
                self.signal_recovery_end.set()
            if not self.in_recovery:
                self.flush_buffers()

    async def _ends(self, reading: _Reading) -> bool:
        """True if all records up to the ends have reached the tables."""
        if not await self._at_the_end() or self._reading is not reading:
            reading.fetches = None
            return False
        fetches = self.app.consumer.fetches
        if reading.fetches is None:
            reading.fetches = fetches
        if fetches == reading.fetches or not self.tables.changelog_queue.empty():
            return False
        # A later fetch has begun, so the records of the last fetch have been handed on.
        for tp, end in self.active_highwaters.items():  # `Counter.update` would add the ends
            self.active_offsets[tp] = end
        self.flush_buffers()
        return True

    async def _wait(self, coro: Any, timeout: float | None = None) -> None:
        try:
            await super()._wait(coro, timeout)
        except ServiceStopped:
            if self.should_stop:
                raise
            # Faust takes a step that exceeds its time-out for its own end, and leaves agents without records for good.
            raise BrokerError(
                f"tables of agents could not be restored: no answer within {timeout} s"
            ) from None

    async def on_rebalance(self, *args: Any, **kwargs: Any) -> None:
        self._reading = None
        await super().on_rebalance(*args, **kwargs)

    async def _build_highwaters(self, consumer: Any, *args: Any) -> None:
        self._reading = None
        # The end of an earlier recovery is not the end of this one.
        self.signal_recovery_end.clear()
        # Readers do not see a committed change at once. The ends are taken after earlier owners' transactions have
        # ended, and include records of open transactions.
        await consumer.wait_until_settled()
        await super()._build_highwaters(consumer, *args)

    async def _seek_offsets(self, consumer: Any, tps: Iterable[Any], offsets: Any, title: str) -> None:
        # A rebalance may come meanwhile. Its new partitions have no offset until recovery begins again, which is at
        # once.
        known = {tp for tp in tps if offsets[tp] is not None}
        await super()._seek_offsets(consumer, known, offsets, title)
        self._reading = _Reading() if title == "active" else None

    async def _at_the_end(self) -> bool:
        for tp, remaining in self.active_remaining().items():
            if remaining > 0:
                try:
                    position = await self.app.consumer.position(tp)
                except IllegalStateError:  # the partition was revoked
                    return False
                if position is None or position <= self.active_highwaters[tp]:
                    return False
        return True


class AgentTableManager(TableManager):  # type: ignore[misc]
    """Faust's tables, restored up to the end of their changelogs.

    The worker subscribes to its topics when the tables have started. A topic that comes later costs another rebalance.
    An agent may add such a topic before its first read, for example with ``group_by``. Faust always waits for one
    second before it starts the tables. This class waits until all agents read.
    """

    _recovery: Recovery | None
    _changelog_queue: Any

    async def on_start(self) -> None:
        late = time.monotonic() + _FIRST_READ_SECONDS
        while not self._agents_read() and time.monotonic() < late and not self.should_stop:
            await self.sleep(0.01)
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()

    def _agents_read(self) -> bool:
        actors = [actor for agent in self.app.agents.values() for actor in agent._actors]
        return all(actor.stream.get_active_stream().started for actor in actors)

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    @property
    def changelog_queue(self) -> Any:
        if self._changelog_queue is None:
            self._changelog_queue = _ChangelogQueue(self.app)
        return self._changelog_queue

    @property
    def with_rows(self) -> str | None:
        """The name of a table that has a changelog, and rows in this process. None: no table has both. Global tables
        are left out."""
        tables = [table for table in self._changelogs.values() if not table.is_global]
        return next((str(table.name) for table in tables if next(iter(table.data), None) is not None), None)

    @property
    def restoring(self) -> bool:
        """True from a rebalance until all tables of agents have their rows. Until then, agents get no records.

        Always False without a table that has a changelog. Any thread may ask.
        """
        return bool(self._changelogs) and (self.app.rebalancing or self.app.in_recovery)

    def restore_anew(self, changelogs: Iterable[str]) -> None:
        """Empties tables with changes that were dropped before their commit.

        The next rebalance restores these tables.
        """
        for topic in changelogs:
            table: Any = self._changelogs[topic]
            table.data._clear()
            table.data._key_partition.clear()
            for tp in [tp for tp in self.recovery.tp_to_table if tp.topic == topic]:
                self.recovery.revoke(tp)
