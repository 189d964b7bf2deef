"""Topics whose beginning is in Parquet files, because Kafka has deleted these records, and whose rest is in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamapp.engine.runner_ports import RecordReader
from streamapp.errors import ConfigError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.archive import Gap, ParquetPart, ParquetSource
from streamapp.runners.spark.batch_source import Bound, KafkaPart, Ranges

__all__ = ["History", "archives", "check_cut", "gaps_within"]


def archives(
    files: Mapping[str, str], counts: Mapping[str, int]
) -> tuple[dict[TopicPartition, ParquetPart], Ranges]:
    """The archives in ``files`` (topic -> folder) as parts, and the offsets of each part that has files.

    ``counts`` has the number of partitions of each topic in Kafka. Raises `ConfigError` for a topic that Kafka does
    not have.
    """
    unknown = sorted(files.keys() - counts.keys())
    if unknown:
        raise ConfigError(f"files are given for {', '.join(unknown)}, but Kafka has no such topic")
    parts = {
        tp: part
        for topic, path in files.items()
        for tp, part in ParquetSource(path, counts[topic]).parts(topic).items()
    }
    return parts, {tp: part.span for tp, part in parts.items() if part.files}


def check_cut(until: Bound, parts: Mapping[TopicPartition, ParquetPart], ranges: Ranges) -> None:
    """Raises `ConfigError` if the cut ``until`` is at a record that only files have, because no worker could go on
    there.

    ``parts`` are the archives. ``ranges`` are the offsets to read. No range ends at a record that Kafka has deleted.
    """
    for tp, (start, end) in sorted(ranges.items()):
        cut: int | None = None
        if isinstance(until, Mapping):
            cut = until.get(tp)
        elif until is not None and tp in parts:
            cut = parts[tp].first_since(until, start, end)
        if cut is not None and start < end and cut < end:
            raise ConfigError(
                f"until ends {tp} at offset {cut}, but Kafka does not have this record any more, so workers could not "
                f"go on there. Give a later time, or an offset from {end} on"
            )


def gaps_within(
    parts: Mapping[TopicPartition, ParquetPart], ranges: Ranges
) -> dict[TopicPartition, list[Gap]]:
    """The gaps between the files of the archives that lie in the offsets to read."""
    return {
        tp: [gap for gap in parts[tp].gaps if gap.start < end and gap.end > start]
        for tp, (start, end) in ranges.items()
        if tp in parts
    }


@dataclass(frozen=True)
class History(ParquetSource):
    """An archive (`ParquetSource`) with the topic's own offsets, followed by the rest of the topic in Kafka.

    A record that both have comes from the archive.
    """

    client: Mapping[str, Any] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)

    def parts(self, topic: str) -> dict[TopicPartition, Any]:
        return {
            tp: HistoryPart(part, self.client, *self.ranges[tp]) for tp, part in super().parts(topic).items()
        }


@dataclass(frozen=True)
class HistoryPart:
    """The `Part` of one partition: its records from ``start`` to before ``end``."""

    archive: ParquetPart
    client: Mapping[str, Any]
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def open(self, partition: TopicPartition) -> HistoryReader:
        return HistoryReader(self, partition)


class HistoryReader:
    def __init__(self, part: HistoryPart, partition: TopicPartition) -> None:
        self._part, self._partition = part, partition
        self._archive: RecordReader | None = None
        if part.start < part.archive.span[1]:
            self._archive = part.archive.open(partition)
        self._kafka: RecordReader | None = None

    def read(self) -> RecordBatch | None:
        part = self._part
        if self._archive is not None:
            batch = self._archive.read()
            if batch is not None and batch.offsets[0] < part.end:
                return _between(batch, part.start, part.end)
            self._archive.close()
            self._archive = None
        if self._kafka is None:
            begin = min(max(part.start, part.archive.span[1]), part.end)
            self._kafka = KafkaPart(part.client, begin, part.end).open(self._partition)
        return self._kafka.read()

    def close(self) -> None:
        for reader in (self._archive, self._kafka):
            if reader is not None:
                reader.close()


def _between(batch: RecordBatch, start: int, end: int) -> RecordBatch:
    keep = [index for index, offset in enumerate(batch.offsets) if start <= offset < end]
    if len(keep) == len(batch.offsets):
        return batch
    headers = batch.headers
    return RecordBatch(
        [batch.keys[i] for i in keep],
        [batch.values[i] for i in keep],
        [batch.timestamps[i] for i in keep],
        [batch.offsets[i] for i in keep],
        None if headers is None else [headers[i] for i in keep],
    )
