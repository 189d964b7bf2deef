"""Rows are where Kafka would put them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamapp._base.partitioning import murmur2 as scalar_murmur2
from streamapp._base.partitioning import partition_for
from streamapp.runners.spark.partitioning import exact_partitions, key_partitions, murmur2


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_hashes_of_columns_are_those_of_single_keys(keys: list[bytes]) -> None:
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [scalar_murmur2(key) for key in keys]


@given(st.lists(st.none() | st.binary(max_size=12), min_size=1, max_size=30), st.integers(1, 9), st.data())
def test_keys_are_placed_as_kafka_does_and_null_keys_where_told(
    keys: list[bytes | None], partitions: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys) - 1))
    placed = key_partitions(pa.array(keys, pa.binary()).slice(start), partitions, null_key=7)
    expected = [7 % partitions if k is None else partition_for(k, partitions) for k in keys[start:]]
    assert placed.tolist() == expected


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7])
def test_each_value_gets_the_spark_partition_of_its_number(spark: SparkSession, partitions: int) -> None:
    frame = spark.range(200).withColumn("p", (F.col("id") % partitions).cast("int"))
    placed = exact_partitions(frame, partitions, F.col("p"))
    assert placed.rdd.getNumPartitions() == partitions
    assert placed.where(F.spark_partition_id() != F.col("p")).count() == 0
    assert placed.count() == 200
