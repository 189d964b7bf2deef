"""A Spark session set up for streamapp."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

__all__ = ["spark_session", "stage_settings"]

# A task reads exactly one Kafka partition: Spark must not join or split them.
ADAPTIVE = "spark.sql.adaptive.enabled"
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"

NO_LIMIT = str(2**31 - 1)


def spark_session(
    app_name: str, *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one whose Python workers import what this process imports.

    ``settings`` are Spark's own and win. On a cluster, ship the code with ``addPyFile`` and the dependencies
    with ``spark.archives`` (docs/spark.md). No connector is needed: the tasks read and write Kafka with
    librdkafka.

    >>> spark = spark_session("backfill", master="local[4]")                    # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    # Without these, workers are started with whatever `python3` is on the path, and without the paths that
    # this process added to sys.path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = os.pathsep.join([*filter(None, [os.getcwd() if "" in sys.path else "", *sys.path])])
    defaults = {
        "spark.executorEnv.PYTHONPATH": path,
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        ADAPTIVE: "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    }
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


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
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
