"""Helpers for tests: operators and agents on a few records, workers as processes, and a check that all input is
processed."""

from streamapp.testing.agents import AgentTest, SentRecord
from streamapp.testing.backlog import Backlog
from streamapp.testing.trying import try_out
from streamapp.testing.worker import WorkerProcess

__all__ = ["AgentTest", "Backlog", "SentRecord", "WorkerProcess", "try_out"]
