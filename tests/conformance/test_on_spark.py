"""Cases on Spark in batch; see `spark` and `meaning`, and ``docs/conformance.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamapp.runners.spark import spark_session

from .meaning import Comparison, differences, in_order_of_time
from .spark import run_on_spark

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    session = spark_session("conformance", settings=settings)
    yield session
    session.stop()


def test_case(
    spark_case: dict[str, Any], spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    case = in_order_of_time(spark_case)
    outcome = run_on_spark(case, spark)
    tables = outcome.actual.get("stores", {}).keys()
    lines = differences(case, outcome, Comparison(case, batch=True), tables)
    record_property("runner", (spark_case["name"], "spark", not lines))
    if lines:
        pytest.fail("\n".join([f"{spark_case['name']}: {spark_case['about']}", *lines]), pytrace=False)
