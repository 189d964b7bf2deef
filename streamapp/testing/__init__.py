"""For tests and demonstrations: workers as processes, and whether they have caught up."""

from streamapp.testing.backlog import Backlog
from streamapp.testing.worker import WorkerProcess

__all__ = ["Backlog", "WorkerProcess"]
