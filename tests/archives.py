"""``python -m tests.archives`` writes the classes of a broker and of Spark into archives (tests/java.py).

A broker then starts in half the time, and Spark with 5 s of CPU less.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from streamapp import StreamsBuilder, StreamsConfig
from streamapp.broker.distribution import find_java, kafka_jars
from streamapp.serdes import StringSerde

from .brokers import LightKafka
from .java import class_archive, make_java_light, spark_archive


class _RecordedKafka(LightKafka):
    """Its broker writes the classes that it has loaded into the file ``archive`` when it stops."""

    archive: Path

    def _classes(self, java: str) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self.archive}"]


def _record_kafka(folder: Path, archive: Path) -> None:
    recorded = _RecordedKafka(folder / "kafka", brokers=1, port=0)
    recorded.archive = archive
    with recorded:
        pass


def _record_spark(folder: Path, archive: Path) -> None:
    from pyspark import SparkContext

    from streamapp.runners.spark import SparkRunner, spark_session

    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive}"
    text, builder = StringSerde(), StreamsBuilder()
    events = builder.stream("in", key_serde=text, value_serde=text)
    events.group_by_key().count().to_stream().to("out")
    spark = spark_session("classes", settings={"spark.sql.shuffle.partitions": "1"})
    rows = [(0, 0, b"key", b"value", 0)]
    columns = "partition int, offset bigint, key binary, value binary, timestamp bigint"
    spark.createDataFrame(rows, columns).write.parquet(str(folder / "in"))
    written = spark.read.parquet(str(folder / "in"))
    with SparkRunner(builder.build(), StreamsConfig("classes"), spark).batch({"in": written}) as result:
        assert result.topics["out"].frame.count() == 1
    spark.stop()
    # Java ends when its input ends, and then writes the archive.
    java = cast(Any, SparkContext)._gateway.proc
    java.stdin.close()
    java.wait()


def _record(archive: Path, record: Callable[[Path, Path], None]) -> None:
    if archive.exists():
        return
    for former in archive.parent.glob(f"{archive.stem.rsplit('-', 1)[0]}-*{archive.suffix}"):
        former.unlink()  # of jars that have been replaced since
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        record(Path(folder), made)
        made.rename(archive)


if __name__ == "__main__":
    make_java_light(os.environ)
    _record(class_archive(kafka_jars(find_java())), _record_kafka)
    spark = spark_archive()
    if spark is not None:
        _record(spark, _record_spark)
