"""Ctrl-C in a process after its Spark session."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_ctrl_c_is_an_interrupt_while_a_session_is_open_and_after_its_stop() -> None:
    """pyspark's handler raised an AttributeError after the stop."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert ended.stdout.splitlines() == ["while it is open", "after its stop"] * 2, ended.stderr
