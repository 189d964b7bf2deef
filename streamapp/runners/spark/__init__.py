"""The Spark runner: runs topologies over history or continuously, and writes records to Kafka."""

# ruff: noqa: E402

from streamapp._base.extras import require_spark

require_spark()  # before the imports below, whose errors would name only one missing package, and no remedy

from streamapp.runners.spark.archive import ParquetSource
from streamapp.runners.spark.batch_source import FrameSource, KafkaSource
from streamapp.runners.spark.columns import ColumnSource
from streamapp.runners.spark.kafka_sink import Published, publish
from streamapp.runners.spark.result import BatchResult, OutputTable, OutputTopic, TableRow
from streamapp.runners.spark.runner import SparkRunner
from streamapp.runners.spark.sessions import spark_session
from streamapp.runners.spark.table_frames import create_views, live_tables

__all__ = [
    "BatchResult",
    "ColumnSource",
    "FrameSource",
    "KafkaSource",
    "OutputTable",
    "OutputTopic",
    "ParquetSource",
    "Published",
    "SparkRunner",
    "TableRow",
    "create_views",
    "live_tables",
    "publish",
    "spark_session",
]
