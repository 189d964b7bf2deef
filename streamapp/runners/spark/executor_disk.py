"""The state of streaming tasks on an executor's disk, between two micro-batches."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path

from streamapp.errors import LockError, ProcessorStateError
from streamapp.records import TopicPartition
from streamapp.runners.aged_state import forget_aged_rows, state_on_disk
from streamapp.state.backend import StateBackend
from streamapp.state.rocks import RocksBackend, written_at
from streamapp.topology import Plan

__all__ = ["ExecutorDisk"]

LOCK_SECONDS = 5.0


class ExecutorDisk:
    """Keeps the state of streaming tasks on an executor's disk (a `StateHome`).

    A damaged state is deleted: the disk has only a copy of the changelogs. A state that another attempt of the task
    still holds open after 5 seconds stays, and a new state begins in a temporary folder.

    ``topic_ids`` has Kafka's ids of the changelogs. The name of the folder depends on these ids. So a changelog that
    was created anew gets a new folder, and the copy of the old changelog is not used.
    """

    def __init__(self, plan: Plan, topic_ids: Mapping[str, str]) -> None:
        logs = {topic.name for sub in plan.subtopologies for topic in sub.changelog_topics.values()}
        ids = " ".join(topic_ids[topic] for topic in sorted(logs & topic_ids.keys()))
        name = hashlib.sha256(f"{plan.fingerprint} {ids}".encode()).hexdigest()[:32]
        self._root = Path(plan.config.state_dir) / f"{plan.application_id}-spark" / name

    def open(self, task: str, stores: Collection[str]) -> StateBackend:
        folder = self._root / task
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                return RocksBackend(folder, stores=stores)
            except LockError:
                # An attempt that Spark has given up is still alive here, and holds the lock. Nobody needs its state.
                if time.monotonic() > deadline:
                    return _Temporary(tempfile.mkdtemp(prefix="streamapp-"), stores=stores)
                time.sleep(0.2)
            except ProcessorStateError:
                self.wipe(task)

    def forget_aged_rows(
        self,
        task: str,
        changelogs: Mapping[str, TopicPartition],
        tombstones: Mapping[str, float],
        ends_of: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> None:
        """Deletes the rows of old stores, whose changelogs may lack tombstones (`aged_state`). Call this before `open`.

        ``changelogs`` has the changelog partition of each store.
        """
        folder = self._root / task
        written = written_at(folder)
        if written is None or time.time() - written <= min(tombstones.values(), default=inf):
            return
        # `open` handles a state that is damaged, or that another attempt still holds.
        with suppress(ProcessorStateError):
            logs = {(task, store): tp for store, tp in changelogs.items()}
            forget_aged_rows({task: state_on_disk(folder)}, logs, tombstones, ends_of)

    def wipe(self, task: str) -> None:
        shutil.rmtree(self._root / task, ignore_errors=True)

    def place(self, task: str) -> str:
        return str(self._root / task)


class _Temporary(RocksBackend):
    """A state that is deleted when it is closed, because no later attempt would look for it."""

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.path, ignore_errors=True)
