"""Faust's tables under an agent that works on a batch, and windows that follow the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp import App, StreamsConfig
from streamapp.errors import StreamsError
from streamapp.runners.worker.agents.taken_batches import note_batch, partition_in_batch
from streamapp.testing import AgentTest

app = App("tables-of-agents", config=StreamsConfig(processing_guarantee="exactly_once_v2"))
orders = app.topic("orders", key_type=str, value_type=int)
by_event = app.Table("by-event", default=int).tumbling(10)
by_clock = app.Table("by-clock", default=int).tumbling(3600, expires=7200).relative_to_now()
customers = app.SetTable("customers", value_type=str)
windowed_sets = app.SetTable("windowed-sets", value_type=str).tumbling(10)


@pytest.fixture
def batch() -> Iterator[None]:
    """Three records of the partitions 0, 1 and 1. The first two have the same key."""
    records: Any = tuple(SimpleNamespace(partition=each, generation_id=1) for each in (0, 1, 1))
    note_batch(records, ["moved", "moved", "ann"])
    yield
    note_batch(())


@pytest.mark.usefixtures("batch")
def test_a_change_in_a_batch_belongs_to_the_partition_of_the_records_with_its_key() -> None:
    assert partition_in_batch("spent", "ann") == 1
    for key in ("moved", "nobody"):
        with pytest.raises(
            StreamsError, match=f"the table spent cannot change the row '{key}', .* partitions .0, 1."
        ):
            partition_in_batch("spent", key)


def test_a_batch_of_one_partition_takes_any_key_also_beside_keys_that_are_no_keys_of_a_table() -> None:
    records: Any = tuple(SimpleNamespace(partition=3, generation_id=1) for _ in range(2))
    note_batch(records, [{"a": 1}, ["b"]])
    assert partition_in_batch("spent", "nobody") == 3
    note_batch(())


@app.agent(orders)  # type: ignore[untyped-decorator]
async def in_pairs(stream: Any) -> None:
    async for pair in stream.take(2, within=60):
        by_clock["all"] += sum(pair)
        customers["all"].add(str(pair[0]))
        if 0 in pair:
            by_event["all"] += 1


@app.agent(orders)  # type: ignore[untyped-decorator]
async def one_by_one(stream: Any) -> None:
    async for order in stream:
        by_clock["all"] += order
        by_event["all"] += order
        windowed_sets["all"].add(str(order))


async def test_windows_that_follow_a_record_are_refused_in_a_batch() -> None:
    """All records of the batch counted in the window of the last one."""
    async with AgentTest(in_pairs) as test:
        await test.put(1, key="all", wait=False)
        await test.put(2, key="all")
        await test.put(0, key="all", wait=False)
        with pytest.raises(
            StreamsError, match="the table by-event has windows that follow the time of a record"
        ):
            await test.put(3, key="all")
        test._context._tested.crash_reason = None


async def test_windows_that_follow_the_clock_are_those_of_the_clock() -> None:
    """Each change opened a new window, because Faust took the end of the last window for the time."""
    async with AgentTest(one_by_one) as test:
        began = time.time()
        for order in (1, 2, 3):
            await test.put(order, key="all", timestamp=1_000.0)
        windows = {by_clock.table.window.current(moment) for moment in (began, time.time())}
        assert {window for _, window in by_clock.table} <= windows
        assert sum(by_clock.table.values()) == 6
        assert dict(by_event.table) == {("all", (1_000.0, 1_009.9)): 6}
        assert {key: set(members) for key, members in windowed_sets.table.items()} == {
            ("all", (1_000.0, 1_009.9)): {"1", "2", "3"}
        }
