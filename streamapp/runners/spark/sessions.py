"""Spark sessions and their settings for streamapp."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

__all__ = ["few_groups", "kept", "spark_session", "stage_settings"]

# Spark's partition p is the task p, so Spark must not join or split partitions.
ADAPTIVE = "spark.sql.adaptive.enabled"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"

NO_LIMIT = str(2**31 - 1)
BATCH_BYTES = 2**25
"""The limit of a batch of rows, which is near the memory that a batch of small rows takes."""
FREE_ROWS = 20_000
"""The number of rows in a batch without a limit of bytes."""


def spark_session(
    app_name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one.

    A running session gets the SQL options of this function, and keeps its other settings. The default of ``master`` is
    ``local[2]``. With a local master, Python workers import the same modules as this process. Executors of a cluster
    need an archive with dependencies and code (docs/spark.md). ``settings`` are Spark's own, and override those of this
    function.

    In a program that ``spark-submit`` has started, the master and the settings are those of ``spark-submit``, and this
    function adds only ``settings``. Spark's Kafka connector is not needed, because the tasks read and write Kafka with
    librdkafka.

    >>> spark = spark_session("backfill", master="local[4]")                    # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    options = {"spark.app.name": app_name}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has all settings already
        master = master or "local[2]"
        options |= {"spark.master": master, **_DEFAULTS}
        options |= _local_python() if master.startswith("local") else {}
    options |= settings or {}
    _start_java(options)
    before = signal.getsignal(signal.SIGINT)
    session = SparkSession.builder.config(map=dict(options)).getOrCreate()
    if signal.getsignal(signal.SIGINT) is not before:  # a new session in the main thread
        signal.signal(signal.SIGINT, _CtrlC(session, before))
    return session


def _start_java(options: Mapping[str, str]) -> None:
    """Starts Spark's Java, unless the process has one.

    The standard output of Java is the standard error of this process. Java's warnings would otherwise stand between
    the results that a program prints (`streamapp sql --format json`). Java is in no process group of this process,
    because a SIGTERM for the whole group would end Java before `streamapp spark run` has ended its micro-batch.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    with SparkContext._lock:
        if SparkContext._gateway is None:
            conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
            SparkContext._ensure_initialized(
                gateway=launch_gateway(conf, {"stdout": 2, "start_new_session": True})
            )


class _CtrlC:
    """Ctrl-C in a process with a Spark session.

    pyspark's handler cancels the jobs of the session. The handler stays after the session has stopped, and would then
    raise an AttributeError. This handler goes on as before the session.
    """

    def __init__(self, session: SparkSession, before: Any) -> None:
        self._context: Any = session.sparkContext
        self._while_open: Any = signal.getsignal(signal.SIGINT)
        self._afterwards: Any = before._afterwards if isinstance(before, _CtrlC) else before

    def __call__(self, number: int, frame: Any) -> None:
        handler = self._while_open if self._context._jsc is not None else self._afterwards
        if callable(handler):
            handler(number, frame)
        elif handler != signal.SIG_IGN:
            raise KeyboardInterrupt


_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    SHUFFLE_PARTITIONS: "4",
    ADAPTIVE: "false",
    # Kept frames go to disk through a stream that holds this number of objects, of up to 4 MB each. Spark's default is
    # 100.
    "spark.serializer.objectStreamReset": "8",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}


def _local_python() -> dict[str, str]:
    """Settings that give workers this process's interpreter and `sys.path`, and the imports of `python_daemon`.

    Without them, Spark would start the first `python3` of the path, which may lack streamapp or your modules.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = [*filter(None, [os.getcwd() if "" in sys.path else "", *sys.path])]
    return {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path),
        "spark.python.daemon.module": "streamapp.runners.spark.python_daemon",
    }


@contextmanager
def stage_settings(
    spark: SparkSession, *, packs: bool, rows: bool, row_bytes: int | None = 0
) -> Iterator[None]:
    """Gives a session the settings that a stage needs while the body runs, and then restores its own settings.

    The stage gets rows of records, packs of thousands of records, or both. ``row_bytes`` is the size of the largest
    row, or None if nobody knows the size.
    """
    wanted = {ADAPTIVE: "false"}
    if (packs and rows) or (rows and (row_bytes is None or row_bytes > BATCH_BYTES / FREE_ROWS)):
        wanted |= {ROWS_PER_BATCH: "2000", BYTES_PER_BATCH: str(BATCH_BYTES)}
    else:
        # With a limit on bytes, Spark computes the size of the batch again for every row. With a list column, the time
        # grows with the square of the rows.
        wanted |= {ROWS_PER_BATCH: "32" if packs else str(FREE_ROWS), BYTES_PER_BATCH: NO_LIMIT}
    with _set(spark, wanted):
        yield


def kept(frame: DataFrame) -> DataFrame:
    """The frame, computed once, and kept on the executors' disks until its ``unpersist``.

    The output of a stage grows with the history, so it may not fit into memory. With ``MEMORY_AND_DISK``, Spark would
    fill its memory first, and leave none for the sorts of tasks (docs/decisions/stage-output-on-disk.md).
    """
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


@contextmanager
def few_groups(spark: SparkSession) -> Iterator[None]:
    """Settings for a query that counts rows by task: one partition for all groups, instead of many."""
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
