"""Topics from typed columns of all sources that Spark reads: Parquet, CSV, Avro, tables of a database and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from streamapp.config import ErrorContext, StreamsConfig
from streamapp.engine.failures import error_headers
from streamapp.errors import ConfigError, StreamsError, UnsupportedOperation
from streamapp.on_error import Response
from streamapp.runners.spark.frames import HEADERS
from streamapp.runners.spark.packing import arrow_headers
from streamapp.runners.spark.partitioning import key_partitions
from streamapp.serdes import AvroSerde, JsonSchemaSerde, JsonSerde, ProtobufSerde, Serde
from streamapp.serdes.models import is_model, maker_of
from streamapp.serdes.types import excerpt, record_fields
from streamapp.topology.nodes import SourceNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ColumnSource"]

ENCODED = f"task int, key binary, value binary, timestamp bigint, headers {HEADERS}, rejected boolean"
RAW = "_raw"


@dataclass(frozen=True)
class ColumnSource:
    """One topic as rows with typed columns; the rows are records in the order of their times.

    - ``key`` names the column of the key; None: the records have no key.
    - ``timestamp`` names the column of the time (timestamp, or bigint in ms).
    - ``value`` names the columns that the topology's serde writes as the value. One name, as a string, gives the
      content of this column. A sequence of names gives a record of these columns.
      The default is a record of all columns except ``corrupt``.
    - ``partitions`` is the number of partitions. Each key is in the partition that Kafka's default partitioner chooses.
      Rows with the same time are in the order of a hash of key and value.
    - ``corrupt`` names the column with the text of rows that Spark's CSV or JSON reader could not parse
      (their option ``columnNameOfCorruptRecord``).

    ``deserialization_exception_handler`` decides about corrupt rows and about rows that the serdes refuse. "fail" stops
    the batch. "continue" drops and counts such rows, and sends them to the dead-letter topic if there is one.

    >>> flights = spark.read.parquet("flights/")                                        # doctest: +SKIP
    >>> ColumnSource(flights, key="tailnum", timestamp="time_hour", partitions=4)       # doctest: +SKIP
    """

    frame: DataFrame
    key: str | None
    timestamp: str
    partitions: int = 1
    value: str | Sequence[str] | None = None
    corrupt: str | None = None

    def check(self, topic: str) -> None:
        """Raises `ConfigError` for a column that the frame does not have."""
        columns = self.frame.columns
        wanted = [self.key, self.timestamp, self.corrupt, *self.value_columns]
        missing = [name for name in wanted if name is not None and name not in columns]
        if missing:
            raise ConfigError(
                f"the frame for {topic} has no column {', '.join(missing)}; it has {', '.join(columns)}"
            )

    @property
    def value_columns(self) -> list[str]:
        if self.value is None:
            return [name for name in self.frame.columns if name != self.corrupt]
        return [self.value] if isinstance(self.value, str) else list(self.value)

    def time_column(self) -> Any:
        """The time of each row in ms."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import TimestampNTZType, TimestampType

        column = F.col(self.timestamp)
        kind = self.frame.schema[self.timestamp].dataType
        if isinstance(kind, TimestampNTZType):
            column = column.cast("timestamp")
        return (
            F.unix_millis(column)
            if isinstance(kind, TimestampType | TimestampNTZType)
            else column.cast("bigint")
        )

    def rows(self, topic: str, source: SourceNode, config: StreamsConfig) -> DataFrame:
        """The rows as records with their place in the topic; ``rejected`` is true for a row that is no record."""
        from pyspark.sql import functions as F

        self.check(topic)
        names = self.value_columns
        corrupt = F.col(self.corrupt) if self.corrupt else F.lit(None)
        chosen = self.frame.select(
            (F.col(self.key) if self.key else F.lit(None).cast("string")).alias("key"),
            F.struct(*names).alias("value"),
            self.time_column().alias("timestamp"),
            corrupt.cast("string").alias(RAW),
        )
        encode = _Encoder(topic, source, config, self.partitions, isinstance(self.value, str))
        return (
            chosen.mapInArrow(encode, ENCODED)
            .withColumn("seq", F.xxhash64("key", "value"))
            .withColumn("mx", F.col("timestamp"))
        )


@dataclass(frozen=True)
class _Encoder:
    """Turns rows into records, in executors; ``rejected`` marks a row that cannot become a record."""

    topic: str
    source: SourceNode
    config: StreamsConfig
    partitions: int
    single: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key_bytes = _writer(self.source.key_serde.bind(self.topic, True))
        value_bytes = _writer(self.source.value_serde.bind(self.topic, False))
        for batch in batches:
            rows = zip(
                *(batch.column(name).to_pylist() for name in ("key", "value", "timestamp", RAW)), strict=True
            )
            records = [self._record(key_bytes, value_bytes, *row) for row in rows]
            columns = [*zip(*records, strict=True)] if records else [()] * 5
            keys, values, times, headers, rejected = columns
            key_array = pa.array(keys, pa.binary())
            places = key_partitions(key_array, self.partitions) if records else np.empty(0, np.int32)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(places, pa.int32()),
                    key_array,
                    pa.array(values, pa.binary()),
                    pa.array(times, pa.int64()),
                    arrow_headers(headers),
                    pa.array(rejected, pa.bool_()),
                ],
                [column.split()[0] for column in ENCODED.split(", ")],
            )

    def _record(
        self,
        key_bytes: Callable[[Any], bytes],
        value_bytes: Callable[[Any], bytes],
        key: Any,
        row: dict[str, Any],
        time: int | None,
        raw: str | None,
    ) -> tuple[Any, ...]:
        try:
            if raw is not None:
                raise ValueError("the row could not be parsed")
            if time is None or time < 0:
                raise ValueError(f"the row has the time {time}")
            value = next(iter(row.values())) if self.single else row
            encoded = None if key is None else key_bytes(key)
            return encoded, None if value is None else value_bytes(value), time, None, False
        except Exception as error:
            text = raw if raw is not None else msgspec.json.encode(row, enc_hook=str).decode()
            return self._refused(error, text, time)

    def _refused(self, error: Exception, text: str, time: int | None) -> tuple[Any, ...]:
        handler = self.source.on_error or self.config.deserialization_exception_handler
        answer: object = handler
        if callable(handler):
            context = ErrorContext(
                self.topic,
                0,
                -1,
                time if time is not None else -1,
                (),
                self.source.name,
                "",
                None,
                text.encode(),
            )
            answer = handler(context, error)
        if isinstance(answer, Response):
            raise UnsupportedOperation(
                self.source.name,
                "Spark",
                "its handler makes its own dead letters, and rows of DataFrames have the usual letter only",
                'Return "dead_letter" for topic ' + self.topic,
            ) from error
        # "skip" is refused if there is a dead-letter topic, because every rejected row goes to this topic.
        skips = answer == "skip" and self.config.dead_letter_queue_topic is None
        if answer not in ("continue", "dead_letter") and not skips:
            raise StreamsError(
                f"{self.source.name}: a row for {self.topic} is no record: {excerpt(text)}: "
                f"{type(error).__name__}: {error}. Set deserialization_exception_handler to "
                '"continue" to drop such rows (to the dead-letter topic, if one is set)'
            ) from error
        headers = (*error_headers(error), ("__streams.errors.topic", self.topic.encode()))
        return None, text.encode(), max(time or 0, 0), headers, True


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
