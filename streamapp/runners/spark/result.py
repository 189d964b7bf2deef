"""The results of a batch: the records of the output topics, and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from streamapp.records import NO_HEADERS, Record
from streamapp.runners.spark.archive import write_archive
from streamapp.runners.spark.typed import typed
from streamapp.serdes import Serde
from streamapp.serdes.framing import Framing
from streamapp.state.spec import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchResult", "OutputTable", "OutputTopic", "TableRow"]


class TableRow(NamedTuple):
    """One row of a table; all times are in ms.

    ``start`` and ``end`` are the bounds of the window, of the session, or of the time in which a version is valid. The
    ``end`` of the present version is None. Both are None for other rows. ``timestamp`` is None for sessions, for
    versions, and for stores that keep no timestamps, but -1 for a table with ``Materialized(timestamped=False)``.
    """

    key: Any
    value: Any
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class OutputTopic:
    """The records of a batch for one topic.

    ``frame`` has the columns topic, partition, key, value, timestamp, headers, mx, src and seq. ``mx`` is the stream
    time of the task when it sent the record (the maximum of its timestamps). ``src`` is the task's partition, or -1 for
    a dead letter that no task has sent. ``seq`` is a number that rises with each record of the task.

    The frame is not sorted: mx, then src, then seq give the order of the records in a partition. `publish` and
    `write_archive` take this frame.
    """

    name: str
    frame: DataFrame

    def write_parquet(self, path: str) -> None:
        """Writes the records in their order into a new folder, which `ParquetSource` reads."""
        write_archive(self.frame, path)

    def typed(self, key_serde: Serde[Any], value_serde: Serde[Any]) -> DataFrame:
        """The records as a DataFrame for SQL: ``partition``, ``timestamp`` (an SQL timestamp), ``key`` and ``value``.

        The rows have no order.
        """
        from pyspark.sql import functions as F

        moment = F.timestamp_millis("timestamp").alias("timestamp")
        bound = key_serde.bind(self.name, True), value_serde.bind(self.name, False)
        headers = ["headers"] if Framing(*bound).joins else []
        return typed(self.frame.select("partition", moment, "key", "value", *headers), *bound)

    def records(
        self, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> Iterator[tuple[int, Record]]:
        """(partition, record) of all records, by partition number.

        Keys or values without a serde stay bytes.
        """
        key_serde = key_serde and key_serde.bind(self.name, True)
        value_serde = value_serde and value_serde.bind(self.name, False)
        key_of, value_of = _reader(key_serde), _reader(value_serde)
        framing = Framing(key_serde, value_serde)
        ordered = self.frame.orderBy("partition", "mx", "src", "seq")
        for row in ordered.select("partition", "key", "value", "timestamp", "headers").toLocalIterator():
            headers = tuple((h.key, _bytes(h.value)) for h in row.headers) if row.headers else NO_HEADERS
            key, value, headers = framing.joined(_bytes(row.key), _bytes(row.value), headers)
            yield row.partition, Record(key_of(key), value_of(value), row.timestamp, headers)


@dataclass(frozen=True)
class OutputTable:
    """The contents of a table after the batch.

    ``frame`` has the columns partition, key and value (bytes), timestamp, start and end (ms).
    """

    spec: StoreSpec
    frame: DataFrame

    @property
    def typed(self) -> DataFrame:
        """The table for SQL: ``partition``, ``key``, ``value``, and the times of the table's kind as SQL timestamps.

        ``key`` and ``value`` are strings, numbers or structs, or JSON text for types that Spark does not have.

        Tables of windows have the times ``window_start`` and ``window_end``, and tables of sessions ``session_start``
        and ``session_end``. Versioned tables have ``valid_from`` and ``valid_to`` (null: still valid). Other tables,
        and tables of windows, have ``timestamp`` if their store keeps timestamps.
        """
        from pyspark.sql import functions as F

        key_serde, value_serde = self.spec.key_serde, self.spec.value_serde
        assert key_serde is not None
        assert value_serde is not None
        shape = self.spec.kind.shape
        assert shape is not None
        moments = [F.timestamp_millis(F.col(name)).alias(shown) for name, shown in shape.columns.items()]
        return typed(self.frame.select("partition", "key", "value", *moments), key_serde, value_serde)

    def rows(self) -> Iterator[TableRow]:
        """All rows, with keys and values that the serdes have read."""
        key_of = _reader(self.spec.key_serde)
        value_of = _reader(self.spec.value_serde)
        for row in self.frame.select("key", "value", "timestamp", "start", "end").toLocalIterator():
            yield TableRow(key_of(row.key), value_of(row.value), row.timestamp, row.start, row.end)


@dataclass(frozen=True)
class BatchResult:
    """Topics and tables by name.

    The data stays on the executors' disks until `close`, or until the end of a ``with`` block.
    """

    topics: Mapping[str, OutputTopic]
    tables: Mapping[str, OutputTable]
    processed: int
    """The number of processed records; a record that passes through a repartition topic counts twice."""
    dropped: int
    """The number of dropped records, for example late records or records without a key."""
    frames: tuple[DataFrame, ...]

    def close(self) -> None:
        """Deletes the data from the executors' disks. The frames of topics and tables cannot be read any more."""
        for frame in self.frames:
            frame.unpersist()

    def __enter__(self) -> BatchResult:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bytes(data: bytearray | None) -> bytes | None:
    """The bytes of a binary column, which Spark gives as ``bytearray``."""
    return None if data is None else bytes(data)


def _reader(serde: Serde[Any] | None) -> Any:
    if serde is None:
        return _bytes
    deserialize = serde.deserialize
    return lambda data: None if data is None else deserialize(bytes(data))
