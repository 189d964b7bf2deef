"""A task as stores see it, and one store in its life: written, flushed, committed, opened again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from streamapp.engine.current_record import CurrentRecord
from streamapp.records import NO_HEADERS, Headers, RecordBatch
from streamapp.serdes import LongSerde, StringSerde
from streamapp.serdes.base import Serde
from streamapp.state import key_image, time_buckets, time_index
from streamapp.state.backend import MemoryBackend, WriteSet
from streamapp.state.cache import RecordCache
from streamapp.state.dirty_rows import DirtyOrder
from streamapp.state.open import open_store
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec
from tests.store_kinds import kind_of, split

ROW_LIMITS = st.sampled_from([0, 700, 1_500, 6_000, 100_000])
"""Limits of a `RowMemory`: from no row to all rows."""
IMAGE_LIMITS = st.sampled_from([1, 2, 16])
"""Limits of the rows in a `KeyImage`."""


@contextmanager
def images_of(rows: int) -> Iterator[None]:
    """Images are shortened when they have more than so many rows, and get about as many later rows."""
    with (
        mock.patch.object(key_image, "_LIMIT", rows),
        mock.patch.object(time_buckets, "_LATER_ROWS", rows),
        mock.patch.object(time_buckets, "_LATER_PARTS", 1),
    ):
        yield


INDEX_PARTS = st.sampled_from([1, 3, 500])
"""The numbers of rows that a `TimeIndex` reads at once."""


@contextmanager
def index_parts_of(rows: int) -> Iterator[None]:
    """A `TimeIndex` reads so many rows at once, and keeps twice as many in memory."""
    with mock.patch.object(time_index, "_PART", rows):
        yield


class TaggedSerde(Serde[list[str]]):
    """A list of strings: a value that can change in place."""

    immutable = False

    @staticmethod
    def serialize(value: list[str]) -> bytes:
        return ",".join(value).encode()

    @staticmethod
    def deserialize(data: bytes) -> list[str]:
        return data.decode().split(",")


class FakeTask(CurrentRecord):
    def __init__(self, log_each_write: bool = False) -> None:
        super().__init__()
        self.partition = 0
        self.topic, self.offset, self.timestamp = "in", 0, 0
        self.log_each_write = log_each_write
        self.logged: list[tuple[bytes, bytes | None, int | None, Headers]] = []
        self.dropped = 0

    def log(
        self, store: str, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        assert store == "s"
        self.logged.append((key, value, timestamp, headers))

    def log_rows(
        self, store: str, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            self.log(store, key, value, timestamp, NO_HEADERS)

    def drop(self, count: int, where: str, reason: str) -> None:
        self.dropped += count

    def changelog(self, start: int = 0) -> RecordBatch:
        """The records from an offset on."""
        columns = list(zip(*self.logged[start:], strict=True)) or [(), (), (), ()]
        return RecordBatch(columns[0], columns[1], columns[2], range(start, len(self.logged)), columns[3])


class Life:
    """One store on a `MemoryBackend`; ``spec`` has the fields of `StoreSpec` and the parameters of the kind, which may be a name."""

    def __init__(
        self,
        log_each_write: bool = False,
        cache: RecordCache | None = None,
        memory: RowMemory | None = None,
        **spec: Any,
    ) -> None:
        spec.setdefault("key_serde", StringSerde())
        spec.setdefault("value_serde", LongSerde())
        if isinstance(spec["kind"], str):
            parameters, spec = split(spec)
            spec["kind"] = kind_of(spec["kind"], **parameters)
        self.spec = StoreSpec(name="s", **spec)
        self.task = FakeTask(log_each_write)
        self.backend = MemoryBackend()
        self.cache = cache or RecordCache(10_000)
        self.memory = memory or RowMemory()
        self.reopen()

    def reopen(self) -> None:
        self.store = open_store(self.spec, self.backend.table("s"), self.task, self.cache, self.memory)

    def persist(self) -> None:
        write_set = WriteSet()
        self.store.drain(write_set)
        self.store.note_logged(len(self.task.logged), write_set)
        self.backend.write(write_set)

    def commit(self) -> None:
        self.store.flush()
        self.store.log_dirty()
        self.persist()

    def go_on(self, step: str) -> None:
        """A step that changes nothing that can be read: log, persist, commit, or reopen after a commit."""
        if step == "log":
            self.store.log_dirty()
        elif step == "persist":
            self.persist()
        else:
            self.commit()
            if step == "reopen":
                self.persist()
                self.reopen()

    def rows_read(self) -> list[tuple[bytes, bytes]]:
        """The rows that scans of the store read in the backend from now on."""
        table, read = self.store._table, []

        class Counted:
            get = table.get

            def range(self, start, end, reverse=False):
                for entry in table.range(start, end, reverse):
                    read.append(entry)
                    yield entry

        self.store._table = Counted()
        if self.store._time_index is not None:
            self.store._time_index._table = self.store._table
        return read

    def restored(self, start: int = 0) -> Any:
        """A store of another task that was built from this one's changelog, from an offset on."""
        other = Life(
            **{
                field.name: getattr(self.spec, field.name)
                for field in fields(self.spec)
                if field.name != "name"
            }
        )
        write_set = WriteSet()
        batch = self.task.changelog(start)
        other.store.restore(batch, write_set)
        other.store.note_logged(start + len(batch.keys), write_set)
        other.backend.write(write_set)
        return other.store


class RowsTaken:
    """The number of dirty rows that scans have taken, deleted rows included."""

    def __enter__(self) -> RowsTaken:
        self.rows = 0
        between = DirtyOrder.between

        def counted(*args: Any) -> Iterator[Any]:
            for row in between(*args):
                self.rows += 1
                yield row

        self._patch = mock.patch.object(DirtyOrder, "between", counted)
        self._patch.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._patch.stop()
