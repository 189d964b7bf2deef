"""How far state on disk is, and how long changelogs are."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.engine.collector import NoWayOut
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.errors import BrokerError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.worker import offsets
from streamapp.runners.worker.livetask import LiveTask, WorkerDisk
from streamapp.runners.worker.offsets import changelog_ends, committed_offsets, offsets_on_disk
from streamapp.runners.worker.placement import Candidate, TaskId, place
from streamapp.runners.worker.runtime import StreamsRuntime
from streamapp.runners.worker.topics import Topics
from streamapp.serdes import StringSerde
from streamapp.state.backend import WriteSet
from streamapp.state.directory import StateDirectory
from streamapp.state.rocks import RocksBackend
from streamapp.topology.plan import Plan

TEXT = StringSerde()
NO_ADMIN: Any = None
TASKS = [TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)]


def plan() -> Plan:
    """Sub-topology 0 counts; sub-topology 1 has a table whose topic is its changelog."""
    builder = StreamsBuilder(StreamsConfig("app", topology_optimization="all"))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key().count(
        materialized=Materialized("counts", key_serde=TEXT)
    )
    builder.table("rows", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("rows-table"))
    return builder.build().plan()


def test_offsets_that_an_earlier_process_left(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "app") as directory:
        backend = RocksBackend(directory.task_path("0_1"))
        backend.write(WriteSet(offsets={"counts": 40, "forgotten": 5}))
        backend.close()
        broken = directory.task_path("0_0")
        (broken / "CURRENT").write_text("rubbish\n")
        topics = Topics({"app-counts-changelog": 2, "rows": 1}, {})
        assert offsets_on_disk(plan(), topics, KeepingAll(), directory) == {TaskId(0, 1): 40}


def test_a_copy_that_is_closed_during_a_join_counts_as_far_as_it_was_known(tmp_path: Path) -> None:
    planned, copies = plan(), TASKS[:2]
    environment = TaskEnvironment(planned, NoWayOut("a copy"), wall_clock_ms=lambda: 0)
    with StateDirectory(tmp_path, "app") as directory:
        disk = WorkerDisk(directory, StreamsConfig("app").memory)
        live = {id: LiveTask(environment, planned.subtopologies[0], id, disk, []) for id in copies}
        for each in live.values():
            each.restore("counts", RecordBatch([b"k"], [bytes(8)], [1], [11]))
        plane = SimpleNamespace(tasks=LeftTasks({copies[0]: 5}), standbys=SimpleNamespace(tasks=live))
        runtime: Any = SimpleNamespace(_on_disk=dict.fromkeys(TASKS, 3), _plane=plane)
        live[copies[0]].close()
        assert StreamsRuntime.task_offsets(runtime) == {TASKS[0]: 5, TASKS[1]: 12, TASKS[2]: 3}
        live[copies[1]].close()
        assert StreamsRuntime.task_offsets(runtime) == {TASKS[0]: 5, TASKS[1]: 3, TASKS[2]: 3}


class KeepingAll:
    """An admin client of brokers that keep no tombstones for less than a day."""

    def describe_configs(self, resources: list[Any], **options: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {resource: Future() for resource in resources}
        for future in answers.values():
            future.set_result({"cleanup.policy": SimpleNamespace(value="compact")})
        return answers


class LeftTasks(dict[TaskId, LiveTask]):
    """The tasks of a worker that runs none, and has closed some."""

    def __init__(self, left: dict[TaskId, int]) -> None:
        super().__init__()
        self.left = left


def answering(offset: int) -> Any:
    """A `find_committed` of a group that has committed this offset everywhere."""
    return lambda config, partitions, *_, **__: dict.fromkeys(partitions, (offset, ""))


def test_a_source_topic_counts_as_far_as_it_was_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "list_offsets", lambda admin, asked, **_: dict.fromkeys(asked, 1_000))
    monkeypatch.setattr(offsets, "find_committed", answering(7))
    topics = Topics({"in": 2, "rows": 1}, {0: ("in",), 1: ("rows",)})
    ends = changelog_ends(plan(), topics, NO_ADMIN, TASKS)
    assert ends == {TaskId(0, 0): 1_000, TaskId(0, 1): 1_000, TaskId(1, 0): 7}
    nothing = TopicPartition("rows", 0)
    monkeypatch.setattr(offsets, "find_committed", answering(-1001))
    assert committed_offsets(StreamsConfig("app"), [nothing]) == {nothing: 0}


def test_without_an_answer_tasks_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise BrokerError("no answer")

    monkeypatch.setattr(offsets, "list_offsets", silent)
    topics = Topics({"in": 2, "rows": 1}, {0: ("in",), 1: ("rows",)})
    ends = changelog_ends(plan(), topics, NO_ADMIN, TASKS)
    runs = Candidate(frozenset(TASKS), dict.fromkeys(TASKS, 0))
    restores = Candidate(lags={task: end - 50 for task, end in ends.items()})
    assert place(TASKS, ends, {"a": runs, "b": restores}).active == {"a": set(TASKS), "b": set()}
    assert place(TASKS, ends, {"b": restores, "c": Candidate()}).active["b"]  # the other one has gone
