"""Faust's tables under an agent that works on a batch, and windows that follow the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.exceptions import PartitionsMismatch
from faust.types import TP

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
partitioned_sets = app.SetTable("partitioned-sets", value_type=str, use_partitioner=True)


rows = app.Table("rows", default=int)
expiring = app.Table("expiring", default=int).tumbling(10, expires=60)


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
    class Tagged(faust.Record):  # type: ignore[misc]
        tags: list[str]

    records: Any = tuple(SimpleNamespace(partition=3, generation_id=1) for _ in range(3))
    note_batch(records, [{"a": 1}, ["b"], Tagged(tags=["c"])])
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


@app.agent(orders)  # type: ignore[untyped-decorator]
async def note_rows(stream: Any) -> None:
    async for key, order in stream.items():
        if order:
            rows[key] = order
            expiring[key] += order
            by_event[key] += order
        else:
            results.append(rows.pop(key, None))


results: list[int | None] = []


async def test_a_row_that_is_missing_can_be_popped_with_a_default() -> None:
    """KeyError, because Faust found the default of the table in place of the row."""
    results.clear()
    async with AgentTest(note_rows) as test:
        for order in (0, 7, 0, 0):
            await test.put(order, key="ann")
    assert results == [None, 7, None]
    with pytest.raises(KeyError):
        rows.pop("ann")


def test_a_timer_cannot_change_a_table_and_hears_what_can() -> None:
    for table in (rows, customers):
        with pytest.raises(
            StreamsError, match=f"the table {table.name} can be changed only by an agent that works"
        ):
            table["ann"].add("x") if table is customers else table.__setitem__("ann", 1)


def restored(*values: int | None) -> list[Any]:
    """The changelog records of one row."""
    return [
        SimpleNamespace(key="ann", value=each, message=SimpleNamespace(value=each, partition=0))
        for each in values
    ]


@pytest.mark.parametrize("values", [(5, None, 0), (5, None), (None, 3, None, 4)])
async def test_the_last_record_of_a_key_is_restored(values: tuple[int | None, ...]) -> None:
    """A row with 0 that was written after its deletion was missing."""
    async with AgentTest(note_rows):
        rows.apply_changelog_batch(restored(*values))
        assert dict(rows) == ({} if values[-1] is None else {"ann": values[-1]})


async def test_rows_of_a_partition_that_has_moved_leave_the_table() -> None:
    """The worker kept rows that it had changed itself, and `items()` had them for ever."""
    async with AgentTest(note_rows) as test:
        for order in (1, 2):
            await test.put(order, key="ann", timestamp=1_000.0)
        for table in (rows, by_event.table):
            await table.on_recovery_completed({TP("changelog", 0)}, set())
            assert len(table) == 1
            await table.on_recovery_completed({TP("changelog", 1)}, set())
            assert len(table) == len(table.data._key_partition) == 0


@app.agent(orders)  # type: ignore[untyped-decorator]
async def note_sets(stream: Any) -> None:
    async for order in stream:
        partitioned_sets["all"].add(str(order))


async def test_all_changes_of_a_set_are_in_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation is a part of the key, so the partitioner would part additions from removals."""
    sent: list[tuple[int | None, Any]] = []
    monkeypatch.setattr(
        partitioned_sets, "send_changelog", lambda partition, key, *_: sent.append((partition, key))
    )
    async with AgentTest(note_sets) as test:
        await test.put(1, key="all")
    assert sent == [(0, (1, "all"))]


@pytest.mark.parametrize("kind", ["SetTable", "SetGlobalTable"])
def test_only_sets_that_are_not_global_need_the_partitions_of_the_topic(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker reads all partitions of a global table."""
    other = App("partitions-of-sets")
    table = getattr(other, kind)("sets", value_type=str)
    counts = {"orders": 4, table.changelog_topic_name: 8}
    monkeypatch.setattr(other, "_consumer", SimpleNamespace(topic_partitions=counts.get))
    event = SimpleNamespace(message=SimpleNamespace(topic="orders", partition=3))
    monkeypatch.setattr("streamapp.runners.worker.agents.keyed_tables.current_event", lambda: event)
    if kind == "SetGlobalTable":
        assert table._partition_by_record("ann") == 3
        return
    with pytest.raises(PartitionsMismatch):
        table._partition_by_record("ann")


async def test_no_callback_gets_the_window_of_a_row_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback got None in place of the value."""
    table, closed = expiring.table, []
    monkeypatch.setattr(table, "_on_window_close", lambda key, value: closed.append((key, value)))
    monkeypatch.setattr(table, "last_closed_window", 0.0)
    for moves in (False, True):
        async with AgentTest(note_rows) as test:
            await test.put(5, key="ann", timestamp=1_000.0 + 10 * moves)
            if moves:
                await table.on_recovery_completed({TP("changelog", 1)}, set())
            await table._del_old_keys()
    assert closed == [(("ann", (1_000.0, 1_009.9)), 5)]


async def test_rows_on_disk_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's store on disk reads all rows to count them. Each clean-up counted them twice."""

    class OnDisk(dict[Any, Any]):
        def __len__(self) -> int:
            raise AssertionError("all rows are read")

    monkeypatch.setattr(expiring.table, "_data", OnDisk())
    await expiring.table._del_old_keys()


async def test_windows_that_expire_leave_nothing_behind() -> None:
    """Faust kept the end of the window once for each change until the window expired."""
    table = expiring.table
    table._partition_timestamps.clear()
    table._partition_timestamp_keys.clear()
    async with AgentTest(note_rows) as test:
        for order in (1, 2, 3):
            await test.put(order, key="ann", timestamp=1_000.0)
        assert [len(ends) for ends in table._partition_timestamps.values()] == [1]
        await table._del_old_keys()
        assert (len(table), len(table.data._key_partition)) == (0, 0)
        assert not table._partition_timestamp_keys
        assert [len(ends) for ends in table._partition_timestamps.values()] == [0]
