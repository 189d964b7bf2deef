"""Committed offsets of a group whose coordinator is loading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamapp.broker.consumer_groups import read_committed_offsets
from streamapp.broker.requests import LastingAdmin
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from tests.brokers import LightKafka

pytestmark = pytest.mark.broker

READ = """
import sys
from streamapp.broker.consumer_groups import read_committed_offsets
from streamapp.records import TopicPartition
print(read_committed_offsets({"bootstrap.servers": sys.argv[1]}, "unseen", [TopicPartition("none", 0)]))
"""


def test_the_first_look_at_a_new_cluster_does_not_crash_the_process(tmp_path: Path) -> None:
    """The request of an admin client crashed, because the coordinator is loading at this moment (librdkafka#5040)."""
    with LightKafka(tmp_path, port=0) as kafka:
        asked = subprocess.run(
            [sys.executable, "-c", READ, kafka.bootstrap_servers], capture_output=True, text=True, timeout=120
        )
    assert (asked.returncode, asked.stdout) == (0, "{}\n"), asked.stderr


def test_the_request_that_crashes_is_not_offered() -> None:
    with pytest.raises(AttributeError, match="may crash the process"):
        LastingAdmin({"bootstrap.servers": "127.0.0.1:9"}).list_consumer_group_offsets([])


def test_brokers_that_do_not_answer_are_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """librdkafka wrote a line for each attempt, beside the error of the command."""
    with pytest.raises(BrokerError, match="brokers do not tell the committed offsets of the group app"):
        read_committed_offsets(
            {"bootstrap.servers": "127.0.0.1:9"}, "app", [TopicPartition("in", 0)], seconds=0.5
        )
    # Clients of earlier tests in this process may still write lines about their own brokers.
    assert "127.0.0.1:9/" not in capfd.readouterr().err
