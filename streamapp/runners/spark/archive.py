"""Records of a topic in Parquet files, which streamapp's tasks on Spark read in Python.

If Spark reads files, it reads them in Java, shuffles and sorts the rows, and sends them to Python. These steps are most
of the cost of a batch. Files that are in the order of the topic do not need these steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from streamapp._base.counted import counted
from streamapp.errors import ConfigError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.batch_source import NO_TIMESTAMP, check_partitions
from streamapp.runners.spark.packing import record_headers
from streamapp.runners.spark.partitioning import exact_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Gap", "ParquetPart", "ParquetSource", "gap_warnings", "write_archive"]

COLUMNS = ("key", "value", "timestamp", "offset")
MARKER = 1
"""The number of offsets that the end of a transaction takes. So many missing offsets between two files are no gap."""
BATCH = 10_000
BATCH_BYTES = 1 << 19
"""A batch of this size fits into the processor's cache together with the objects made from the batch.

The cost is a tenth less than with batches of several megabytes.
"""
_FOLDER = re.compile(r"(?:^|/)partition=(\d+)/[^/]+\.parquet$")
_HIDDEN = re.compile(r"(?:^|/)[._]")
"""Spark keeps the files of an unfinished write in the folder ``_temporary``, and hides such names when it reads."""


@dataclass(frozen=True)
class ParquetSource:
    """A topic in Parquet files, as `OutputTopic.write_parquet` writes them.

    ``path`` is a folder, or a URI that pyarrow knows (``s3://...``, ``hdfs://...``). The driver and every executor must
    be able to read ``path``. The files are ``partition=N/*.parquet`` below ``path``. Their columns are ``key`` and
    ``value`` (binary or null), ``timestamp`` (bigint, ms) and ``offset`` (bigint, never null). The column ``headers``
    may be missing, and is an array of structs of ``key`` (string) and ``value`` (binary). A null ``timestamp`` is -1,
    as in Kafka, and a timestamp extractor can give the record a time.

    Each file is in the order of its offsets, and the files of a partition do not overlap. For files in any other
    order, use ``FrameSource(spark.read.parquet(...))``, which sorts the rows. If more than one offset is missing
    between two files, the log has a warning, because a file may be missing. Files whose names begin with ``_`` or
    ``.`` are left out, as Spark does.

    ``partitions`` is the number of the topic's partitions; default: the largest partition number in the files, plus 1.
    """

    path: str
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.partitions is not None:
            check_partitions(self.partitions)

    def parts(self, topic: str) -> dict[TopicPartition, ParquetPart]:
        """Reads the footers of all files, and returns a part for each partition.

        Raises `ConfigError` for no rows, damaged files, wrong columns, too many partitions, or files that overlap.
        """
        system, root = pafs.FileSystem.from_uri(self.path) if "://" in self.path else _local(self.path)
        found: dict[int, list[tuple[int, int, str, int]]] = {}
        for info in system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True)):
            folder = _FOLDER.search(info.path)
            if folder is not None and not _HIDDEN.search(info.path[len(root) :]):
                span = _span(system, info.path)
                if span is not None:
                    found.setdefault(int(folder[1]), []).append((*span[:2], info.path, span[2]))
        if not found:
            raise ConfigError(
                f"{self.path} has no records for {topic}: no files partition=N/*.parquet with rows"
            )
        count = self.partitions or max(found) + 1
        if max(found) >= count:
            raise ConfigError(f"{self.path} has records of partition {max(found)}, but partitions is {count}")
        parts = {}
        for partition in range(count):
            files = sorted(found.get(partition, []))
            for one, other in pairwise(files):
                if other[0] <= one[1]:
                    raise ConfigError(
                        f"{one[2]} and {other[2]} both have offsets from {other[0]} on: write the archive anew, or "
                        "read it with FrameSource(spark.read.parquet(...)), which sorts"
                    )
            rows = sum(file[3] for file in files)
            offsets = (files[0][0], files[-1][1] + 1) if files else (0, 0)
            gaps = tuple(
                Gap(one[1] + 1, other[0], one[2], other[2])
                for one, other in pairwise(files)
                if other[0] - one[1] > 1 + MARKER
            )
            parts[TopicPartition(topic, partition)] = ParquetPart(
                self.path, tuple(f[2] for f in files), rows, offsets, gaps
            )
        return parts


@dataclass(frozen=True)
class Gap:
    """Offsets of a partition, from ``start`` to before ``end``, that lie between two files of an archive."""

    start: int
    end: int
    before: str
    """The file that ends before the gap."""
    after: str
    """The file that begins behind the gap."""


def gap_warnings(gaps: Mapping[TopicPartition, Sequence[Gap]]) -> list[str]:
    """A warning for each topic with gaps between its files, because a file may be missing there.

    The files alone do not tell. Markers of transactions, aborted transactions and compaction leave gaps, too.
    """
    found: dict[str, list[tuple[TopicPartition, Gap]]] = {}
    for tp in sorted(gaps):
        for gap in gaps[tp]:
            found.setdefault(tp.topic, []).append((tp, gap))
    return [
        f"the files have no records of {tp} with the offsets {gap.start:,} to {gap.end - 1:,}, which lie between "
        f"{gap.before} and {gap.after}"
        + (f". {topic} has {counted(more, 'further gap')}" if (more := len(rest)) else "")
        + ". If a file is missing there, its records are left out. Aborted transactions and compaction leave gaps, too"
        for topic, ((tp, gap), *rest) in found.items()
    ]


@dataclass(frozen=True)
class ParquetPart:
    """The `Part` of one partition of an archive."""

    path: str
    files: tuple[str, ...]
    size: int
    span: tuple[int, int]
    """The first offset, and the offset behind the last."""
    gaps: tuple[Gap, ...] = ()
    """The places at which a file may be missing."""

    def open(self, partition: TopicPartition) -> ParquetReader:
        return ParquetReader(self, partition)

    def first_since(self, time: int, start: int, end: int) -> int | None:
        """The offset of the first record with at least this timestamp (ms), among the offsets from ``start`` to before
        ``end``. None if there is no such record.

        Row groups whose statistics say that they have none are not read.
        """
        system, _ = pafs.FileSystem.from_uri(self.path) if "://" in self.path else _local(self.path)
        for path in self.files:
            with pq.ParquetFile(path, filesystem=system) as file:
                for group in range(file.metadata.num_row_groups):
                    if not _may_have(file.metadata, group, time, start, end):
                        continue
                    rows = file.read_row_group(group, columns=["timestamp", "offset"])
                    offsets = rows.column("offset").to_numpy()
                    wanted = (
                        (rows.column("timestamp").to_numpy() >= time) & (offsets >= start) & (offsets < end)
                    )
                    if wanted.any():
                        return int(offsets[wanted].min())
        return None


class ParquetReader:
    def __init__(self, part: ParquetPart, partition: TopicPartition) -> None:
        self._batches = self._read(part, partition)

    def read(self) -> RecordBatch | None:
        return next(self._batches, None)

    def close(self) -> None:
        self._batches.close()

    @staticmethod
    def _read(part: ParquetPart, partition: TopicPartition) -> Generator[RecordBatch, None, None]:
        system, _ = pafs.FileSystem.from_uri(part.path) if "://" in part.path else _local(part.path)
        last = -1
        for path in part.files:
            with pq.ParquetFile(path, filesystem=system) as file:
                names = [*COLUMNS, *(["headers"] if "headers" in file.schema_arrow.names else [])]
                for batch in file.iter_batches(_batch_rows(file.metadata), columns=names, use_threads=False):
                    keys, values, offsets = (
                        batch.column(name).to_pylist() for name in ("key", "value", "offset")
                    )
                    timestamps = batch.column("timestamp").fill_null(NO_TIMESTAMP).to_pylist()
                    if offsets[0] <= last or (np.diff(batch.column("offset").to_numpy()) <= 0).any():
                        raise ConfigError(
                            f"{path} is not in the order of its offsets (partition {partition}): read it with "
                            "FrameSource(spark.read.parquet(...)), which sorts"
                        )
                    last = offsets[-1]
                    headers = record_headers(batch.column("headers")) if "headers" in names else None
                    yield RecordBatch(keys, values, timestamps, offsets, headers)


def write_archive(frame: DataFrame, path: str) -> None:
    """Writes the records of a topic into the new folder ``path`` as Parquet files, which `ParquetSource` reads.

    ``frame`` is the frame of an `OutputTopic`, or has the same columns: ``key``, ``value``, ``timestamp``, ``headers``,
    ``partition``, ``mx``, ``src`` and ``seq``. ``mx`` is the stream time of the task that sent the record, and ``src``
    the partition of this task. ``seq`` is a number that rises with each record of the task. The records of each
    partition are sorted by ``mx``, then ``src``, then ``seq``. Their places in this order, from 0, become their
    offsets.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    count = (frame.agg(F.max("partition")).collect()[0][0] or 0) + 1
    ordered = exact_partitions(frame, count, F.col("partition"))
    number = F.row_number().over(Window.partitionBy("partition").orderBy("mx", "src", "seq")) - 1
    columns = ("partition", "key", "value", "timestamp", "headers", number.cast("bigint").alias("offset"))
    # Spark sorts by `partition` before it writes the folders, and keeps the order within a partition.
    rows = ordered.select(*columns).sortWithinPartitions("partition", "offset")
    rows.write.partitionBy("partition").parquet(path)


def _local(path: str) -> tuple[pafs.FileSystem, str]:
    return pafs.LocalFileSystem(), path


def _batch_rows(meta: pq.FileMetaData) -> int:
    """The number of rows to read at a time: large rows come in smaller numbers."""
    size = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
    return max(1, min(BATCH, int(BATCH_BYTES * meta.num_rows // max(1, size))))


def _may_have(meta: pq.FileMetaData, group: int, time: int, start: int, end: int) -> bool:
    """False if the statistics of a row group exclude a record with at least this timestamp, or with an offset from
    ``start`` to before ``end``."""
    paths = [meta.schema.column(number).path for number in range(meta.num_columns)]
    times, offsets = (
        meta.row_group(group).column(paths.index(name)).statistics for name in ("timestamp", "offset")
    )
    return not (
        (times is not None and times.has_min_max and times.max < time)
        or (offsets is not None and offsets.has_min_max and (offsets.max < start or offsets.min >= end))
    )


def _span(system: pafs.FileSystem, path: str) -> tuple[int, int, int] | None:
    """The first offset, the last offset and the number of rows of a file; None for an empty file.

    All three come from the footer, or the offsets from the column ``offset`` if the footer has no statistics.

    Raises `ConfigError` for a damaged file, for a column that is missing or has the wrong type, and for null offsets.
    """
    try:
        file = pq.ParquetFile(path, filesystem=system)
    except (pa.ArrowInvalid, OSError) as error:  # pyarrow raises both for damaged footers
        raise ConfigError(
            f"{path} cannot be read ({str(error).strip()}): replace the file, or take it out of the archive"
        ) from error
    with file:
        _check_columns(path, file.schema_arrow)
        meta = file.metadata
        if not meta.num_rows:
            return None
        paths = [meta.schema.column(number).path for number in range(meta.num_columns)]
        index = paths.index("offset")
        groups = [meta.row_group(g).column(index).statistics for g in range(meta.num_row_groups)]
        if all(group is not None and group.has_min_max and group.has_null_count for group in groups):
            first, last = min(g.min for g in groups), max(g.max for g in groups)
            nulls = sum(g.null_count for g in groups)
        else:
            offsets = file.read(columns=["offset"]).column("offset")
            first, last = (scalar.as_py() for scalar in pc.min_max(offsets).values())
            nulls = offsets.null_count
        if nulls:
            raise ConfigError(
                f"column offset of {path} is null in {counted(nulls, 'row')}: give each record the offset that it has, "
                "or had, in the topic"
            )
        return first, last, meta.num_rows


def _check_columns(path: str, schema: pa.Schema) -> None:
    """Raises `ConfigError` for a column that is missing or has the wrong type."""
    missing = [name for name in COLUMNS if name not in schema.names]
    if missing:
        raise ConfigError(f"{path} has no column {', '.join(missing)}; it has {', '.join(schema.names)}")
    for name in [*COLUMNS, *(["headers"] if "headers" in schema.names else [])]:
        wanted, fits = _TYPES[name]
        if not fits(found := schema.field(name).type):
            raise ConfigError(
                f"column {name} of {path} is {found}, but has to be {wanted}: write the file anew"
            )


def _is_bytes(found: pa.DataType) -> bool:
    kind = found.value_type if pa.types.is_dictionary(found) else found
    checks = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
        pa.types.is_null,
    )
    return any(check(kind) for check in checks)


def _is_headers(found: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return False
    pair = found.value_type
    if not pa.types.is_struct(pair) or {each.name for each in pair} != {"key", "value"}:
        return False
    key = pair.field("key").type
    return (pa.types.is_string(key) or pa.types.is_large_string(key)) and _is_bytes(pair.field("value").type)


_TYPES: dict[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    "key": ("binary", _is_bytes),
    "value": ("binary", _is_bytes),
    "timestamp": ("int64, in ms", pa.types.is_int64),
    "offset": ("int64", pa.types.is_int64),
    "headers": ("list<struct<key: string, value: binary>>", _is_headers),
}
"""The columns of an archive: the words for their types, and the check of a type."""
