"""Reconciliation over the history of a topic: the two accounts are frames, and Spark joins them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamapp.broker.requests import REQUEST_SECONDS, LastingAdmin, check_shown
from streamapp.errors import BrokerError, ConfigError
from streamapp.producer.ledger import Difference
from streamapp.producer.reconciliation import (
    EVERYTHING,
    OPEN_SECONDS,
    Identity,
    Reconciliation,
    Span,
    count_of,
    expectation,
    hidden_records,
    identity_of,
)
from streamapp.records import NO_HEADERS, RecordBatch, TopicPartition
from streamapp.registry import ConfluentSchemaRegistry, RegistrySettings
from streamapp.registry.rest import RestClient
from streamapp.runners.spark.batch_source import KafkaPart, KafkaRange, KafkaSource, Ranges
from streamapp.runners.spark.failures import raised_in_tasks
from streamapp.runners.spark.sessions import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkReconciliation", "reconcile_on_spark"]

_SLICE = 500_000
"""The most offsets of a partition that one task reads."""
_NAMES = 100_000
"""After about so many different names, a task hands its counts on, so that its memory stays bounded."""

Batches = Iterator[pa.RecordBatch]


class SparkReconciliation:
    """The two accounts, joined on the executors' disks. ``result`` has the numbers."""

    def __init__(self, result: Reconciliation, differences: DataFrame) -> None:
        self.result: Reconciliation = result
        self._differences = differences

    def differences(self) -> Iterator[Difference]:
        """All names that the accounts count differently, in order. The driver holds one partition at a time."""
        for row in self._differences.orderBy("name").toLocalIterator():
            yield Difference(row["name"], row["expected"], row["found"])


@contextmanager
def reconcile_on_spark(
    spark: SparkSession,
    client: Mapping[str, Any],
    topic: str,
    source: str,
    identity: str,
    *,
    window_ms: int | None = None,
    span: Span = EVERYTHING,
) -> Iterator[SparkReconciliation]:
    """Compares the ids of a source with those of a topic's committed records, on Spark.

    The result has the same counts as `streamapp.producer.reconciliation.reconcile`, for a topic and a source of any
    size. Each line of the source has the form of `expectation`.

    ``source`` is a file, a folder or a URI of text that all executors can read. ``client`` has librdkafka's settings.
    Raises `BrokerError`, and `ConfigError` for a source that Spark cannot read, or a line without this form.
    """
    from pyspark.sql import functions as F

    ranges = _ranges(client, topic, span.from_ms)
    slices = _slices(ranges)
    with raised_in_tasks():
        lines = _read_text(spark, source).mapInArrow(
            _reader_of_lines(window_ms, span), "name string, expected bigint"
        )
        records = _one_task_each(spark, len(slices)).mapInArrow(
            _reader_of_records(client, topic, slices, identity, window_ms, span),
            "name string, found bigint",
        )
        expected = lines.groupBy("name").agg(F.sum("expected").alias("expected"))
        found = kept(records.groupBy("name").agg(F.sum("found").alias("found")))
        named = found.where(F.col("name").isNotNull())
        both = kept(
            expected.join(named, "name", "full_outer").select(
                "name",
                F.coalesce("expected", F.lit(0)).alias("expected"),
                F.coalesce("found", F.lit(0)).alias("found"),
            )
        )
        try:
            unidentified = found.where(F.col("name").isNull()).agg(F.sum("found")).collect()[0][0] or 0
            result = _result(topic, {tp.partition: span for tp, span in ranges.items()}, both, unidentified)
            yield SparkReconciliation(result, both.where(F.col("expected") != F.col("found")))
        finally:
            both.unpersist()
            found.unpersist()


def _read_text(spark: SparkSession, source: str) -> DataFrame:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    try:
        return spark.read.text(source)
    except AnalysisException as exc:
        raise ConfigError(f"--source: Spark cannot read {source}: {exc}") from exc
    except Py4JJavaError as exc:  # a file system that Spark does not know or cannot reach
        why = exc.java_exception.toString()
        raise ConfigError(f"--source: Spark cannot read {source}: {why}") from exc


def _ranges(client: Mapping[str, Any], topic: str, from_ms: int | None) -> Ranges:
    kafka = KafkaRange(client)
    count = kafka.partition_counts().get(topic)
    if count is None:
        check_shown(
            LastingAdmin(client), [topic], "Grant this client READ on the topic", seconds=REQUEST_SECONDS
        )
        raise BrokerError(f"there is no topic {topic} at {client['bootstrap.servers']}")
    partitions = [TopicPartition(topic, number) for number in range(count)]
    if hidden := kafka.settle(partitions, OPEN_SECONDS):
        raise hidden_records(hidden)
    return kafka.resolve(KafkaSource(since=from_ms), partitions)


def _slices(ranges: Ranges) -> list[tuple[int, int, int]]:
    """The work of the tasks: a partition, its first offset, and the offset after the last."""
    return [
        (tp.partition, at, min(at + _SLICE, end))
        for tp, (start, end) in sorted(ranges.items())
        for at in range(start, end, _SLICE)
    ]


def _one_task_each(spark: SparkSession, count: int) -> DataFrame:
    """A frame of numbers from 0, each in a Spark partition of its own; ``repartition`` would put some together."""
    return spark.range(0, count, 1, max(1, count))


def _reader_of_records(
    client: Mapping[str, Any],
    topic: str,
    slices: Sequence[tuple[int, int, int]],
    identity: str,
    window_ms: int | None,
    span: Span,
) -> Callable[[Batches], Batches]:
    # The environment of the executors may name no registry for values with a schema.
    registry = RegistrySettings.from_env() if identity.startswith("value:") else None

    def names(name: Identity, records: RecordBatch) -> Iterator[str | None]:
        for at, (key, value, timestamp) in enumerate(
            zip(records.keys, records.values, records.timestamps, strict=True)
        ):
            if span.covers(timestamp):
                headers = NO_HEADERS if records.headers is None else records.headers[at]
                yield name(key, value, timestamp, headers)

    def read(batches: Batches) -> Batches:
        of_record = identity_of(
            identity, None if registry is None else ConfluentSchemaRegistry(client=RestClient(registry))
        )
        name = of_record if window_ms is None else count_of(of_record, window_ms)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                number, start, end = slices[index]
                counts: Counter[str | None] = Counter()
                reader = KafkaPart(client, start, end).open(TopicPartition(topic, number))
                try:
                    while (records := reader.read()) is not None:
                        counts.update(names(name, records))
                        if len(counts) >= _NAMES:
                            yield _counted("found", counts)
                            counts.clear()
                finally:
                    reader.close()
                yield _counted("found", counts)

    return read


def _reader_of_lines(window_ms: int | None, span: Span) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            counts: Counter[str | None] = Counter()
            for line in batch.column(0).to_pylist():
                if line and (found := expectation(line, window_ms, span)) is not None:
                    name, times = found
                    counts[name] += times
            yield _counted("expected", counts)

    return read


def _counted(column: str, counts: Mapping[str | None, int]) -> pa.RecordBatch:
    arrays = [pa.array([*counts], pa.string()), pa.array([*counts.values()], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, ["name", column])


def _result(
    topic: str, ranges: dict[int, tuple[int, int]], both: DataFrame, unidentified: int
) -> Reconciliation:
    from pyspark.sql import functions as F

    surplus = F.greatest(F.col("found") - F.col("expected"), F.lit(0))
    sums = {
        "expected": F.col("expected"),
        "found": F.col("found"),
        "missing": F.greatest(F.col("expected") - F.col("found"), F.lit(0)),
        "doubled": F.when(F.col("expected") > 0, surplus).otherwise(0),
        "unknown": F.when(F.col("expected") == 0, surplus).otherwise(0),
    }
    row = both.agg(*(F.coalesce(F.sum(sum), F.lit(0)).alias(name) for name, sum in sums.items())).collect()[0]
    return Reconciliation(topic, ranges, **row.asDict(), unidentified=unidentified)
