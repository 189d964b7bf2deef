"""Helpers for tests: operators on a few records, workers as processes, and a check that all input is processed."""

from streamapp.testing.backlog import Backlog
from streamapp.testing.trying import try_out
from streamapp.testing.worker import WorkerProcess

__all__ = ["Backlog", "WorkerProcess", "try_out"]
