"""A foreign-key join in micro-batches, with record caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamapp.broker import LocalKafka
from streamapp.runners.spark.streaming import SparkStream
from streamapp.testing import Backlog

from ...orders_on_kafka import OrdersOnKafka

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_the_table_in_the_end_is_that_of_both_sides(
    kafka: LocalKafka, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    orders = OrdersOnKafka(kafka.bootstrap_servers, str(tmp_path / "state"), kind, 500)
    plan = orders.topology().plan(orders.config)

    def check() -> None:
        assert not stream.wait(0.01)

    with (
        SparkStream(
            orders.topology(),
            orders.config,
            spark,
            checkpoint=str(tmp_path / "checkpoint"),
            interval_ms=100,
            records_per_batch=40,
        ) as stream,
        Backlog(plan, orders.settings) as backlog,
    ):
        orders.feed(check)
        while not backlog.empty():
            assert not stream.wait(0.1)
    assert orders.table() == orders.expected
