"""Faust's recovery of its tables, for changelogs whose last offset has no record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from mode import Service

__all__ = ["AgentTableManager"]

_LOOK_SECONDS = 0.2


class _Recovery(Recovery):  # type: ignore[misc]
    """Ends when the consumer's position is at the end of each changelog.

    Faust waits for a record at the last offset. A transaction has its marker there, and compaction may leave nothing.
    """

    @Service.task  # type: ignore[untyped-decorator]
    async def _look_for_the_end(self) -> None:
        read_at: int | None = None
        async for _ in self.itertimer(_LOOK_SECONDS, name="recovery"):
            if not (self.in_recovery and self.need_recovery() and await self._at_the_end()):
                read_at = None
            elif read_at is None:
                read_at = self.app.consumer.fetches
            elif self.app.consumer.fetches > read_at and self.tables.changelog_queue.empty():
                # A later fetch has begun, so the records of the last fetch have been handed on.
                for tp, end in self.active_highwaters.items():  # `Counter.update` would add the ends
                    self.active_offsets[tp] = end
                self.flush_buffers()
                self._set_recovery_ended()
                self.signal_recovery_end.set()
                read_at = None

    async def _build_highwaters(self, consumer: Any, *args: Any) -> None:
        # Readers do not see a committed change at once. The ends are taken after earlier owners' transactions have
        # ended, and include records of open transactions.
        await consumer.wait_until_settled()
        await super()._build_highwaters(consumer, *args)

    async def _seek_offsets(self, consumer: Any, tps: Iterable[Any], offsets: Any, title: str) -> None:
        # A rebalance may come meanwhile. Its new partitions have no offset until recovery begins again, which is at
        # once.
        known = {tp for tp in tps if offsets[tp] is not None}
        await super()._seek_offsets(consumer, known, offsets, title)

    async def _at_the_end(self) -> bool:
        for tp, remaining in self.active_remaining().items():
            if remaining > 0:
                position = await self.app.consumer.position(tp)
                if position is None or position <= self.active_highwaters[tp]:
                    return False
        return True


class AgentTableManager(TableManager):  # type: ignore[misc]
    """Faust's tables, restored up to the end of their changelogs."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    def restore_anew(self, changelogs: Iterable[str]) -> None:
        """Empties tables that are ahead of the commit. The next rebalance restores these tables."""
        for topic in changelogs:
            table: Any = self._changelogs[topic]
            table.data._clear()
            table.data._key_partition.clear()
            for tp in [tp for tp in self.recovery.tp_to_table if tp.topic == topic]:
                self.recovery.revoke(tp)
