"""The rows of a table that is restored from its source topic, which serves as the changelog of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from streamapp.config import StreamsConfig
from streamapp.engine.queues import ConsumedRecord
from streamapp.engine.timestamps import extractor_of, wallclock_timestamp
from streamapp.errors import BrokerError, ProcessorStateError
from streamapp.records import NO_HEADERS, RecordBatch
from streamapp.serdes.base import Serde
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import SourceNode

__all__ = ["SourceRows", "source_rows"]

_T = TypeVar("_T")


def source_rows(
    source: SourceNode, topic: str, partition: int, spec: StoreSpec, config: StreamsConfig
) -> SourceRows | None:
    """The rows that ``source`` gives the store ``spec``. None: the records of the topic are the rows."""
    extractor = extractor_of(source, config)
    if extractor is wallclock_timestamp:
        extractor = _own_or_wallclock
    answered = (source.on_error or config.deserialization_exception_handler) != "fail"
    if extractor is None and not answered:
        return None
    return SourceRows(topic, partition, spec, extractor, answered=answered)


def _own_or_wallclock(record: ConsumedRecord, partition_time: int) -> int:
    """The timestamp of a row whose source takes the time of the machine. Nothing keeps the time at which the record was
    processed first. The record's own timestamp, as in Kafka Streams, is nearer to this time than the restore."""
    return record.timestamp if record.timestamp >= 0 else wallclock_timestamp(record, partition_time)


class SourceRows:
    """Gives the records of one partition as the source has read them, for a restore.

    Left out are the records that the serdes do not take, if the source has an answer to them (``answered``). Left out
    are also the records to which the timestamp extractor gives a negative timestamp. All others have the timestamp of
    the extractor, or their own if the extractor raises: compaction may have removed the records before.

    Kafka Streams restores all records as they are (KAFKA-8037, KIP-705).
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        spec: StoreSpec,
        extractor: Callable[..., int] | None,
        *,
        answered: bool,
    ) -> None:
        self._topic, self._partition, self._spec = topic, partition, spec
        self._extractor, self._answered = extractor, answered
        self._partition_time = -1

    def of(self, batch: RecordBatch) -> RecordBatch:
        """The batch without the records that are no rows. Raises the errors of the disk and of the schema registry."""
        keys, values, timestamps, offsets, headers = batch
        times = [self._time(batch, index) for index in range(len(offsets))]
        if times == timestamps:
            return batch
        good = [index for index, time in enumerate(times) if time is not None]

        def of_good(column: Sequence[_T]) -> list[_T]:
            return [column[index] for index in good]

        return RecordBatch(
            of_good(keys),
            of_good(values),
            [time for time in times if time is not None],
            of_good(offsets),
            None if headers is None else of_good(headers),
        )

    def _time(self, batch: RecordBatch, index: int) -> int | None:
        """The timestamp of a row in ms. None: the record is no row."""
        own = batch.timestamps[index]
        try:
            key = _decoded(self._spec.key_serde, batch.keys[index])
            value = _decoded(self._spec.value_serde, batch.values[index])
        except (ProcessorStateError, BrokerError):
            raise
        except Exception:
            return None if self._answered else own
        if self._extractor is None:
            return own
        headers = NO_HEADERS if batch.headers is None else batch.headers[index]
        record = ConsumedRecord(self._topic, self._partition, batch.offsets[index], own, key, value, headers)
        try:
            time = self._extractor(record, self._partition_time)
        except Exception:
            return own
        self._partition_time = max(self._partition_time, time)
        return time if time >= 0 else None


def _decoded(serde: Serde[Any] | None, data: bytes | None) -> Any:
    return data if serde is None or data is None else serde.deserialize(data)
