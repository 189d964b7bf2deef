"""Gives a topology on Spark the rows of any source that Spark reads, as records of an input topic.

Sources are Parquet, CSV, Avro, tables of a database and others. Nothing is written to Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from streamapp.config import ErrorContext, StreamsConfig
from streamapp.engine.judging import (
    ProcessingFailed,
    dead_letter,
    hides_text,
    judge,
    masked,
    no_fault_of_the_record,
    said,
    without_loss,
)
from streamapp.records import NO_HEADERS, Headers
from streamapp.runners.spark.batch_source import check_partitions
from streamapp.runners.spark.frames import HEADERS
from streamapp.runners.spark.given_columns import TIME, check_names, check_types, milliseconds, named
from streamapp.runners.spark.packing import arrow_headers
from streamapp.runners.spark.partitioning import PartitionCounts, placed
from streamapp.serdes import AvroSerde, JsonSchemaSerde, JsonSerde, ProtobufSerde, Serde
from streamapp.serdes.models import is_model, maker_of
from streamapp.serdes.types import excerpt, record_fields
from streamapp.topology.nodes import SourceNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ColumnSource"]

ENCODED = (
    f"task int, key binary, value binary, timestamp bigint, headers {HEADERS}, rejected boolean, topic string"
)
RAW = "_raw"


@dataclass(frozen=True)
class ColumnSource:
    """One topic as rows with typed columns; the rows are records in the order of their times.

    - ``key`` names the column of the key; None: the records have no key.
    - ``timestamp`` names the column of the time (timestamp, or bigint in ms).
    - ``value`` names the columns that the topology's serde writes as the value. With one name, as a string, the value
      is the content of this column. With a sequence of names, the value is a record of these columns. The default is
      a record of all columns except ``corrupt``.
    - ``partitions`` is the number of partitions. Each key is in the partition that Kafka's default partitioner chooses.
      Rows without a key are in partition 0. Rows with the same time are in the order of a hash of key and value.
    - ``corrupt`` names the column with the text of rows that Spark's CSV or JSON reader could not parse
      (their option ``columnNameOfCorruptRecord``).

    ``on_error`` of the topology's source, or else ``deserialization_exception_handler``, decides about corrupt rows,
    rows without a time or before 1970, and rows that the serdes refuse. "fail" stops the batch. "skip" drops and counts
    such rows. "dead_letter" does the same, and makes a dead letter for ``dead_letter_queue_topic``. "continue" does as
    "dead_letter" if this topic is set, else as "skip". The letter has no key, and its value is the row as text.

    A function may return one of these words, or a `Response` with letters of its own. A letter without a partition goes
    where Kafka's default partitioner puts its key, or without a key to partition 0. A dead-letter topic that is not
    known from Kafka counts as a topic with as many partitions as the largest source.

    >>> flights = spark.read.parquet("flights/")                                        # doctest: +SKIP
    >>> ColumnSource(flights, key="tailnum", timestamp="time_hour", partitions=4)       # doctest: +SKIP
    """

    frame: DataFrame
    key: str | None
    timestamp: str
    partitions: int = 1
    value: str | Sequence[str] | None = None
    corrupt: str | None = None

    def __post_init__(self) -> None:
        check_partitions(self.partitions)

    def check(self, topic: str) -> None:
        """Raises `ConfigError` for a column that the frame does not have, and for a time of the wrong type."""
        wanted = [self.key, self.timestamp, self.corrupt, *self.value_columns]
        check_names(self.frame, topic, [name for name in wanted if name is not None])
        check_types(self.frame, topic, {self.timestamp: TIME})

    @property
    def value_columns(self) -> list[str]:
        if self.value is None:
            return [name for name in self.frame.columns if name != self.corrupt]
        return [self.value] if isinstance(self.value, str) else list(self.value)

    def rows(
        self, topic: str, source: SourceNode, config: StreamsConfig, letter_partitions: PartitionCounts
    ) -> DataFrame:
        """The rows as records with their place in the topic, and the rows of `_Encoder` that are no records."""
        from pyspark.sql import functions as F

        self.check(topic)
        corrupt = named(self.corrupt) if self.corrupt else F.lit(None)
        chosen = self.frame.select(
            (named(self.key) if self.key else F.lit(None).cast("string")).alias("key"),
            F.struct(*map(named, self.value_columns)).alias("value"),
            milliseconds(self.frame, self.timestamp).alias("timestamp"),
            corrupt.cast("string").alias(RAW),
        )
        encode = _Encoder(
            topic, source, config, self.partitions, letter_partitions, isinstance(self.value, str)
        )
        return (
            chosen.mapInArrow(encode, ENCODED)
            .withColumn("seq", F.xxhash64("key", "value"))
            .withColumn("mx", F.coalesce("timestamp", F.lit(0)))
        )


class _Encoded(NamedTuple):
    """A row of `ENCODED`; ``partition`` None: the key decides."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers = NO_HEADERS
    rejected: bool = False
    topic: str | None = None


@dataclass(frozen=True)
class _Encoder:
    """Turns rows into records, in executors.

    If a row cannot become a record, and the handler does not answer "fail", the result has other rows in its place. The
    flag ``rejected`` is true in all of them. The first row only counts the dropped row, and its ``topic`` is None. Each
    further row is a dead letter, with the letter's topic as ``topic``. The answer "fail" raises `ProcessingFailed`.
    """

    topic: str
    source: SourceNode
    config: StreamsConfig
    partitions: int
    letter_partitions: PartitionCounts
    single: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key_bytes = _writer(self.source.key_serde.bind(self.topic, True))
        value_bytes = _writer(self.source.value_serde.bind(self.topic, False))
        for batch in batches:
            columns = (batch.column(name) for name in ("key", "value", "timestamp", RAW))
            rows = zip(*(each.to_pylist(maps_as_pydicts="strict") for each in columns), strict=True)
            encoded = [each for row in rows for each in self._encoded(key_bytes, value_bytes, *row)]
            fields = [*zip(*encoded, strict=True)] if encoded else [()] * 7
            chosen, keys, values, times, headers, rejected, topics = fields
            key_array = pa.array(keys, pa.binary())
            counts = [self.partitions if to is None else self.letter_partitions.of(to) for to in topics]
            places = placed(chosen, key_array, np.array(counts, np.uint32))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(places, pa.int32()),
                    key_array,
                    pa.array(values, pa.binary()),
                    pa.array(times, pa.int64()),
                    arrow_headers(headers),
                    pa.array(rejected, pa.bool_()),
                    pa.array(topics, pa.string()),
                ],
                [column.split()[0] for column in ENCODED.split(", ")],
            )

    def _encoded(
        self,
        key_bytes: Callable[[Any], bytes],
        value_bytes: Callable[[Any], bytes],
        key: Any,
        row: dict[str, Any],
        time: int | None,
        raw: str | None,
    ) -> list[_Encoded]:
        try:
            if raw is not None:
                raise ValueError("the row could not be parsed")
            if time is None or time < 0:
                raise ValueError(f"the row has the time {time}")
            value = next(iter(row.values())) if self.single else row
            encoded = None if key is None else key_bytes(key)
            return [_Encoded(None, encoded, None if value is None else value_bytes(value), time)]
        except Exception as error:
            if no_fault_of_the_record(error):
                raise
            text = raw if raw is not None else msgspec.json.encode(row, enc_hook=str).decode()
            return self._refused(error, text, time)

    def _refused(self, error: Exception, text: str, time: int | None) -> list[_Encoded]:
        """A row that counts the dropped row, and its dead letters.

        Raises `ProcessingFailed` if the handler says "fail".
        """
        topic = self.config.dead_letter_queue_topic
        context = ErrorContext(
            self.topic, -1, -1, -1 if time is None else time, (), self.source.name, "", None, text.encode()
        )
        message = (
            f"{self.source.name}: a row for {self.topic} is no record: {self._shown(text)}: "
            f"{said(error, self.config)}. Set deserialization_exception_handler to "
            '"continue" to drop such rows (to the dead-letter topic, if one is set)'
        )
        handler = without_loss(self.source.on_error or self.config.deserialization_exception_handler, error)
        answer, letters = judge(handler, lambda: context, error, message, topic)
        if answer == "fail":
            raise ProcessingFailed(message) from (None if hides_text(error, self.config) else error)
        if letters is None:
            letters = ()
            if topic is not None and answer != "skip":
                letter = dead_letter(topic, context, error, "could not be deserialized", self.config)
                letters = (letter._replace(timestamp=max(context.timestamp, 0)),)
        return [
            _Encoded(0, None, None, 0, rejected=True),
            *(
                _Encoded(each.partition, *each[1:4], headers=each.headers, rejected=True, topic=each.topic)
                for each in letters
            ),
        ]

    def _shown(self, text: str) -> str:
        """The row in a message."""
        show = self.config.show_record
        return excerpt(text) if show is None else masked(show, None, text.encode())


def _writer(serde: Serde[Any]) -> Callable[[Any], bytes]:
    """The serde's `serialize` for values of Spark's columns: a dict first becomes the type that the serde needs."""
    serialize = serde.serialize
    wanted = (
        serde.type if isinstance(serde, JsonSerde | JsonSchemaSerde | AvroSerde | ProtobufSerde) else None
    )
    if is_model(wanted):
        make = maker_of(wanted)
        return lambda value: serialize(make(value))
    if wanted is None or record_fields(wanted) is None:
        return serialize
    return lambda value: serialize(msgspec.convert(value, wanted))
