"""Recovery of agents' tables, where rebalances come in the middle or soon after each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from faust.tables.recovery import ServiceStopped
from faust.tables.sets import OPERATION_ADD
from faust.types import TP

from streamapp import App, BrokerError
from streamapp.runners.worker.agents.flow import FlowControl
from streamapp.runners.worker.agents.recovery import AgentTableManager, _ChangelogQueue


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


async def test_the_end_of_a_recovery_does_not_end_the_next_one() -> None:
    app = App("told", datadir="unused")
    recovery = AgentTableManager(app).recovery
    partition = TP("told-numbers-changelog", 0)

    class Consumer:
        async def wait_until_settled(self) -> None:
            """No transaction is open."""

        async def highwaters(self, *partitions: TP) -> dict[TP, int]:
            return dict.fromkeys(partitions, 7)

    recovery.signal_recovery_end.set()  # Faust takes it back when the next record of a changelog comes
    await recovery._build_highwaters(Consumer(), {partition}, recovery.active_highwaters, "active")
    assert not recovery.signal_recovery_end.is_set()
    assert recovery.active_highwaters == {partition: 6}


async def test_changelog_records_of_an_earlier_assignment_are_dropped() -> None:
    """Faust took the offset of such a record for the position of the table, and passed over all records before."""
    app: Any = SimpleNamespace(
        conf=SimpleNamespace(stream_buffer_maxsize=10),
        flow_control=FlowControl(),
        consumer=SimpleNamespace(has=lambda message: message.generation_id == 8),
    )
    queue = _ChangelogQueue(app)
    app.flow_control.resume()
    for generation, offset in [(7, 700), (8, 613), (7, 701), (8, 614)]:
        message = SimpleNamespace(generation_id=generation, offset=offset)
        await queue.put(SimpleNamespace(message=message))
    found = [await asyncio.wait_for(queue.get(), 1) for _ in range(2)]
    assert [event.message.offset for event in found] == [613, 614]


async def test_a_global_table_soon_shows_the_changes_of_other_workers() -> None:
    """Faust shows them as soon as 1,000 have come. A worker had none of the rows of the other workers for minutes."""
    app = App("told", datadir="unused")
    prices = app.GlobalTable("prices", default=int, key_type=str, value_type=int)
    recovery = AgentTableManager(app).recovery
    row = SimpleNamespace(value=b"7", tp=TP("told-prices-changelog", 1), partition=1, offset=0)
    recovery.buffers[prices].append(SimpleNamespace(key="fig", value=7, message=row))
    look = asyncio.create_task(recovery._look_for_the_end.fun(recovery))
    async with asyncio.timeout(30):
        while "fig" not in prices:
            await asyncio.sleep(0.05)
    assert prices["fig"] == 7
    look.cancel()


async def test_a_recovery_that_brokers_do_not_answer_ends_the_worker() -> None:
    """Faust took the time-out for its own end: agents got no records any more, and the worker was healthy."""
    recovery = AgentTableManager(App("told", datadir="unused")).recovery
    with pytest.raises(BrokerError, match="no answer within 0.01 s"):
        await recovery._wait(asyncio.sleep(60), 0.01)
    recovery._stopped.set()
    with pytest.raises(ServiceStopped):
        await recovery._wait(asyncio.sleep(60), 0.01)


@pytest.mark.parametrize("reads", ["after a while", "never"])
async def test_topics_that_agents_derive_before_their_first_read_are_in_the_first_subscription(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that comes later costs another rebalance. An agent that never reads delays nothing for long."""
    app = App("told", datadir="unused")
    known: list[str] = []

    @app.agent(app.topic("numbers", value_serializer="raw"))
    async def sort(stream: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)
        if reads == "never":
            await asyncio.Event().wait()
        async for _ in stream.group_by(len, name="length", partitions=1):
            pass

    async def subscribe() -> None:
        known.extend(name for topic in app.topics for name in topic.topics)

    async def nothing(*_: Any, **__: Any) -> None:
        """No broker is there."""

    monkeypatch.setattr(app.tables, "_update_channels", subscribe)
    monkeypatch.setattr(app.tables, "_recovery", SimpleNamespace(start=nothing))
    monkeypatch.setattr(faust.Topic, "maybe_declare", nothing)
    await app.agents.on_start()
    await app.tables.on_start()
    await app.agents.stop()
    derived = [name for name in known if "length" in name]
    assert (len(known), len(derived)) == ((2, 1) if reads == "after a while" else (1, 0))


class Changelog:
    """The changelog of a table of sets, as the worker that restores the table reads it."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.end = 0

    def restore(self, *changes: tuple[int, str, Any]) -> None:
        batch = []
        for operation, key, value in changes:
            message = SimpleNamespace(tp=TP("told-carriers-changelog", 0), offset=self.end)
            batch.append(SimpleNamespace(key=[operation, key], value=value, message=message))
            self.end += 1
        self.table.apply_changelog_batch(batch)


def sets(kind: str = "SetTable") -> Any:
    app = App("told", datadir="unused")
    table = getattr(app, kind)("carriers", value_type=str, partitions=1)
    table._send_changelog = lambda *_: None  # no broker
    return table


@pytest.mark.parametrize("kind", ["SetTable", "SetGlobalTable"])
async def test_a_set_has_the_members_that_another_worker_has_added(kind: str) -> None:
    """With Faust's own table, the second rebalance took away all members that the other worker had added."""
    table = sets(kind)
    table["JFK"].add("UA")
    await table.on_recovery_completed(set(), set())  # the partition moves to another worker
    Changelog(table).restore((OPERATION_ADD, "JFK", "UA"), (OPERATION_ADD, "JFK", "AA"))
    await table.on_recovery_completed(set(), set())  # the partition is here again
    assert set(table["JFK"]) == {"UA", "AA"}


async def test_tables_of_sets_are_emptied_before_they_are_restored_anew() -> None:
    """Faust's sets have no method for this. The error got lost, and the table kept changes that were not committed."""
    app: Any = App("told", datadir="unused")
    carriers, counts = (
        app.SetTable("carriers", value_type=str, partitions=1),
        app.Table("counts", partitions=1),
    )
    carriers._send_changelog = lambda *_: None
    carriers["JFK"].add("UA")
    counts.data["JFK"] = 1
    app.tables.restore_anew(table.changelog_topic_name for table in (carriers, counts))
    await carriers.on_recovery_completed(set(), set())
    assert (dict(carriers.items()), dict(counts.items())) == ({}, {})


def test_the_changelog_of_sets_keeps_all_records() -> None:
    """With Faust's own settings, brokers deleted members after seven days: the next restore lacked them."""
    assert sets().changelog_topic.config == {
        "cleanup.policy": "delete",
        "retention.bytes": -1,
        "retention.ms": -1,
    }
    own = App("told", datadir="unused").SetTable("own", extra_topic_configs={"retention.ms": 5})
    assert own.changelog_topic.config["retention.ms"] == 5
