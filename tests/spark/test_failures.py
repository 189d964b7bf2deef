"""What the driver says of errors in executors, and of what cannot run on Spark at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, UnsupportedOperation
from streamapp.errors import BrokerError, StreamsError
from streamapp.runners.spark import SparkRunner
from streamapp.runners.spark.failures import raised_in_tasks

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 2028, in main
{line}

"""


def raised(line: str) -> BaseException:
    with pytest.raises(Exception) as found, raised_in_tasks():  # noqa: PT011
        raise PythonException(TRACEBACK.format(line=line))
    return found.value


def test_errors_of_streamapp_come_back_as_what_they_are() -> None:
    error = raised("streamapp.errors.BrokerError: flights-0 cannot be read at offset 7: it is gone")
    assert type(error) is BrokerError
    assert str(error) == "flights-0 cannot be read at offset 7: it is gone"


def test_code_that_executors_do_not_have_is_named_with_the_way_to_give_it_to_them() -> None:
    error = raised("ModuleNotFoundError: No module named 'agents'")
    assert type(error) is StreamsError
    assert "the executors have no module agents" in str(error)
    assert "streamapp spark package" in str(error)


def test_other_errors_stay_what_spark_made_of_them() -> None:
    assert type(raised("ZeroDivisionError: division by zero")) is PythonException


def test_a_python_worker_that_is_killed_is_no_java_stack(spark: SparkSession) -> None:
    def killed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from ()

    frame = spark.range(0, 1, 1, 1).mapInArrow(killed, "id bigint")
    with (
        pytest.raises(StreamsError, match="a Python worker of Spark was killed.*memory.*run this again"),
        raised_in_tasks(),
    ):
        frame.collect()


async def looked_up(value: str) -> str:
    return value


def test_asynchronous_steps_are_refused_before_spark_starts() -> None:
    text, builder = StringSerde(), StreamsBuilder()
    calls = builder.stream("in", key_serde=text, value_serde=text)
    calls.map_values_async(looked_up, name="lookup").to("out", key_serde=text, value_serde=text)
    with pytest.raises(UnsupportedOperation, match=r"lookup cannot run.*asynchronous.*map_values\(\)"):
        SparkRunner(builder.build(), StreamsConfig("calls")).batch()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("java.io.IOException: No space left on device", "set spark.local.dir"),
        (
            "Total size of serialized results of 3 tasks (1.2 GiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)",
            "1.2 GiB",
        ),
    ],
)
def test_the_ends_of_disk_and_memory_are_no_java_stack(spark: SparkSession, reason: str, said: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    with pytest.raises(StreamsError, match=said) as found, raised_in_tasks():
        jvm.scala.sys.package.error(f"Job aborted due to stage failure: {reason}")
    assert "\tat " not in str(found.value)
