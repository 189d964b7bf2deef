"""Partitions of agents without a leader: agents wait for them, and read the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from faust.types import TP

from streamapp.broker.log_ends import LogEnds
from streamapp.records import TopicPartition
from streamapp.runners.worker.clients import admin_client

if TYPE_CHECKING:
    from streamapp.config import StreamsConfig

__all__ = ["Leaders"]

logger: logging.Logger = logging.getLogger(__name__)


class Leaders:
    """Finds partitions that have leaders again, and tells of partitions that have none."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._log_ends: LogEnds | None = None
        """None: no partition was assigned yet."""
        self.unplaced: set[TP] = set()
        """Partitions without a position, because the group has no offset in them, and they have no leader."""
        self.found: set[TP] = set()
        """The partitions of ``unplaced`` that have a leader again."""
        self._told: list[TP] = []
        """The partitions without a leader at the last look, of which the log has told."""

    def look(self, read: Sequence[TP]) -> None:
        """Looks for the leaders of the partitions that agents read. The call never waits for an answer."""
        if self._log_ends is None:
            if not read:
                return
            self._log_ends = LogEnds(admin_client(self._config))
        ends = self._log_ends.look([TopicPartition(*tp) for tp in read])
        self.found.update(tp for tp in self.unplaced if TopicPartition(*tp) in ends)
        told, self._told = self._told, self._leaderless(read)
        if new := [tp for tp in self._told if tp not in told]:
            logger.warning("the agents wait for a leader of %s. Other partitions go on", _listed(new))

    def lacking(self, read: Sequence[TP]) -> str | None:
        """The partitions for whose leaders the agents wait, in words. None: the agents wait for no leader.

        Any thread may ask.
        """
        lacking = self._leaderless(read)
        return f"the agents wait for a leader of {_listed(lacking)}" if lacking else None

    def _leaderless(self, read: Sequence[TP]) -> list[TP]:
        unled = frozenset() if self._log_ends is None else self._log_ends.leaderless
        waiting = self.unplaced.copy()
        return [tp for tp in read if tp in waiting or TopicPartition(*tp) in unled]

    def take_found(self) -> set[TP]:
        """The partitions without a position that have a leader again. The next call does not give them."""
        found, self.found = self.found & self.unplaced, set()
        return found

    def placed(self, partitions: set[TP]) -> None:
        """Learns that partitions have a position now."""
        self.unplaced -= partitions
        if partitions:
            logger.info("the agents read %s, with a leader again", _listed(sorted(partitions)))

    def forget(self) -> None:
        """Forgets the partitions without a position, because a rebalance takes all partitions away."""
        self.unplaced, self.found = set(), set()


def _listed(tps: Iterable[TP]) -> str:
    return ", ".join(str(TopicPartition(*tp)) for tp in tps)
