"""A program with a Spark session: Ctrl-C, and the output of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROGRAM = """
import signal
from streamapp.runners.spark import spark_session

for number in range(2):
    spark = spark_session("stopped")
    assert spark.range(3).count() == 3
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("while it is open")
    spark.stop()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("after its stop")
"""


@pytest.fixture(scope="module")
def ended() -> subprocess.CompletedProcess[str]:
    """The program has ended. Java writes lines with the tag ``gc,init`` into its standard output."""
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Xlog:gc+init"
    environ = os.environ | {"JDK_JAVA_OPTIONS": java}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True, timeout=600
    )


def test_ctrl_c_is_an_interrupt_while_a_session_is_open_and_after_its_stop(
    ended: subprocess.CompletedProcess[str],
) -> None:
    """pyspark's handler raised an AttributeError after the stop."""
    assert ended.stdout.splitlines() == ["while it is open", "after its stop"] * 2, ended.stderr


def test_the_output_of_java_is_not_among_the_lines_of_the_program(
    ended: subprocess.CompletedProcess[str],
) -> None:
    """A warning of Java stood between the rows of ``streamapp sql --format json``."""
    assert "[gc,init]" in ended.stderr
    assert "[gc,init]" not in ended.stdout


def test_a_signal_for_the_process_group_leaves_java_alone(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._gateway
    assert os.getpgid(java.proc.pid) != os.getpgid(0)
