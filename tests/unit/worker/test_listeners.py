"""The calls of the application's listeners for restores and standbys; no broker."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import App, StandbyUpdateListener, StateRestoreListener
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import RecordBatch
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.restore import Restorer
from streamapp.runners.worker.standby import Standbys

from .test_global_stores import RATES, Cluster, cluster, opened
from .test_standbys import HOME, Broker, World, broker

__all__ = ["broker", "cluster"]


class Noting(StateRestoreListener, StandbyUpdateListener):
    """Notes each call. Raises in the method with the name ``failing``."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing = failing

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def call(partition: Any, store: str, *arguments: Any) -> None:
            assert store in ("rows-table", "rates-STATE-STORE-0000000000")
            self.calls.append((name, partition.partition, *arguments))
            if name == self.failing:
                raise RuntimeError("no")

        call.__qualname__ = f"Noting.{name}"
        return call


def test_a_restore_tells_its_begin_each_batch_and_its_end(broker: Broker) -> None:
    world, noted = World(broker), Noting()
    broker.ends[world.changelog] = 4
    restorer = Restorer(world.config, broker, ListenerCalls(noted, noted))  # type: ignore[arg-type]
    restorer.add([world.open(HOME)])
    assert noted.calls == [("on_restore_start", 0, 0, 4)]
    broker.send(world.changelog, 0, 2)
    restorer.poll(0)
    broker.send(world.changelog, 3, 4, 5)  # 4 and 5 came after the begin
    restorer.poll(0)
    assert noted.calls[1:] == [
        ("on_batch_restored", 0, 2, 2),
        ("on_batch_restored", 0, 3, 1),
        ("on_restore_end", 0, 3),
    ]


def test_a_restore_of_a_task_that_leaves_is_suspended(broker: Broker) -> None:
    world, noted = World(broker), Noting()
    broker.ends[world.changelog] = 4
    restorer = Restorer(world.config, broker, ListenerCalls(noted, noted))  # type: ignore[arg-type]
    live = world.open(HOME)
    restorer.add([live])
    broker.send(world.changelog, 0)
    restorer.poll(0)
    restorer.drop([live])
    assert noted.calls[2:] == [("on_restore_suspended", 0, 1)]


def test_a_store_that_lacks_no_record_and_a_restore_that_never_began_tell_nothing(broker: Broker) -> None:
    world, noted = World(broker), Noting()
    restorer = Restorer(world.config, broker, ListenerCalls(noted, noted))  # type: ignore[arg-type]
    broker.ends[world.changelog] = 0
    restorer.add([world.open(HOME)])
    assert noted.calls == []
    tasks = [world.open(TaskId(0, number)) for number in range(1, 5)]
    for live in tasks:
        (partition,) = live.changelogs
        broker.ends[partition] = 9
    restorer.add(tasks)
    restorer.drop(tasks[3:])  # three restores run at a time
    assert [call[:2] for call in noted.calls] == [("on_restore_start", number) for number in (1, 2, 3)]


def following(world: World, noted: Noting) -> Standbys:
    return Standbys(
        world.config,
        world.broker,  # type: ignore[arg-type]
        ListenerCalls(noted, noted),
        world.open,
        lambda live: noted.calls.append(("closed",)),
        world.on_caught_up,
    )


def test_a_standby_tells_its_batches_and_that_it_is_closed(broker: Broker) -> None:
    world, noted = World(broker), Noting()
    broker.ends[world.changelog] = 4
    standbys = following(world, noted)
    standbys.assign({HOME: False})
    broker.send(world.changelog, 0, 2)
    standbys.poll()
    standbys.assign({})
    assert noted.calls == [
        ("on_update_start", 0, 0),
        ("on_batch_loaded", 0, "0_0", 2, 2, 4),
        ("closed",),
        ("on_update_suspended", 0, 2, 4, "migrated"),
    ]


def test_a_standby_that_becomes_the_running_task_is_promoted_before_its_restore(broker: Broker) -> None:
    world, noted = World(broker), Noting()
    broker.ends[world.changelog] = 4
    standbys = following(world, noted)
    standbys.assign({HOME: False})
    broker.send(world.changelog, 0, 2)
    standbys.poll()
    live = standbys.take(HOME)
    assert live is not None
    Restorer(world.config, broker, ListenerCalls(noted, noted)).add([live])  # type: ignore[arg-type]
    assert noted.calls[2:] == [("on_update_suspended", 0, 2, 4, "promoted"), ("on_restore_start", 0, 3, 4)]
    standbys.close()
    assert len(noted.calls) == 4


def test_the_restore_of_a_global_store_ends_where_its_topic_ended_at_the_start(cluster: Cluster) -> None:
    noted = Noting()
    cluster.ends = {RATES: 3}
    stores = opened(cluster, listeners=ListenerCalls(noted, noted))
    assert noted.calls == []  # another thread than that of the data plane makes the stores
    batch = RecordBatch([b"k"] * 4, [b"v"] * 4, [1] * 4, [0, 1, 2, 3])
    cluster.arrived.append((RATES, batch))
    stores.poll(0)
    cluster.arrived.append((RATES, RecordBatch([b"k"], [b"v"], [1], [4])))
    stores.poll(0)
    assert noted.calls == [
        ("on_restore_start", 0, 0, 3),
        ("on_batch_restored", 0, 2, 3),
        ("on_restore_end", 0, 3),
    ]
    stores.close()


@pytest.mark.parametrize("failing", ["on_restore_start", "on_batch_restored", "on_restore_end"])
def test_a_listener_that_raises_ends_the_restore_with_its_name(broker: Broker, failing: str) -> None:
    world = World(broker)
    broker.ends[world.changelog] = 1
    calls = ListenerCalls(Noting(failing), None)
    restorer = Restorer(world.config, broker, calls)  # type: ignore[arg-type]
    broker.send(world.changelog, 0)

    def run() -> None:
        restorer.add([world.open(HOME)])
        restorer.poll(0)

    with pytest.raises(StreamsError, match=rf"Noting.{failing} for the store rows-table, .* raised .*no"):
        run()
    assert calls.at is None


def test_a_copy_is_still_closed_if_its_listener_raises(broker: Broker) -> None:
    world, noted = World(broker), Noting("on_update_suspended")
    broker.ends[world.changelog] = 1
    standbys = following(world, noted)
    standbys.assign({HOME: False})
    with pytest.raises(StreamsError, match="on_update_suspended"):
        standbys.take(HOME)
    with pytest.raises(StreamsError, match="on_update_suspended"):
        standbys.close()
    assert ("closed",) in noted.calls


@pytest.mark.parametrize("name", ["state_restore_listener", "standby_update_listener"])
def test_wrong_listeners_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has to be an object of a class derived from"):
        App("wrong", topology=lambda builder: builder.stream("in").to("out"), **{name: print})
    with pytest.raises(ConfigError, match=f"{name} needs a topology"):
        App("wrong", **{name: Noting()})
