"""A Spark session set up for streamapp."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

__all__ = ["few_groups", "kept", "spark_session", "stage_settings"]

# A task reads exactly one Kafka partition: Spark must not join or split them.
ADAPTIVE = "spark.sql.adaptive.enabled"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"

NO_LIMIT = str(2**31 - 1)


def spark_session(
    app_name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one.

    ``master`` is by default what ``spark-submit`` was told, else ``local[2]``. Locally, Python workers import
    what this process imports; to a cluster, dependencies and code go in an archive (docs/spark.md). ``settings``
    are Spark's own and win. No connector is needed: the tasks read and write Kafka with librdkafka.

    >>> spark = spark_session("backfill", master="local[4]")                    # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has been told everything
        master = master or "local[2]"
        builder = builder.master(master)
        for key, value in {**_DEFAULTS, **(_local_python() if master.startswith("local") else {})}.items():
            builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    SHUFFLE_PARTITIONS: "4",
    ADAPTIVE: "false",
    # What is kept goes to disk through a stream that holds on to as many objects, of 4 MB each, before it forgets them; else 100.
    "spark.serializer.objectStreamReset": "8",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}


def _local_python() -> dict[str, str]:
    """Without this, workers are started with whatever `python3` is on the path, and without the paths that this
    process added to sys.path."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = [*filter(None, [os.getcwd() if "" in sys.path else "", *sys.path])]
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(path)}


@contextmanager
def stage_settings(spark: SparkSession, *, packs: bool, rows: bool) -> Iterator[None]:
    """Gives a session, whoever made it, what a stage needs while the body runs; then its own settings back.

    The stage gets rows of records, packs of thousands of records, or both.
    """
    wanted = {ADAPTIVE: "false"}
    if packs and rows:
        wanted |= {ROWS_PER_BATCH: "2000", BYTES_PER_BATCH: str(2**25)}
    else:
        # With a limit on bytes, Spark sizes the batch up again for every row: time in the square of the rows as
        # soon as there is a list column.
        wanted |= {ROWS_PER_BATCH: "32" if packs else "20000", BYTES_PER_BATCH: NO_LIMIT}
    with _set(spark, wanted):
        yield


def kept(frame: DataFrame) -> DataFrame:
    """The frame, computed once, and kept until its ``unpersist``.

    On the executors' disks: how much a stage writes depends on the history, the heaps of executors do not. With
    ``MEMORY_AND_DISK`` Spark fills its memory first, and then tasks find none for their sorts (docs/decisions/stage-output-on-disk.md).
    """
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


@contextmanager
def few_groups(spark: SparkSession) -> Iterator[None]:
    """For a query that counts rows by task: its groups fit into one partition, where Spark would make 200."""
    with _set(spark, {SHUFFLE_PARTITIONS: "1"}):
        yield


@contextmanager
def _set(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
