"""One Spark session for all tests of the folder, and a broker whose topics nobody else uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamapp.broker import LocalKafka
from streamapp.runners.spark import spark_session

from ..brokers import SteadyKafka
from .backfill.cluster import Cluster


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "1g",
    }
    session = spark_session("tests", settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker of its own: the ingest writes to topics with fixed names."""
    with SteadyKafka(tmp_path_factory.mktemp("kafka"), brokers=1, port=0) as broker:
        yield broker


@pytest.fixture
def cluster(kafka: LocalKafka, tmp_path: Path, spark: SparkSession) -> Cluster:
    """A year of travels: topics of the test's own, and the application that reads them."""
    return Cluster(kafka.bootstrap_servers, tmp_path, spark)
