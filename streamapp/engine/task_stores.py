"""The state of one task: its stores, the backend with their rows, and the steps of a commit that concern stores."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from streamapp.engine.collector import Collector
from streamapp.errors import ProcessorStateError, SerializationError
from streamapp.records import Headers, RecordBatch, TopicPartition
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
        self._changelogs = {name: topic.name for name, topic in subtopology.changelog_topics.items()}
        # A source topic that serves as changelog has the records already, so the task writes none.
        self._written = {
            name: topic for name, topic in self._changelogs.items() if topic not in subtopology.source_topics
        }
        self.by_name: dict[str, Any] = {}
        for spec in subtopology.stores:
            table = (backend if spec.persistent else self._memory).table(spec.name)
            self.by_name[spec.name] = open_store(spec, table, task, cache, rows)

    def restore(self, name: str, batch: RecordBatch) -> None:
        """Writes the rows of changelog records, and the next changelog offset, to the backend.

        Raises `ProcessorStateError` for records that do not have the format of this store.
        """
        if not batch.offsets:
            return
        store = self.by_name[name]
        if batch.headers is not None:  # a source topic may have the ids of schemas in headers
            batch = Framing(store.spec.key_serde, store.spec.value_serde).join(batch)
        writes = WriteSet()
        try:
            store.restore(batch, writes)
        except (SerializationError, LookupError, ValueError, struct.error, OverflowError) as error:
            raise ProcessorStateError(
                f"the changelog {self._changelogs.get(name, name)} has records between the offsets {batch.offsets[0]} "
                f"and {batch.offsets[-1]} that do not have the format of store {name!r}: {error}"
            ) from error
        writes.offsets[name] = batch.offsets[-1] + 1
        (self._backend if store.spec.persistent else self._memory).write(writes)

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        """Sends one changelog record of a store; does nothing for a store whose changelog is a source topic, or that
        has none."""
        topic = self._written.get(store)
        if topic is not None:
            self._collector.send(topic, key, value, timestamp, headers, self._partition)

    def flush(self) -> None:
        """Flushes the record caches, then sends the changelog records of this commit."""
        for store in self.by_name.values():
            store.flush()
        for store in self.by_name.values():
            store.log_dirty()

    def persist(
        self, changelog_offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Writes state and the next offset of each changelog to the backend, in one write.

        If a source topic serves as changelog, its offset is in ``positions``.
        """
        writes, memory = WriteSet(), WriteSet()
        for name, store in self.by_name.items():
            store.drain(writes if store.spec.persistent else memory)
            topic = self._changelogs.get(name)
            if topic is not None and store.spec.persistent:
                known = changelog_offsets if name in self._written else positions
                offset = known.get(TopicPartition(topic, self._partition))
                if offset is not None:
                    writes.offsets[name] = offset
        self._memory.write(memory)
        self._backend.write(writes)

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
