"""The first start of an application on a new cluster logs nothing alarming."""

from __future__ import annotations

import re

import pytest

from ..processes import until
from .answered import GUARANTEES, Answered
from .conftest import Cluster


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_first_start_with_a_table_of_an_agent_logs_no_error(cluster: Cluster, guarantee: str) -> None:
    """aiokafka logged an error until the cluster had created its topic of committed offsets."""
    answered = Answered(cluster)
    worker = answered.start(TABLE="yes", GUARANTEE=guarantee)
    worker.wait_for("Worker ready")
    answered.ask(1)
    until(lambda: len(answered.answers()) == 1, 60, worker.text)
    assert worker.terminate() == 0
    assert re.findall(r".*\[(?:ERROR|CRITICAL|WARNING)\].*", worker.text()) == []
