"""Recovery of agents' tables, where a rebalance comes in the middle."""

from __future__ import annotations

from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer
from faust.types import TP

from streamapp import App
from streamapp.runners.worker.agents.recovery import AgentTableManager


class AssignedConsumer:
    """A consumer whose partitions are assigned; offsets are checked by aiokafka's own `seek`."""

    def __init__(self) -> None:
        self.sought: dict[TP, int] = {}
        self._fetcher = self

    def seek_to(self, tp: TP, offset: int) -> None:
        self.sought[tp] = offset

    async def seek_wait(self, offsets: dict[TP, int]) -> None:
        for tp, offset in offsets.items():
            AIOKafkaConsumer.seek(self, tp, offset)  # type: ignore[arg-type]


async def test_partitions_that_a_rebalance_has_just_brought_are_not_sought() -> None:
    """Faust goes on with the standbys of the next generation, whose offsets nobody has asked for: the worker ended."""
    app = App("told", datadir="unused")
    recovery = AgentTableManager(app).recovery
    old, new = TP("told-numbers-changelog", 0), TP("told-numbers-changelog", 1)
    offsets: Counter[TP] = Counter({old: -1})
    offsets[new] = None  # type: ignore[assignment]  # `on_rebalance` has noted what a table in memory has on disk
    consumer = AssignedConsumer()
    with pytest.raises(ValueError, match="positive integer"):
        AIOKafkaConsumer.seek(consumer, new, offsets[new])  # type: ignore[arg-type]
    await recovery._seek_offsets(consumer, {old, new}, offsets, "standby")
    assert consumer.sought == {old: 0}
