"""What the data plane does with tasks that come, stay and go; without a broker, turn by turn."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from streamapp import PunctuationType
from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.engine import task_session
from streamapp.engine.global_letters import GlobalLetters
from streamapp.engine.runner_ports import InMemory, Position, TaskEnvironment
from streamapp.errors import BrokerError, StreamsError, TaskCorruptedError, TopologyError
from streamapp.records import OutputRecord, RecordBatch, TopicPartition
from streamapp.runners.purge import Purge
from streamapp.runners.topic_ids import LostTopic
from streamapp.runners.worker import commit, dataplane, livetask, stalls
from streamapp.runners.worker.dataplane import DataPlane
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import LiveTask
from streamapp.runners.worker.membership import Member, StaleMemberError
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.stalls import NoProgressError
from streamapp.runners.worker.transactions import ResultsRefused, TransactionAborted
from streamapp.serdes import LongSerde, StringSerde
from streamapp.state.backend import StateDamagedError
from streamapp.topology.plan import Plan

TEXT = StringSerde()
ONE, TWO, THREE = (TaskId(0, p) for p in range(3))


def counting(*, asynchronous: bool = False, behind: bool = False) -> Plan:
    """``asynchronous``: with calls before the count; ``behind``: with calls behind the count and its record cache."""

    async def look_up(value: Any) -> str:
        raise AssertionError("the test's runner starts no calls")

    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    if asynchronous:
        stream = stream.map_values_async(look_up)
    counts = Materialized("counts", key_serde=TEXT, value_serde=LongSerde())
    table = stream.group_by_key(key_serde=TEXT, value_serde=TEXT).count(materialized=counts)
    if behind:
        table.to_stream().map_values_async(look_up).foreach(print)
    return builder.build().plan(StreamsConfig("app", commit_interval_ms=1_000_000))


class Fetcher:
    at_end = True
    asks = False
    without_offset: frozenset[TopicPartition] = frozenset()
    ends: Mapping[TopicPartition, int] = {}
    to_commit: frozenset[TopicPartition] = frozenset()
    leaderless: frozenset[TopicPartition] = frozenset()
    unplaced: frozenset[TopicPartition] = frozenset()
    """The inputs without a leader of which the group has no offset."""

    def __init__(self, *_: Any) -> None:
        self.assigned: set[TaskId] = set()
        self.arrived: dict[TaskId, int] = {}
        self.key: bytes | None = b"k"
        self.asked_beside = 0
        self.read: dict[TopicPartition, int] = {}
        self.failure: Exception | None = None
        self._live: list[LiveTask] = []

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        return {tp: Position(0) for tp in partitions if tp not in self.unplaced}

    def placeable(self, tp: TopicPartition) -> bool:
        return tp not in self.unplaced

    def assign(self, tasks: Iterable[LiveTask]) -> None:
        self._live = list(tasks)
        self.assigned = {live.id for live in self._live}

    def read_up_to(self, tp: TopicPartition) -> int:
        return self.read.get(tp, -1)

    polled_ms: int | None = None

    def poll(self, timeout: float) -> list[LiveTask]:
        if self.failure is not None:
            raise self.failure
        fed = [live for live in self._live if live.id in self.arrived]
        for live in fed:
            for n in range(self.arrived.pop(live.id)):
                live.task.enqueue(live.inputs[0], RecordBatch([self.key], [b"v"], [n], [n]))
        return fed

    def wake(self) -> None: ...

    def caught_up(self, live: LiveTask) -> None:
        return None

    def with_epoch(self, tp: TopicPartition, position: Position) -> Position:
        return position

    def forget(self, tasks: Any) -> None: ...
    def refresh_ends(self) -> None: ...

    def refresh_ends_beside(self) -> None:
        self.asked_beside += 1

    def apply_back_pressure(self, busy: Iterable[LiveTask]) -> None: ...
    def close(self) -> None: ...


class Restorer:
    asks = False

    def __init__(self, *_: Any) -> None:
        self.behind: set[TaskId] = set()
        self._tasks: list[LiveTask] = []

    @property
    def active(self) -> bool:
        return bool(self.behind)

    def add(self, tasks: Iterable[LiveTask]) -> None:
        self._tasks += tasks

    def drop(self, tasks: Any) -> None: ...
    def poll(self, timeout: float) -> None: ...
    def look_for_leaders(self) -> None: ...
    def close(self) -> None: ...

    @property
    def restoring(self) -> set[LiveTask]:
        return {live for live in self._tasks if live.id in self.behind}

    def finished(self, live: LiveTask) -> int:
        return 0


class Standbys:
    def __init__(
        self, config: Any, admin: Any, listeners: Any, open_task: Any, close_task: Any, caught_up: Any
    ) -> None:
        self._open_task, self._close_task = open_task, close_task
        self.tasks: dict[TaskId, LiveTask] = {}

    def assign(self, wanted: dict[TaskId, bool]) -> None:
        for id in [id for id in self.tasks if id not in wanted]:
            self._close_task(self.tasks.pop(id))
        self.tasks.update((id, self._open_task(id)) for id in wanted if id not in self.tasks)

    def reopen(self) -> None:
        wanted = dict.fromkeys(self.tasks, False)
        self.assign({})
        self.assign(wanted)

    def take(self, id: TaskId) -> LiveTask | None:
        return self.tasks.pop(id, None)

    def poll(self) -> None: ...
    def close(self) -> None: ...


class Anything:
    """Producer, group, global stores: says yes to everything and notes what it was asked."""

    ready = True
    at = None
    unacknowledged_bytes = 0
    waits_for_room = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def note(*_: Any) -> None:
            self.asked.append(name)

        return note


class Group(Anything):
    """A group that has gone on without the member, or does not answer, if there is an ``error``."""

    error: Exception | None = None

    def confirm(self, member: Member, timeout: float) -> None:
        if self.error is not None:
            raise self.error


class Plane(DataPlane):
    """A data plane that is not started: the test takes its turns."""

    def __init__(self, plan: Plan) -> None:
        self.opened: list[TaskId] = []
        self.ledger = Anything()
        self.group = Group()
        self.listeners = ListenerCalls()
        self._plan = plan
        super().__init__(
            plan.config,
            None,
            self.ledger,
            self.ledger,
            self.group,
            Anything(),
            self.listeners,
            self,
            self._make,
            self._failed,
            plan.offset_reset,
            {},
            lambda found: (),
            (),
        )

    lost_topic: LostTopic | None = None
    with_offsets = frozenset({"other"})

    def lost(self) -> LostTopic | None:
        return self.lost_topic

    def _failed(self, exc: BaseException) -> None:
        raise exc

    def _make(self, id: TaskId) -> LiveTask:
        self.opened.append(id)
        sub = self._plan.subtopologies[0]
        tp = TopicPartition("in", id.partition)

        def never(coroutine: Coroutine[Any, Any, None]) -> Future[None]:
            coroutine.close()
            return Future()

        environment = TaskEnvironment(
            self._plan,
            Anything(),  # type: ignore[arg-type]
            wall_clock_ms=lambda: 0,
            run_async=never,
            with_offsets=self.with_offsets,
        )
        return LiveTask(environment, sub, id, InMemory(), [tp])

    def given(self, generation: int, *tasks: TaskId, standbys: dict[TaskId, bool] | None = None) -> None:
        self.assign(Member(generation, "me"), tasks, standbys or {})
        self._turn()

    def revoked(self) -> None:
        self.revoke()
        self._turn()

    @property
    def running(self) -> set[TaskId]:
        return {id for id, live in self.tasks.items() if live.running}


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Plane:
    for fake in (Fetcher, Restorer, Standbys):
        monkeypatch.setattr(dataplane, fake.__name__, fake)
    monkeypatch.setattr(commit, "list_offsets", lambda admin, partitions, **_: dict.fromkeys(partitions, 7))
    monkeypatch.setattr(dataplane, "_IDLE_SECONDS", 0.0)
    return Plane(counting(**getattr(request, "param", {})))


def test_ready_tasks_run_while_others_are_restored(plane: Plane) -> None:
    plane.restorer.behind = {TWO}  # type: ignore[attr-defined]
    plane.given(1, ONE, TWO)
    assert plane.running == plane.fetcher.assigned == {ONE}  # type: ignore[attr-defined]
    plane.fetcher.arrived = {ONE: 3}  # type: ignore[attr-defined]
    plane._turn()
    assert plane.processed == 3
    plane.restorer.behind = set()  # type: ignore[attr-defined]
    plane._turn()
    assert plane.running == plane.fetcher.assigned == {ONE, TWO}  # type: ignore[attr-defined]


def test_only_the_task_of_an_input_without_a_leader_waits(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(plane, "_last_look", 0.0)
    unled = frozenset({TopicPartition("in", TWO.partition)})
    monkeypatch.setattr(plane.fetcher, "unplaced", unled)
    plane.given(1, ONE, TWO)
    assert plane.running == {ONE}
    assert plane.tasks.leaderless == "task 0_1 waits for a leader of in-1"
    assert "task 0_1 waits for a leader of in-1. Other partitions go on" in caplog.text
    monkeypatch.setattr(plane.fetcher, "unplaced", frozenset())
    plane._last_look = 0.0
    plane._turn()
    plane._turn()
    assert plane.running == plane.fetcher.assigned == {ONE, TWO}  # type: ignore[attr-defined]
    assert plane.tasks.leaderless is None
    assert "the inputs of task 0_1 have leaders again" in caplog.text


def test_a_running_task_whose_input_loses_its_leader_runs_on(plane: Plane) -> None:
    plane.given(1, ONE, TWO)
    plane.fetcher.leaderless = frozenset({TopicPartition("in", TWO.partition)})
    plane._turn()
    assert plane.running == {ONE, TWO}
    assert plane.tasks.leaderless == "task 0_1 waits for a leader of in-1"


def test_a_task_that_leaves_waits_for_no_leader(plane: Plane) -> None:
    plane.fetcher.unplaced = frozenset({TopicPartition("in", TWO.partition)})  # type: ignore[attr-defined]
    plane.given(1, ONE, TWO)
    plane.given(2, ONE)
    assert plane.tasks.leaderless is None


def test_a_commit_does_not_wait_for_the_leader_of_a_changelog(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog of a table may be its source topic, in which the commit writes nothing."""
    asked = []

    def unled(
        admin: Any, partitions: Any, *, latest: bool, leaderless: set[TopicPartition]
    ) -> dict[Any, int]:
        asked.extend(partitions)
        return {}

    monkeypatch.setattr(commit, "list_offsets", unled)
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    plane._commit()
    assert (plane.commits, len(asked)) == (1, 1)


@pytest.mark.parametrize(
    ("wall", "steady", "jumps"),
    [
        ([10, 20], [10, 20], []),
        ([1_500, 3_000], [1_500, 3_000], []),  # slow turns
        ([10_800_010, 10_800_020], [10, 20], [10_800_000]),
        ([-10_799_990, -10_799_980], [10, 20], [-10_800_000]),
        ([60_000, 60_010], [60_000, 60_010], [59_000]),  # the process stood still, or was paused
        ([10, 5], [10, 20], [-15]),
    ],
)
def test_a_task_follows_jumps_of_the_clock_and_times_without_work(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, wall: list[int], steady: list[int], jumps: list[int]
) -> None:
    monkeypatch.setattr(dataplane, "_PUNCTUATE_SECONDS", 3_600)
    monkeypatch.setattr(livetask, "now_ms", lambda: 0)
    monkeypatch.setattr(livetask, "steady_ms", lambda: 0)
    plane.given(1, ONE)
    live, seen = plane.tasks[ONE], list[int]()
    monkeypatch.setattr(live.task, "clock_jumped", seen.append)
    for now in zip(wall, steady, strict=True):
        live.punctuate(*now)
    assert seen == jumps


@pytest.fixture
def sent_now(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was processed whenever results were sent at once; the plane runs one task."""
    asked: list[int] = []
    monkeypatch.setattr(plane._committer, "send_now", lambda: asked.append(plane.processed))
    plane.given(1, ONE)
    asked.clear()
    return asked


def test_results_of_few_records_do_not_wait_for_more(
    plane: Plane, sent_now: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane, "_FEW_RECORDS", 2)
    for count in (0, 2, 3):
        plane.fetcher.arrived = {ONE: count}  # type: ignore[attr-defined]
        plane._turn()
    assert sent_now == [0, 2]


def test_results_of_many_records_do_not_wait_for_long(
    plane: Plane, sent_now: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane, "_FEW_RECORDS", 0)
    plane.fetcher.arrived = {ONE: 3}  # type: ignore[attr-defined]
    plane._turn()
    assert sent_now == []
    monkeypatch.setattr(dataplane, "_LINGER_SECONDS", 0)
    plane._turn()
    assert sent_now == [3]


def test_outputs_of_a_transaction_wait_for_its_commit(plane: Plane) -> None:
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    assert "send_now" not in plane.ledger.asked


def test_tasks_that_stay_are_not_closed_by_a_rebalance(plane: Plane) -> None:
    plane.given(1, ONE, TWO)
    stays = plane.tasks[ONE]
    plane.revoked()
    assert plane.suspended
    plane.given(2, ONE, THREE)
    assert plane.tasks[ONE] is stays
    assert plane.opened == [ONE, TWO, THREE]
    assert not plane.suspended


def test_the_counters_of_dropped_records_do_not_fall(plane: Plane) -> None:
    def dropping(count: int, *ids: TaskId) -> dict[str, int]:
        plane.fetcher.key = None  # type: ignore[attr-defined]
        plane.fetcher.arrived = dict.fromkeys(ids, count)  # type: ignore[attr-defined]
        plane._turn()
        plane._turn()  # the first turn takes few records
        return plane.tasks.dropped_records

    plane.given(1, ONE, TWO)
    assert plane.tasks.dropped_records == {"0_0": 0, "0_1": 0}
    assert dropping(3, ONE, TWO) == {"0_0": 3, "0_1": 3}
    first = plane.tasks[ONE]
    plane.given(3, ONE)  # closed and opened anew; the other one goes to another worker
    assert plane.tasks[ONE] is not first
    assert plane.tasks.dropped_records == {"0_0": 3, "0_1": 3}
    assert dropping(2, ONE) == {"0_0": 5, "0_1": 3}
    plane.given(4, ONE, standbys={TWO: False})
    plane.given(5, ONE, TWO)  # comes back, by way of a standby
    assert dropping(1, ONE, TWO) == {"0_0": 6, "0_1": 4}


def noting(plane: Plane, id: TaskId, calls: list[TaskId]) -> None:
    """Notes each call of a task's ``process``."""
    task = plane.tasks[id].task
    process = task.process

    def noted(*arguments: Any) -> int:
        calls.append(id)
        return process(*arguments)

    task.process = noted  # type: ignore[method-assign]


def test_a_turn_works_only_on_tasks_with_records(plane: Plane) -> None:
    plane.given(1, ONE, TWO, THREE)
    calls: list[TaskId] = []
    for id in (ONE, TWO, THREE):
        noting(plane, id, calls)
    plane._turn()
    assert calls == []
    plane.fetcher.arrived = {TWO: 3}  # type: ignore[attr-defined]
    plane._turn()
    plane._turn()
    assert calls == [TWO]
    assert plane.processed == 3


def test_a_task_stays_busy_until_its_last_record(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.given(1, ONE, TWO)
    monkeypatch.setattr(plane._pace, "records", lambda waiting: 4)
    plane.fetcher.arrived = {ONE: 1, TWO: 5}  # type: ignore[attr-defined]
    taken = []
    for _ in range(4):
        plane._turn()
        taken.append(plane.processed)
    assert taken == [3, 6, 6, 6]  # two records of each task, then all four of one


def test_a_turn_takes_no_more_records_than_a_second_allows(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.given(1, ONE)
    clock = dataplane.time.monotonic()
    monkeypatch.setattr(dataplane.time, "monotonic", lambda: clock)
    process = plane.tasks[ONE].task.process

    def slow(*arguments: Any) -> int:
        nonlocal clock
        done = process(*arguments)
        clock += 0.4 * done
        return done

    plane.tasks[ONE].task.process = slow  # type: ignore[method-assign]
    plane.fetcher.arrived = {ONE: 9}  # type: ignore[attr-defined]
    taken = []
    for _ in range(4):
        plane._turn()
        taken.append(plane.processed)
    assert taken == [4, 6, 8, 9]


def test_the_bytes_that_wait_for_a_commit_are_those_of_all_tasks(plane: Plane) -> None:
    plane.given(1, ONE, TWO)

    def counted() -> int:
        return sum(live.task.dirty_bytes for live in plane.tasks.running)

    for arrived in ({ONE: 2}, {TWO: 3}, {}, {ONE: 1, TWO: 1}):
        plane.fetcher.arrived = dict(arrived)  # type: ignore[attr-defined]
        plane._turn()
        assert plane._waiting_bytes() == counted() > 0
    plane._commit()
    assert plane._waiting_bytes() == counted() == 0
    plane.given(2, TWO, THREE)
    plane.fetcher.arrived = {THREE: 1}  # type: ignore[attr-defined]
    plane._turn()
    assert plane._waiting_bytes() == counted() > 0


@pytest.mark.parametrize("kind", [PunctuationType.WALL_CLOCK_TIME, PunctuationType.STREAM_TIME])
def test_a_punctuator_may_request_a_commit(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, kind: PunctuationType
) -> None:
    monkeypatch.setattr(dataplane, "_PUNCTUATE_SECONDS", -1.0)
    monkeypatch.setattr(dataplane, "now_ms", lambda: 0)
    plane.given(1, ONE, TWO)
    task = plane.tasks[TWO].task

    def request(now: int) -> None:
        task.commit_requested = True

    task.schedule("p", 1_000, kind, request, 0)
    plane._turn()
    plane._commit()
    before = plane.commits
    monkeypatch.setattr(dataplane, "now_ms", lambda: 5_000)
    if kind is PunctuationType.STREAM_TIME:
        plane.tasks[TWO].task.enqueue(TopicPartition("in", 1), RecordBatch([b"k"], [b"v"], [9_000], [0]))
        plane._busy[plane.tasks[TWO]] = None
    plane._turn()
    assert plane.commits == before + 1


def refuse_commits(plane: Plane, reason: str) -> None:
    def commit(*_: Any) -> None:
        raise TransactionAborted(reason)

    plane.ledger.commit = commit


def commit_of(plane: Plane, records: int, id: TaskId = ONE) -> None:
    plane.fetcher.arrived = {id: records}  # type: ignore[attr-defined]
    plane._turn()
    plane._commit_requested = True
    plane._turn()


def test_rollbacks_in_a_row_are_told_until_something_is_committed(plane: Plane) -> None:
    plane.given(1, ONE)
    refuse_commits(plane, "nobody takes this")
    commit_of(plane, 1)
    assert plane.progress.stuck is None
    commit_of(plane, 1)
    assert "nobody takes this" in str(plane.progress.stuck)
    del plane.ledger.commit
    commit_of(plane, 1)
    assert plane.progress.stuck is None


def test_rollbacks_of_one_task_are_told_although_others_commit(plane: Plane) -> None:
    """The commits of other tasks hid for ever that one task could not commit."""

    def commit(positions: dict[TopicPartition, Position], *_: Any) -> None:
        if TopicPartition("in", TWO.partition) in positions:
            raise TransactionAborted("nobody takes this")

    plane.given(1, ONE, TWO)
    plane.fetcher.at_end = False  # type: ignore[misc]
    plane.ledger.commit = commit
    for _ in range(2):
        commit_of(plane, 1, TWO)
        commit_of(plane, 1, ONE)
    assert plane.commits == 2
    assert f"nothing of tasks {TWO} was committed" in str(plane.progress.stuck)


def test_rollbacks_are_forgotten_when_there_is_nothing_to_commit(plane: Plane) -> None:
    plane.given(1, ONE)
    refuse_commits(plane, "no")
    commit_of(plane, 1)
    commit_of(plane, 1)
    plane.fetcher.at_end = False  # type: ignore[misc]
    plane._commit()
    assert plane.progress.stuck is not None  # what was rolled back has not come again
    plane.fetcher.at_end = True  # type: ignore[misc]
    plane._commit()
    assert plane.progress.stuck is None


def test_rollbacks_in_a_row_end_the_worker(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "PATIENCE_SECONDS", 0.0)
    plane.given(1, ONE)
    refuse_commits(plane, "nobody takes this")
    commit_of(plane, 1)
    with pytest.raises(NoProgressError, match="nobody takes this"):
        commit_of(plane, 1)


def test_what_brokers_do_not_take_in_time_is_taken_in_slices_by_each_task(plane: Plane) -> None:
    plane.given(1, ONE, TWO)
    for _ in range(50):
        plane._pace.rolled_back()
    plane.fetcher.arrived = {ONE: 3, TWO: 3}  # type: ignore[attr-defined]
    plane._turn()
    assert [plane.tasks[id].task.metrics.processed for id in (ONE, TWO)] == [1, 1]
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    assert plane.fetcher.arrived  # type: ignore[attr-defined]  # nothing more is fetched until these are done
    for _ in range(10):
        plane._turn()
    assert [plane.tasks[id].task.metrics.processed for id in (ONE, TWO)] == [4, 3]
    assert plane.commits > 2  # a commit comes before more records


def test_the_lag_is_looked_after_from_beside_only_while_the_thread_is_held_up(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.given(1, ONE)
    plane.look_beside()
    assert plane.fetcher.asked_beside == 0  # type: ignore[attr-defined]
    monkeypatch.setattr(dataplane, "_LATE_SECONDS", 0.0)
    plane.look_beside()
    assert plane.fetcher.asked_beside == 1  # type: ignore[attr-defined]


def test_after_a_generation_without_this_worker_tasks_begin_again(plane: Plane) -> None:
    plane.given(1, ONE)
    before = plane.tasks[ONE]
    plane.given(3, ONE)
    assert plane.tasks[ONE] is not before


def test_a_standby_becomes_the_task_with_its_state_open(plane: Plane) -> None:
    plane.given(1, ONE, standbys={TWO: False})
    copy = plane.standbys.tasks[TWO]
    plane.given(2, ONE, TWO)
    assert plane.tasks[TWO] is copy
    assert plane.running == {ONE, TWO}
    assert plane.opened == [ONE, TWO]


def test_a_task_becomes_a_standby(plane: Plane) -> None:
    plane.given(1, ONE, TWO)
    plane.given(2, ONE, standbys={TWO: False})
    assert set(plane.standbys.tasks) == {TWO}
    assert plane.running == {ONE}
    assert TWO in plane.tasks.left


FAILURES = (
    BrokerError("in-0 cannot be read"),
    TaskCorruptedError("the changelog begins behind the local state"),
    TransactionAborted("the transaction was fenced"),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failure_of_a_worker_that_others_have_replaced_drops_its_tasks(
    plane: Plane, failure: StreamsError
) -> None:
    plane.given(1, ONE, standbys={TWO: False})
    plane.group.error = StaleMemberError("the worker is no longer me of 1")
    plane.fetcher.failure = failure  # type: ignore[attr-defined]
    plane._turn()
    assert (plane.tasks, plane.standbys.tasks, plane.suspended) == ({}, {}, True)
    plane.group.error = plane.fetcher.failure = None  # type: ignore[attr-defined]
    plane.given(3, ONE, standbys={TWO: False})
    assert plane.running == {ONE}
    assert plane.opened == [ONE, TWO, ONE, TWO]


def test_a_failure_while_tasks_are_opened_leaves_none_open_if_others_have_replaced_the_worker(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(partitions: Any) -> None:
        raise TaskCorruptedError("the group's position lies beyond the end")

    plane.group.error = StaleMemberError("the worker is no longer me of 1")
    with monkeypatch.context() as patch:
        patch.setattr(plane.fetcher, "committed", refuse)
        plane.given(1, ONE, TWO)
    assert (plane.tasks, plane.suspended) == ({}, True)


@pytest.mark.parametrize("answer", [None, BrokerError("the group does not answer")])
def test_a_failure_of_a_member_ends_the_worker(plane: Plane, answer: Exception | None) -> None:
    plane.given(1, ONE)
    plane.group.error = answer
    plane.fetcher.failure = BrokerError("in-0 cannot be read")  # type: ignore[attr-defined]
    with pytest.raises(BrokerError, match="in-0 cannot be read"):
        plane._turn()
    assert set(plane.tasks) == {ONE}


def test_a_failure_is_known_while_tasks_and_clients_are_still_closed(plane: Plane) -> None:
    """A close that hung kept the worker ready: the failure was told after the close, and no watchdog looked."""
    seen: list[tuple[Any, ...]] = []
    plane.ledger.open = lambda: (_ for _ in ()).throw(BrokerError("fenced"))  # type: ignore[attr-defined]
    plane.ledger.close = lambda: seen.append((plane.failure, plane.place()))  # type: ignore[attr-defined]
    with pytest.raises(BrokerError, match="fenced"):
        plane.run()
    failure, place = seen[0]
    assert str(failure) == "fenced"
    assert place.what == "the close of tasks and clients"
    assert place.can_hang
    assert plane.place() is None


def test_tasks_are_closed_if_the_listener_of_their_restore_raises(plane: Plane) -> None:
    plane.given(1, ONE, TWO)
    lives = list(plane.tasks.values())

    def raises(tasks: Any) -> None:
        raise StreamsError("on_restore_suspended raised")

    plane.restorer.drop = raises  # type: ignore[method-assign]
    with pytest.raises(StreamsError, match="on_restore_suspended"):
        plane.tasks.drop([ONE, TWO])
    assert sorted(plane.tasks.left) == [ONE, TWO]
    assert not any(live.running for live in lives)


def test_all_tasks_are_closed_if_the_close_of_one_raises(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.given(1, ONE, TWO)
    lives = list(plane.tasks.values())

    def raises() -> None:
        raise StreamsError("failed to close processor count")

    monkeypatch.setattr(lives[0].task, "close", raises)
    with pytest.raises(StreamsError, match="failed to close processor count"):
        plane.tasks.drop([ONE, TWO])
    assert not any(live.running for live in lives)
    assert plane.tasks.left.keys() == {TWO}


def test_the_watchdog_sees_functions_in_each_step_of_a_task(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start, the close, and the commit that waits for asynchronous steps had no place, so code that hung there kept
    the worker ready for ever."""
    seen: list[str] = []

    def look(*_: Any) -> Any:
        place = plane.place()
        assert place is not None
        assert place.can_hang
        seen.append(place.what)

    monkeypatch.setattr(task_session.Task, "init", look)
    plane.given(1, ONE)
    plane.tasks.asynchronous = [plane.tasks[ONE]]
    drained = iter([False, True])
    monkeypatch.setattr(task_session.Task, "drained", lambda *_: look() or next(drained))
    monkeypatch.setattr(task_session.Task, "process", look)
    turns = plane.turns
    plane._commit_to_the_end()
    assert plane.turns == turns + 1
    monkeypatch.setattr(task_session.Task, "close", look)
    plane.tasks.drop([ONE])
    plane.listeners.tell(look, TopicPartition("changelog", 0), "rows")
    assert seen == [
        "task 0_0: the start or the close of its processors",
        *["task 0_0: punctuation"] * 3,
        "task 0_0: the start or the close of its processors",
        f"{look.__qualname__} for the store rows",
    ]
    now = plane.place()
    assert now is not None
    assert (now.what, now.can_hang) == ("the thread that processes records", False)


def test_the_watchdog_names_the_work_for_which_brokers_have_to_answer(plane: Plane) -> None:
    """A worker whose first transaction got no answer said for five minutes that its thread had not come back."""
    seen: list[str] = []

    def look(*_: Any) -> None:
        place = plane.place()
        assert place is not None
        assert not place.can_hang
        seen.append(place.what)

    plane.ledger.open = look
    plane._committer.open()
    plane._turn()
    plane.ledger.commit = plane.ledger.roll_back = look
    plane.given(1, ONE)
    commit_of(plane, 1)
    plane._roll_back(TransactionAborted("no"))
    plane.fetcher.asks = True
    look()
    plane.fetcher.asks, plane.restorer.asks = False, True
    look()
    plane.ledger.waits_for_room, plane.tasks.current = True, plane.tasks[ONE]
    look()
    works = (
        "the first transaction",
        "a commit",
        "a rollback",
        "the look-up of committed offsets",
        "the look-up of the ends of changelogs",
        "room in the full queue of the producer",
    )
    assert seen == [f"{work}, for which brokers have to answer," for work in works]


def test_the_watchdog_names_a_method_of_a_listener_that_returns_meanwhile(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Iterator[str | None] = iter(["Noting.on_restore_start for the store rows", None])
    monkeypatch.setattr(ListenerCalls, "at", property(lambda _: next(looks)), raising=False)
    place = plane.place()
    assert place is not None
    assert (place.what, place.can_hang) == ("Noting.on_restore_start for the store rows", True)


def test_damage_that_shows_at_the_start_of_a_task_is_repaired(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair cut the assignment short: the worker owned its partitions and processed nothing."""
    damaged = [StateDamagedError("a block does not fit its checksum")]
    init = task_session.Task.init

    def init_damaged(task: Any) -> None:
        if damaged:
            raise damaged.pop()
        init(task)

    monkeypatch.setattr(task_session.Task, "init", init_damaged)
    plane.given(1, ONE, standbys={TWO: False})
    plane._turn()
    assert not plane.suspended
    assert plane.running == plane.fetcher.assigned == {ONE}  # type: ignore[attr-defined]
    assert set(plane.standbys.tasks) == {TWO}
    assert plane.opened == [ONE, TWO, ONE]


def test_damage_that_shows_at_the_close_of_a_task_ends_the_worker(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(*_: Any) -> None:
        raise StateDamagedError("a block does not fit its checksum")

    plane.given(1, ONE)
    monkeypatch.setattr(task_session.Task, "close", close)
    with pytest.raises(StateDamagedError):
        plane.given(3, TWO)


def test_a_transaction_is_ended_though_the_close_of_a_task_fails(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of the results waited until brokers ended the transaction of a worker whose disk was full."""

    def close(*_: Any) -> None:
        raise OSError("the disk is full")

    plane.given(1, ONE)
    monkeypatch.setattr(task_session.Task, "close", close)
    plane._close()
    assert plane.ledger.asked.count("close") == 2  # the ledger, which is the producer of results, too


def test_a_commit_covers_what_was_read_without_being_a_record_and_is_not_repeated(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.given(1, ONE, TWO)
    committed: list[dict[TopicPartition, int]] = []
    commit_of = plane._committer.commit

    def commit(tasks: Any, *arguments: Any) -> None:
        committed.append({tp: at for live in tasks for tp, (at, _) in live.commit_positions().items()})
        commit_of(tasks, *arguments)

    monkeypatch.setattr(plane._committer, "commit", commit)
    inputs = {id: plane.tasks[id].inputs[0] for id in (ONE, TWO)}
    plane.fetcher.arrived = {ONE: 3}  # type: ignore[attr-defined]
    plane._turn()
    plane.fetcher.read = {inputs[ONE]: 4, inputs[TWO]: 2}  # type: ignore[attr-defined]
    for _ in range(3):
        plane._commit()
    assert committed == [{inputs[ONE]: 4, inputs[TWO]: 2}]
    plane.fetcher.read[inputs[TWO]] = 9  # type: ignore[attr-defined]
    plane.tasks[TWO].task.enqueue(inputs[TWO], RecordBatch([b"k"], [b"v"], [1], [5]))
    plane._busy[plane.tasks[TWO]] = None
    plane._commit()  # the record in front of the marker was not processed
    assert len(committed) == 1
    plane._turn()
    plane._commit()
    assert committed[1:] == [{inputs[TWO]: 9}]


@pytest.mark.parametrize(("generation", "deleted"), [(2, {("app-x-repartition", 0, 5)}), (3, set())])
def test_processed_records_are_deleted_while_nothing_is_committed(
    plane: Plane, generation: int, deleted: set[tuple[str, int, int]]
) -> None:
    """After a break, the offsets may be those from before a move of the group or before a reset."""
    asked: list[tuple[str, int, int]] = []

    def delete_records(partitions: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        asked.extend((tp.topic, tp.partition, tp.offset) for tp in partitions)
        return {}

    admin = Anything()
    admin.delete_records = delete_records
    plane._committer._purge = Purge(admin, 0)  # type: ignore[arg-type]
    plane.given(1, ONE)
    plane._committer._purge.note({TopicPartition("app-x-repartition", 0): 5})
    plane.given(generation, ONE)
    plane._turn()
    assert plane.commits == 0
    assert set(asked) == deleted


def test_nothing_is_processed_while_paused(plane: Plane) -> None:
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 2}  # type: ignore[attr-defined]
    plane._turn()
    plane.pause()
    plane._turn()
    assert plane.commits == 1  # of what had been processed
    plane.fetcher.arrived = {ONE: 5}  # type: ignore[attr-defined]
    plane._turn()
    assert plane.processed == 2
    plane.given(2, ONE)  # a rebalance does not end it
    plane._turn()
    assert plane.processed == 2
    plane.resume()
    plane._turn()
    assert plane.processed == 7


@pytest.mark.parametrize("plane", [{"asynchronous": True}], indirect=True)
def test_what_does_not_come_out_of_a_step_in_time_is_begun_again(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane, "_DRAIN_SECONDS", 0.0)
    plane.given(1, ONE, TWO)
    before = plane.tasks[ONE]
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    assert before.task.pending == 1
    plane.revoked()
    assert plane.suspended
    assert plane.commits == 0
    assert "roll_back" in plane.ledger.asked
    assert plane.tasks[ONE] is not before
    assert plane.tasks[ONE].task.pending == 0


@pytest.mark.parametrize("plane", [{"asynchronous": True}], indirect=True)
def test_a_pause_holds_even_if_a_step_does_not_end_in_time(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane, "_DRAIN_SECONDS", 0.0)
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    plane.pause()
    plane._turn()
    assert plane.paused
    assert "roll_back" in plane.ledger.asked
    plane.fetcher.arrived = {ONE: 2}  # type: ignore[attr-defined]
    plane._turn()
    assert plane.tasks[ONE].task.pending == 0


@pytest.mark.parametrize("plane", [{"asynchronous": True}], indirect=True)
def test_a_due_commit_lets_steps_run_empty_first(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    task = plane.tasks[ONE].task
    task.commit_requested = True
    plane._turn()
    plane.fetcher.arrived = {ONE: 4}  # type: ignore[attr-defined]
    plane._turn()
    assert (task.pending, plane.commits) == (1, 0)  # no more are taken
    assert task.buffered == {TopicPartition("in", 0): 4}


@pytest.mark.parametrize("plane", [{"asynchronous": True}], indirect=True)
def test_punctuators_wait_for_a_commit_that_waits_for_steps(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka Streams, where one thread commits and punctuates. Records that a punctuator forwards into a step would
    keep it from running empty, and the commit would never come."""
    monkeypatch.setattr(dataplane, "_PUNCTUATE_SECONDS", -1.0)
    plane.given(1, ONE)
    task = plane.tasks[ONE].task
    called: list[int] = []
    task.schedule("p", 1, PunctuationType.WALL_CLOCK_TIME, called.append, 0)
    plane._turn()
    assert len(called) == 1
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    task.commit_requested = True
    plane._turn()  # the commit is due, and the step has a record
    before = len(called)
    monkeypatch.setattr(dataplane, "now_ms", lambda: called[-1] + 1_000)
    for _ in range(3):
        plane._turn()
    assert (task.pending, plane.commits, len(called)) == (1, 0, before)
    plane._draining = False
    plane._process()
    assert len(called) == before + 1


@pytest.mark.parametrize("plane", [{"behind": True}], indirect=True)
def test_a_due_commit_waits_for_the_rows_of_a_record_cache_in_steps(plane: Plane) -> None:
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    task = plane.tasks[ONE].task
    assert task.pending == 0
    task.commit_requested = True
    plane._turn()
    plane._turn()
    assert (task.pending, plane.commits) == (1, 0)


def test_a_stop_whose_last_commit_is_rolled_back_says_so(plane: Plane) -> None:
    def refuse(*_: Any) -> None:
        raise TransactionAborted("no broker answers")

    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 3}  # type: ignore[attr-defined]
    plane._turn()
    plane.ledger.commit = refuse
    stopped = plane.stop()
    with pytest.raises(StreamsError, match=r"the last commit failed \(no broker answers\).* processed again"):
        plane._turn()
    assert isinstance(stopped.exception(), StreamsError)


@pytest.mark.parametrize("runs", [False, True], ids=["without tasks", "with tasks that wait for records"])
def test_a_command_ends_the_wait_of_an_idle_turn(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(dataplane, "_IDLE_SECONDS", 3_600.0)
    woken = threading.Event()

    def poll(timeout: float) -> list[LiveTask]:
        woken.wait(timeout)
        woken.clear()
        return []

    monkeypatch.setattr(plane.fetcher, "poll", poll)
    monkeypatch.setattr(plane.fetcher, "wake", woken.set)
    plane.start()
    if runs:
        plane.assign(Member(1, "me"), [ONE], {}).result(60)
    for n in range(3):
        assert plane.call(lambda n=n: n).result(60) == n  # type: ignore[misc]
    plane.stop().result(60)
    plane.join(60)
    assert not plane.is_alive()


def test_reads_without_end_do_not_hold_up_records(plane: Plane) -> None:
    """A worker processed no record while clients asked for the newest entries again and again."""
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 3}  # type: ignore[attr-defined]
    reads = 0

    def read() -> None:
        nonlocal reads
        reads += 1
        if reads < 1_000:
            plane.call(read)

    before = plane.processed
    plane.call(read)
    plane.call(read)
    plane._turn()
    assert (reads, plane.processed - before) == (2, 3)
    plane._turn()
    assert reads == 4


@pytest.mark.parametrize("waits", [False, True])
def test_a_busy_task_does_not_delay_the_look_for_records_of_a_task_that_waits(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Records of the other side of a join had arrived, but ``max_task_idle_ms`` passed without a look."""
    plane.given(1, ONE, TWO)
    looks: list[float] = []
    poll = plane.fetcher.poll
    monkeypatch.setattr(plane.fetcher, "poll", lambda timeout: (looks.append(timeout), poll(timeout))[1])
    if waits:
        monkeypatch.setattr(plane.tasks[TWO].task, "process", lambda *_: 0)
    plane.fetcher.arrived = {ONE: 1_000_000, TWO: 1}  # type: ignore[attr-defined]
    monkeypatch.setattr(dataplane, "_TURN_SECONDS", 1e-9)
    for _ in range(4):
        plane._turn()
    assert len(looks) == (4 if waits else 1)


# ------------------------------------------------------------------ letters of global records


class Globals(Anything):
    """Global stores whose letters this worker has to write."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = GlobalLetters()
        self.full = False

    def fail(self, offset: int) -> None:
        self.waiting.take(
            TopicPartition("rates", 0), offset, OutputRecord("dead", None, b"%d" % offset, None)
        )

    def letters(self, tasks: Any) -> GlobalLetters | None:
        return self.waiting if ONE in tasks and self.waiting else None

    def presses(self, tasks: Any) -> bool:
        return self.full and ONE in tasks

    def letters_written(self) -> None:
        self.waiting.learn(self.waiting.positions)


@pytest.fixture
def global_stores(plane: Plane) -> Globals:
    stores = plane._global_stores = plane.tasks._global_stores = Globals()  # type: ignore[assignment]
    return stores


def commits_of(plane: Plane) -> list[tuple[dict[TopicPartition, int], list[bytes]]]:
    """The positions of each commit, and the values that were sent before the commit."""
    sent: list[bytes] = []
    commits: list[tuple[dict[TopicPartition, int], list[bytes]]] = []

    def commit(positions: Any, *_: Any) -> None:
        commits.append(({tp: at.offset for tp, at in positions.items()}, list(sent)))
        sent.clear()

    plane.ledger.send = lambda topic, key, value, *_: sent.append(value)
    plane.ledger.commit = commit
    return commits


def test_letters_are_committed_though_no_task_has_anything(plane: Plane, global_stores: Globals) -> None:
    plane.given(1, ONE)
    commits = commits_of(plane)
    global_stores.fail(7)
    plane._commit()
    plane._commit()
    assert commits == [({TopicPartition("rates", 0): 8}, [b"7"])]
    plane.given(3, TWO)
    global_stores.fail(9)
    plane._commit()  # another worker has the first task
    assert len(commits) == 1


def test_letters_are_written_while_tasks_are_restored_if_no_more_fit(
    plane: Plane, global_stores: Globals
) -> None:
    plane.restorer.behind = {ONE}  # type: ignore[attr-defined]
    commits = commits_of(plane)
    global_stores.fail(7)
    plane.given(1, ONE)
    assert commits == []
    global_stores.full = True
    plane._turn()
    assert commits == [({TopicPartition("rates", 0): 8}, [b"7"])]


def test_letters_that_are_rolled_back_are_written_again(plane: Plane, global_stores: Globals) -> None:
    plane.given(1, ONE)
    refuse_commits(plane, "no")
    global_stores.fail(7)
    commit_of(plane, 1)
    commits = commits_of(plane)
    commit_of(plane, 1)
    ((positions, sent),) = commits
    assert (positions[TopicPartition("rates", 0)], sent) == (8, [b"7"])
    assert "opened" in global_stores.asked


@pytest.mark.parametrize(
    ("failure", "smaller"),
    [
        (TransactionAborted("no answer within 60 s"), True),
        (ResultsRefused("brokers refused 1 result"), False),
        (StaleMemberError("the group has another member"), False),
    ],
)
def test_only_a_rollback_that_may_come_from_a_slow_commit_makes_commits_smaller(
    plane: Plane, failure: StreamsError, smaller: bool
) -> None:
    """Eight refused results made commits of one record each, for minutes."""
    plane.given(1, ONE)
    before = plane._pace.most_bytes
    plane._roll_back(failure)
    assert (plane._pace.most_bytes < before) is smaller


@pytest.mark.parametrize(
    ("anew", "says"),
    [
        (True, "was deleted and created anew .* `streamapp reset`"),
        (False, "was deleted .* create the topic before the next start"),
    ],
)
def test_a_deleted_input_ends_the_worker_without_a_commit(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, anew: bool, says: str
) -> None:
    """The worker went on at its offset in the new topic, and never read the records before; or it stayed ready although
    nothing could come."""
    plane.given(1, ONE)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    commits = plane.commits
    plane.lost_topic = LostTopic("in", anew)
    plane._last_look = 0.0
    with pytest.raises(TopologyError, match=f"the topic in {says}"):
        plane._turn()
    assert plane.commits == commits


def test_tasks_and_standbys_begin_again_with_other_inputs_after_a_commit(plane: Plane) -> None:
    plane.given(1, ONE, standbys={TWO: False})
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    plane.opened.clear()
    seen: list[tuple[int, list[TaskId]]] = []
    done = plane.change_inputs(lambda: seen.append((plane.commits, list(plane.opened))))
    plane._turn()
    assert done.result(0) is None
    assert seen == [(1, [])]
    assert plane.opened == [TWO, ONE]
    assert plane.running == {ONE}


@pytest.mark.parametrize("lost", [False, True], ids=["aborted", "lost"])
def test_inputs_change_also_if_the_commit_before_fails(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The commit fails because of a deleted input. With the earlier inputs, the tasks waited for this input."""
    plane.given(1, ONE, standbys={TWO: False})
    plane._turn()
    plane.opened.clear()

    def fails() -> None:
        raise StaleMemberError("others have the tasks") if lost else TransactionAborted("unknown topic")

    monkeypatch.setattr(plane, "_commit", fails)
    seen: list[list[TaskId]] = []
    done = plane.change_inputs(lambda: seen.append(list(plane.opened)))
    plane._turn()
    assert done.result(0) is None
    assert seen == ([] if lost else [[]])
    assert plane.opened == ([] if lost else [TWO, ONE])


def test_a_function_that_exits_ends_the_worker_with_the_place(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SystemExit(0)` of a function ended the worker with the exit code 0, and the log had no record."""
    plane.given(1, ONE)

    def exits(*_: Any) -> int:
        raise SystemExit(0)

    monkeypatch.setattr(plane.tasks[ONE].task, "process", exits)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    with pytest.raises(StreamsError, match=r"task 0_0: .* ended with SystemExit\(0\)"):
        plane.run()


def test_a_begin_is_committed_before_its_first_record(plane: Plane) -> None:
    plane.fetcher.to_commit = frozenset({TopicPartition("in", 0)})  # type: ignore[misc]
    plane.assign(Member(1, "m"), [TaskId(0, 0), TaskId(0, 1)], {})
    polled: list[int] = []
    plane.fetcher.poll = lambda timeout: polled.append(plane.commits) or []  # type: ignore[func-returns-value,method-assign]
    for _ in range(3):
        plane._turn()
    assert plane.commits == 1
    assert polled
    assert set(polled) == {1}


@pytest.mark.parametrize("plane", [{"asynchronous": True}], indirect=True)
def test_a_begin_waits_for_the_steps_of_other_tasks(plane: Plane) -> None:
    """The commit of the begin ended the worker: records of another task were under way."""
    plane.fetcher.to_commit = frozenset({TopicPartition("in", 1)})  # type: ignore[misc]
    plane.restorer.behind = {TWO}  # type: ignore[attr-defined]
    plane.given(1, ONE, TWO)
    plane.fetcher.arrived = {ONE: 1}  # type: ignore[attr-defined]
    plane._turn()
    plane.restorer.behind = set()  # type: ignore[attr-defined]
    plane.fetcher.arrived = {TWO: 1}  # type: ignore[attr-defined]
    plane._turn()
    one, two = (plane.tasks[id].task for id in (ONE, TWO))
    assert (one.pending, two.pending, plane.commits) == (1, 0, 0)
    assert plane.fetcher.arrived == {TWO: 1}  # type: ignore[attr-defined]
    one._async_steps.cancel()
    plane._turn()
    assert (plane.commits, two.pending) == (1, 1)


def test_no_offset_is_committed_before_a_restore_finds_rows_of_lost_offsets(plane: Plane) -> None:
    """A task without rows committed its begin. After the error about the rows of another task, the next start found an
    offset of the group, and went on with the rows."""
    plane.with_offsets = frozenset()
    inputs = frozenset(TopicPartition("in", number) for number in range(2))
    plane.fetcher.without_offset = plane.fetcher.to_commit = inputs  # type: ignore[assignment, misc]
    plane.restorer.behind = {TWO}  # type: ignore[attr-defined]
    plane.given(1, ONE, TWO)
    plane._turn()
    assert (plane.running, plane.commits) == (set(), 0)
    with pytest.raises(TopologyError, match="the table counts has rows, but the group app has no"):
        plane.tasks[TWO].restore("counts", RecordBatch([b"k"], [b"v"], [1], [0]))
    plane.restorer.behind = set()  # type: ignore[attr-defined]
    plane._turn()
    assert (plane.running, plane.commits) == ({ONE, TWO}, 1)


def test_a_begin_is_committed_while_the_worker_is_paused(plane: Plane) -> None:
    """A paused worker that was killed left out the records that had come since its start."""
    plane.fetcher.to_commit = frozenset({TopicPartition("in", 0)})  # type: ignore[misc]
    plane.pause()
    plane.given(1, ONE)
    plane._turn()
    assert (plane.paused, plane.commits) == (True, 1)
