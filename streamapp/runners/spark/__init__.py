"""The Spark runner: batches over history, and records into Kafka."""

from streamapp.runners.spark.archive import ParquetSource
from streamapp.runners.spark.result import BatchResult, OutputTable, OutputTopic, TableRow
from streamapp.runners.spark.runner import SparkRunner
from streamapp.runners.spark.session import spark_session
from streamapp.runners.spark.sink import Published, publish
from streamapp.runners.spark.source import FrameSource, KafkaSource

__all__ = [
    "BatchResult",
    "FrameSource",
    "KafkaSource",
    "OutputTable",
    "OutputTopic",
    "ParquetSource",
    "Published",
    "SparkRunner",
    "TableRow",
    "publish",
    "spark_session",
]
