"""The state of one task: its stores, the backend with their rows, and the steps of a commit that concern stores."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from streamapp.config import StreamsConfig
from streamapp.engine.collector import Collector, RowCollector
from streamapp.engine.source_rows import source_rows
from streamapp.errors import ProcessorStateError, SerializationError
from streamapp.records import NO_HEADERS, Headers, RecordBatch, TopicPartition
from streamapp.serdes.framing import Framing
from streamapp.state.backend import MemoryBackend, StateBackend, WriteSet
from streamapp.state.cache import RecordCache
from streamapp.state.open import open_store
from streamapp.state.row_memory import RowMemory
from streamapp.state.store import StoreContext
from streamapp.topology.plan import Subtopology

__all__ = ["TaskStores"]


class TaskStores:
    """The stores of one task. Persistent stores have their rows in the task's backend, all others in memory."""

    def __init__(
        self,
        subtopology: Subtopology,
        config: StreamsConfig,
        task: StoreContext,
        backend: StateBackend,
        changelogs: Collector,
        cache: RecordCache,
        rows: RowMemory,
    ) -> None:
        self._partition = task.partition
        self._backend = backend
        self._memory = MemoryBackend()
        self._collector = changelogs
        self._rows = changelogs if isinstance(changelogs, RowCollector) else None
        self._changelogs = {name: topic.name for name, topic in subtopology.changelog_topics.items()}
        # A source topic that serves as changelog has the records already, so the task writes none.
        self._written = {
            name: topic for name, topic in self._changelogs.items() if topic not in subtopology.source_topics
        }
        self.by_name: dict[str, Any] = {}
        for spec in subtopology.stores:
            table = (backend if spec.persistent else self._memory).table(spec.name)
            self.by_name[spec.name] = open_store(spec, table, task, cache, rows)
        self._source_rows = {
            name: source_rows(source, topic, task.partition, self.by_name[name].spec, config)
            for name, topic in self._changelogs.items()
            if (source := subtopology.source_of(topic)) is not None
        }
        """Stores with a source topic as changelog. None: the records of the topic are the rows."""
        self._shortened = {
            TopicPartition(self._written[name], task.partition): store
            for name, store in self.by_name.items()
            if name in self._written
            and "delete" in subtopology.changelog_topics[name].config.get("cleanup.policy", "delete")
        }
        """The stores whose changelogs may lose records: brokers refuse to delete records of other changelogs."""

    def restore(self, name: str, batch: RecordBatch) -> None:
        """Writes the rows of changelog records, and the next changelog offset, to the backend.

        Raises `ProcessorStateError` for records that do not have the format of this store.
        """
        if not batch.offsets:
            return
        store = self.by_name[name]
        if batch.headers is not None:  # a source topic may have the ids of schemas in headers
            batch = Framing(store.spec.key_serde, store.spec.value_serde).join(batch)
        end = batch.offsets[-1] + 1
        if (rows := self._source_rows.get(name)) is not None:
            batch = rows.of(batch)
        writes = WriteSet()
        try:
            store.restore(batch, writes)
        except (SerializationError, LookupError, ValueError, struct.error, OverflowError) as error:
            raise ProcessorStateError(
                f"the changelog {self._changelogs.get(name, name)} has records between the offsets {batch.offsets[0]} "
                f"and {end - 1} that do not have the format of store {name!r}: {error}"
            ) from error
        writes.offsets[name] = end
        if name in self._written:
            store.note_logged(end, writes)
        (self._backend if store.spec.persistent else self._memory).write(writes)

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        """Sends one changelog record of a store; does nothing for a store whose changelog is a source topic, or that
        has none."""
        topic = self._written.get(store)
        if topic is not None:
            self._collector.send(topic, key, value, timestamp, headers, self._partition)

    def log_rows(
        self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Logs each of these records, which have no headers, as `log` does."""
        if self._rows is None:
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                self.log(store, key, value, timestamp, NO_HEADERS)
        elif (topic := self._written.get(store)) is not None:
            self._rows.send_rows(topic, self._partition, keys, values, timestamps)

    def flush_caches(self) -> None:
        """Flushes the record caches: their rows go to the operators behind."""
        for store in self.by_name.values():
            store.flush()

    def log_changes(self) -> None:
        """Sends the changelog records of this commit. All record caches are flushed before."""
        for store in self.by_name.values():
            store.log_dirty()

    def persist(
        self, changelog_offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Writes the changed rows of each store to its backend.

        Persistent stores share one backend. One write has their rows, and the next offset of each of their changelogs.
        The offset comes from ``changelog_offsets``, or from ``positions`` if a source topic serves as changelog. If it
        is missing there, the backend keeps the earlier offset. In-memory stores get their rows and no offsets.
        """
        writes, memory = WriteSet(), WriteSet()
        for name, store in self.by_name.items():
            write_set = writes if store.spec.persistent else memory
            store.drain(write_set)
            topic = self._changelogs.get(name)
            if topic is None:
                continue
            known = changelog_offsets if name in self._written else positions
            offset = known.get(TopicPartition(topic, self._partition))
            if offset is None:
                continue
            if name in self._written:
                store.note_logged(offset, write_set)
            if store.spec.persistent:
                writes.offsets[name] = offset
        self._memory.write(memory)
        self._backend.write(writes)

    @property
    def needless_changes(self) -> dict[TopicPartition, int]:
        """Changelogs whose first records no restore needs, with the offset below which these records are."""
        found = {tp: store.needless_below for tp, store in self._shortened.items()}
        return {tp: offset for tp, offset in found.items() if offset}

    @property
    def dirty_bytes(self) -> int:
        return sum(store.dirty_bytes for store in self.by_name.values())

    @property
    def changelog_offsets(self) -> dict[str, int]:
        return {**self._backend.offsets(), **self._memory.offsets()}

    def close(self) -> None:
        for store in self.by_name.values():
            store.close()
        self._backend.close()
