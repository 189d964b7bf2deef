"""The commands that run on Spark, when Spark's Java ends before the command."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.cli.spark_options import _stopped_at_the_end
from streamapp.errors import StreamsError

pytest.importorskip("py4j")


class _Session:
    """A session whose Java is another process."""

    def __init__(self) -> None:
        self.java = subprocess.Popen(["sleep", "60"])
        self.sparkContext: Any = SimpleNamespace(_gateway=SimpleNamespace(proc=self.java))
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def session() -> Iterator[_Session]:
    found = _Session()
    yield found
    found.java.kill()
    found.java.wait()


def test_a_java_that_has_ended_is_told_in_one_sentence(session: _Session) -> None:
    with (
        pytest.raises(StreamsError, match="Spark's Java has ended with exit code -9"),
        _stopped_at_the_end(session),
    ):
        session.java.kill()
        raise ConnectionRefusedError(111, "Connection refused")
    assert not session.stopped


def test_an_error_of_a_live_java_stays(session: _Session) -> None:
    with pytest.raises(ValueError, match="no number"), _stopped_at_the_end(session):
        raise ValueError("no number")
    assert session.stopped
