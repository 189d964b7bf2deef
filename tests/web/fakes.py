"""A worker that is only a fake: its stores are the engine's own, its state is what a test sets."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from zlib import crc32

from streamapp.records import Headers, TopicPartition
from streamapp.serdes import Serde, StringSerde
from streamapp.state.backend import MemoryBackend
from streamapp.state.open import open_store
from streamapp.state.spec import StoreSpec
from streamapp.web.view_source import (
    InputStatus,
    NotAvailable,
    SubtopologyGraph,
    TableInfo,
    TaskStatus,
    TopologyGraph,
    TopologyNode,
    WorkerStatus,
)
from tests.store_kinds import kind_of, split


class StoreTask:
    """The task that the engine's own stores are opened in."""

    partition, offset, timestamp = 0, 0, 0
    topic: str | None = None
    headers: Headers = ()
    batch = None
    log_each_write = False
    keeps_source_bytes = False

    def log(self, *record: Any) -> None: ...

    def drop(self, count: int, where: str, reason: str) -> None: ...


def open_empty(name: str, kind: str, key_serde: Serde[Any] | None = None, **spec: Any) -> Any:
    """One of the engine's stores, over memory; ``spec`` has the parameters of the kind too."""
    parameters, spec = split(spec)
    store_spec = StoreSpec(
        name=name,
        kind=kind_of(kind, **parameters),
        key_serde=key_serde or StringSerde(),
        value_serde=JsonText(),
        logged=False,
        **spec,
    )
    return open_store(store_spec, MemoryBackend().table(name), StoreTask())


class JsonText(Serde[Any]):
    """Any JSON value as text."""

    def serialize(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data)


class FakeSource:
    """A worker with some partitions of each table. Tests change ``worker``, ``tables_`` and ``stores``."""

    application_id = "flights"

    def __init__(self, partitions: int = 4, url: str = "http://worker-1:6066") -> None:
        self.partitions = partitions
        self.worker = WorkerStatus("running", None, url, tasks=(example_task(),))
        self.tables_: dict[str, TableInfo] = {}
        self.stores: dict[tuple[str, int], Any] = {}
        self.block_reads: asyncio.Event | None = None
        self.reads = 0
        self.at_least: Mapping[TopicPartition, int] | None = None

    def add_table(
        self,
        name: str,
        kind: str,
        stores: Mapping[int, Any],
        *,
        key_serde: Serde[Any] | None = None,
        owners: Mapping[int, str | None] | None = None,
        **info: Any,
    ) -> None:
        """A table with the given local partitions; partitions of others come with ``owners``.

        ``info`` has the parameters of the kind too, as far as a view asks for them.
        """
        parameters, info = split({"retention_ms": 0, "max_entries": 1, "size_ms": 0, **info})
        held = dict.fromkeys(stores, self.worker.url)
        self.tables_[name] = TableInfo(
            name,
            kind_of(kind, **parameters),
            f"flights-{name}-changelog",
            key_serde or StringSerde(),
            StringSerde(),
            owners={**held, **(owners or {})},
            local=frozenset(stores),
            **{"subtopology": 0, **info},
        )
        self.stores |= {(name, partition): store for partition, store in stores.items()}

    def status(self) -> WorkerStatus:
        return self.worker

    def topology(self) -> TopologyGraph:
        return example_topology()

    def tables(self) -> Mapping[str, TableInfo]:
        return self.tables_

    def partition_for(self, table: str, key: bytes) -> int:
        return crc32(key) % self.partitions

    def pause(self) -> None:
        self.worker = dataclasses.replace(self.worker, paused=True)

    def resume(self) -> None:
        self.worker = dataclasses.replace(self.worker, paused=False)

    async def read(
        self,
        table: str,
        partition: int,
        fn: Callable[[Any], Any],
        *,
        stale: bool = False,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> Any:
        self.reads += 1
        self.at_least = at_least
        if self.block_reads is not None:
            await self.block_reads.wait()
        if (table, partition) not in self.stores:
            raise NotAvailable(f"{table} {partition} is not here")
        return fn(self.stores[table, partition])


def placed(source: FakeSource, key_serde: Serde[Any], keys: Iterable[Any]) -> dict[int, list[Any]]:
    """The keys of each partition, as `FakeSource.partition_for` places them."""
    by_partition: dict[int, list[Any]] = {partition: [] for partition in range(source.partitions)}
    for key in keys:
        by_partition[source.partition_for("", key_serde.serialize(key))].append(key)
    return by_partition


def key_value_stores(
    source: FakeSource,
    entries: Mapping[Any, Any],
    key_serde: Serde[Any] | None = None,
    kind: str = "key_value",
) -> dict[int, Any]:
    """A store for each partition with the entries that belong there; the n-th has timestamp 1000 + n."""
    serde, stores = key_serde or StringSerde(), {}
    times = {serde.serialize(key): 1_000 + n for n, key in enumerate(entries)}
    for partition, keys in placed(source, serde, entries).items():
        stores[partition] = open_empty("t", kind, serde)
        for key in keys:
            stores[partition].put(key, entries[key], times[serde.serialize(key)])
    return stores


def example_task() -> TaskStatus:
    return TaskStatus("0_1", 1, "running", 100, inputs=(InputStatus("flights", 1, 90, 100, buffered=4),))


def example_topology() -> TopologyGraph:
    nodes = (
        TopologyNode("SOURCE", "source", topics=("flights",), successors=("COUNT",)),
        TopologyNode("COUNT", "processor", stores=("counts",), successors=("SINK",)),
        TopologyNode("SINK", "sink", topics=("delays",)),
    )
    return TopologyGraph("Topologies:\n   Sub-topology: 0\n", "flowchart LR\n", (SubtopologyGraph(0, nodes),))
