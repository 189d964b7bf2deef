"""A job as one would submit it: the tables of the flights' airports, out of a Parquet archive.

spark-submit --master spark://... --archives app.tar.gz#app --conf spark.executorEnv.PYTHONPATH=app job.py ARCHIVE RESULT
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from streamapp import (
    JsonSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    Topology,
)
from streamapp.runners.spark import ParquetSource, SparkRunner, spark_session


def topology() -> Topology:
    builder = StreamsBuilder()
    text = StringSerde()
    flights = builder.stream("flights", key_serde=text, value_serde=JsonSerde())
    (
        flights.group_by(lambda key, flight: flight["origin"], key_serde=text, value_serde=JsonSerde())
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(days=400)))
        .count(
            materialized=Materialized(
                "departures", key_serde=text, value_serde=LongSerde(), retention=timedelta(days=401)
            )
        )
    )
    return builder.build()


def main(archive: str, answer: str) -> None:
    spark = spark_session("flights-on-a-cluster")
    with SparkRunner(topology(), StreamsConfig("cluster-job"), spark).batch(
        {"flights": ParquetSource(archive)}
    ) as result:
        rows = sorted((row.key, row.start, row.value) for row in result.tables["departures"].rows())
    Path(answer).write_text(json.dumps(rows))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
