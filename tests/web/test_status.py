"""Health, status and topology: answered in every state, with rates, progress and what stands out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from streamapp.broker.removed_records import RemovedRange
from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus
from streamapp.engine.operator import ParkedStatus
from streamapp.operations.doctor.checks.worker_checks import idle_workers
from streamapp.operations.doctor.survey import Survey
from streamapp.operations.doctor.worker_reports import WorkerReport
from streamapp.records import TopicPartition
from streamapp.runners.worker.status import SPARE
from streamapp.web import sampler
from streamapp.web.caller import CALLER, Caller
from streamapp.web.diagnosis import Finding, findings
from streamapp.web.sampler import HISTORY_SECONDS, Sampler
from streamapp.web.status import StatusViews
from streamapp.web.view_source import InputStatus, RestoreStatus, StandbyStatus, TaskStatus, WorkerStatus

from .conftest import Serve
from .example import ExampleSource
from .fakes import FakeSource

BOOK = ConsumerStatus(
    "fleet-book",
    ("readings",),
    "running",
    None,
    ("readings-0",),
    ConsumerMetrics(taken=9, in_work=1, waiting=8),
    None,
    None,
    "readings-0 at 311",
    29.0,
    (),
)
"""A consumer that works on a record."""

STATES = ["starting", "rebalancing", "restoring", "running", "stopping", "failed"]


class Watched:
    """A source and its sampler on a clock that tests move."""

    def __init__(self, *tasks: TaskStatus, state: Any = "running") -> None:
        self.now = 1_000.0
        self.source = FakeSource()
        self.source.worker = WorkerStatus(
            state, None, "http://worker-1:6066", tasks, processed=_processed(tasks)
        )
        self.sampler = Sampler(self.source, clock=lambda: self.now)
        self.sampler.tick()

    def after(self, seconds: int, *tasks: TaskStatus) -> None:
        """Samples once a second; after the last one the tasks are as given."""
        for second in range(seconds):
            self.now += 1
            if second == seconds - 1 and tasks:
                self.source.worker = dataclasses.replace(
                    self.source.worker, tasks=tasks, processed=_processed(tasks)
                )
            self.sampler.tick()

    def found(self) -> list[Finding]:
        return findings(self.sampler, self.source.tables())


def _processed(tasks: Iterable[TaskStatus]) -> int:
    return sum(each.processed for each in tasks)


def task(*inputs: InputStatus, processed: int = 0, restoring: tuple[RestoreStatus, ...] = ()) -> TaskStatus:
    return TaskStatus("0_1", 1, "restoring" if restoring else "running", processed, inputs, restoring)


@pytest.mark.parametrize("state", STATES)
async def test_status_answers_in_every_state(serve: Serve, state: Any) -> None:
    source = FakeSource()
    source.worker = dataclasses.replace(source.worker, state=state, reason="broker down")
    client = await serve(source)
    assert (await client.get("/health/live")).status == 200
    ready = await client.get("/health/ready")
    assert ready.status == (200 if state == "running" else 503)
    assert (await ready.json())["ready"] is (state == "running")
    body = await (await client.get("/status")).json()
    assert (body["state"], body["reason"], body["application_id"]) == (state, "broker down", "flights")
    for path in ("/tables/", "/topology", "/"):
        assert (await client.get(path)).status == 200


def test_why_a_worker_is_stuck_is_the_first_finding() -> None:
    worker = Watched(task(), state="stuck")
    reason = "3 attempts in a row were rolled back; the last for this reason: no"
    worker.source.worker = dataclasses.replace(worker.source.worker, reason=reason)
    worker.after(1)
    first = worker.found()[0]
    assert (first.severity, first.subject) == ("error", "worker")
    assert reason in first.message


async def test_a_partition_without_a_leader_is_named_while_the_worker_goes_on(serve: Serve) -> None:
    watched, reason = Watched(task()), "task 0_1 waits for a leader of flights-1"
    watched.source.worker = dataclasses.replace(watched.source.worker, reason=reason)
    watched.after(1)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "partitions")
    assert reason in found.message
    answer = await (await serve(watched.source)).get("/health/ready")
    assert (answer.status, (await answer.json())["reason"]) == (200, reason)


async def test_not_ready_says_what_is_missing(serve: Serve) -> None:
    source = ExampleSource()
    source.restore(50)
    response = await (await serve(source)).get("/health/ready")
    body = await response.json()
    assert response.status == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert [each["partition"] for each in body["tasks"]] == [0, 1, 2]
    assert [each["ready"] for each in body["tasks"]] == [False] * 3
    assert body["tasks"][0]["reason"] == "restoring"
    assert body["tasks"][0]["restore"]["percent"] == 50.0


async def test_readiness_of_one_task(serve: Serve) -> None:
    source = FakeSource()
    restore = RestoreStatus("counts", "counts-changelog", 2, 0, 5, 10)
    source.worker = dataclasses.replace(
        source.worker, state="restoring", tasks=(task(), TaskStatus("0_2", 2, "restoring", 0, (), (restore,)))
    )
    client = await serve(source)
    assert (await client.get("/health/ready")).status == 503
    assert (await client.get("/health/ready?task=0_1")).status == 200
    response = await client.get("/health/ready?task=0_2")
    assert response.status == 503
    assert (await response.json())["restore"]["remaining"] == 5
    assert (await client.get("/health/ready?task=9_9")).status == 404


async def test_standbys_are_listed_with_their_lag(serve: Serve) -> None:
    source = FakeSource()
    copy = StandbyStatus("0_3", 3, True, (RestoreStatus("counts", "counts-changelog", 3, 0, 5, 12),))
    source.worker = dataclasses.replace(source.worker, standbys=(copy,))
    (standby,) = (await (await (await serve(source)).get("/status")).json())["standbys"]
    assert (standby["id"], standby["lag"], standby["warmup"]) == ("0_3", 7, True)


async def test_status_has_each_input_and_its_lag(serve: Serve) -> None:
    body = await (await (await serve(FakeSource())).get("/status")).json()
    (only,) = body["tasks"]
    assert only["inputs"] == [
        {
            "topic": "flights",
            "partition": 1,
            "position": 90,
            "end": 100,
            "buffered": 4,
            "behind_others": False,
            "lag": 10,
        }
    ]
    assert body["lag"] == 10


async def test_status_has_what_was_dropped_of_each_task_and_of_the_worker(serve: Serve) -> None:
    source = FakeSource()
    source.worker = dataclasses.replace(
        source.worker, dropped_records={"0_1": 3, "0_2": 2, "-1_-1": 1}, dropped_results=4
    )
    body = await (await (await serve(source)).get("/status")).json()
    assert ([task["dropped"] for task in body["tasks"]], body["dropped"]) == ([3], 10)


async def test_status_has_the_drops_of_global_tables_and_of_tasks_that_have_moved_away(serve: Serve) -> None:
    source = ExampleSource()
    drops = {
        ("0_0", "sum", "late"): 2,
        ("9_9", "sum", "late"): 3,
        ("-1_-1", "planes-source", "dead_letter"): 1,
    }
    source.worker = dataclasses.replace(source.worker, drops=drops)
    body = await (await (await serve(source)).get("/status")).json()
    assert body["drops"] == {"planes-source": {"dead_letter": 1}, "sum": {"late": 5}}
    assert [task["drops"] for task in body["tasks"] if task["id"] == "0_0"] == [{"sum": {"late": 2}}]


async def test_status_goes_through_the_drops_once_for_all_tasks() -> None:
    """Each of 300 tasks went through the drops of all tasks, so the event loop stood still for two seconds."""

    class Drops(dict[tuple[str, str, str], int]):
        readings = 0

        def items(self) -> Any:
            self.readings += 1
            return super().items()

    drops = Drops({(f"0_{number}", "sum", "late"): number for number in range(9)})
    watched = Watched(*(dataclasses.replace(task(), id=f"0_{number}") for number in range(9)))
    watched.source.worker = dataclasses.replace(watched.source.worker, drops=drops)
    CALLER.set(Caller())
    answer = await StatusViews(watched.source, watched.sampler).status(SimpleNamespace())  # type: ignore[arg-type]
    tasks = json.loads(answer.text or "")["tasks"]
    assert [each["drops"] for each in tasks] == [{}, *({"sum": {"late": count}} for count in range(1, 9))]
    assert drops.readings <= 2  # the answer, and its findings


async def test_status_knows_the_other_workers(serve: Serve) -> None:
    source = FakeSource()
    source.add_table(
        "t", "key_value", {}, owners={0: "http://b:1", 1: "http://a:1", 2: None, 3: "http://b:1"}
    )
    body = await (await (await serve(source)).get("/status")).json()
    assert body["workers"] == ["http://worker-1:6066", "http://a:1", "http://b:1"]


@pytest.mark.parametrize(("form", "start"), [("text", "Topologies:"), ("mermaid", "flowchart")])
async def test_topology_as_text(serve: Serve, form: str, start: str) -> None:
    response = await (await serve(FakeSource())).get(f"/topology?format={form}")
    assert (await response.text()).startswith(start)


async def test_topology_as_a_graph(serve: Serve) -> None:
    client = await serve(FakeSource())
    (sub,) = (await (await client.get("/topology")).json())["subtopologies"]
    assert [(node["name"], node["kind"], node["successors"]) for node in sub["nodes"]] == [
        ("SOURCE", "source", ["COUNT"]),
        ("COUNT", "processor", ["SINK"]),
        ("SINK", "sink", []),
    ]
    assert (await client.get("/topology?format=png")).status == 404


async def test_the_page_loads_nothing_from_elsewhere(serve: Serve) -> None:
    client = await serve(FakeSource())
    response = await client.get("/")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    page = await response.text()
    for path in ("/static/page.js", "/static/page.css", "/static/icon.svg"):
        assert path in page
        assert (await client.get(path)).status == 200
    assert "style=" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_throughput_is_the_growth_of_the_last_seconds() -> None:
    watched = Watched(task(processed=0))
    for second in range(1, 13):
        watched.after(1, task(processed=50 * second))
    assert watched.sampler.throughput() == 50.0
    assert watched.sampler.history() == [50] * 12


def test_a_task_that_leaves_takes_nothing_away() -> None:
    watched = Watched(task(processed=0))
    watched.after(1, task(processed=100))
    watched.source.worker = dataclasses.replace(watched.source.worker, tasks=(), processed=170)
    watched.after(1)
    watched.source.worker = dataclasses.replace(
        watched.source.worker, tasks=(task(processed=30),), processed=200
    )
    watched.after(1)
    assert watched.sampler.history() == [100, 70, 30]


async def test_records_of_tasks_that_have_moved_away_count(serve: Serve) -> None:
    """Also the last records of a task before its move, which no sample has seen."""
    source = FakeSource()
    source.worker = dataclasses.replace(source.worker, tasks=(), processed=1_234)
    client = await serve(source)
    assert (await (await client.get("/status")).json())["processed"] == 1_234
    metrics = await (await client.get("/metrics")).text()
    assert 'streamapp_records_processed_total{application="flights"} 1234' in metrics


@pytest.mark.parametrize("kind", ["input", "restore", "standby", "global", "agents"])
def test_a_position_does_not_stand_still_before_records_wait(kind: str) -> None:
    """The first record after a quiet hour seemed to wait since an hour."""

    def at(end: int) -> WorkerStatus:
        one, copy = InputStatus("in", 1, 5, end), RestoreStatus("counts", "counts-changelog", 1, 0, 5, end)
        worker = WorkerStatus("running", None, "http://worker-1:6066", (task(),))
        match kind:
            case "input":
                return dataclasses.replace(worker, tasks=(task(one),))
            case "restore":
                return dataclasses.replace(worker, tasks=(task(restoring=(copy,)),))
            case "standby":
                return dataclasses.replace(worker, standbys=(StandbyStatus("0_2", 2, False, (copy,)),))
            case "global":
                return dataclasses.replace(worker, global_inputs=(one,))
            case _:
                return dataclasses.replace(worker, agent_inputs=(one,))

    watched = Watched()
    watched.source.worker = at(end=5)
    watched.after(60)
    watched.source.worker = at(end=6)
    watched.after(9)
    assert watched.found() == []
    watched.after(3)
    assert len(watched.found()) == 1


@pytest.mark.parametrize("held", [{"paused": True}, {"state": "rebalancing"}])
def test_an_input_does_not_stand_still_while_the_worker_may_not_read_it(held: dict[str, Any]) -> None:
    watched = Watched(task(InputStatus("in", 1, 5, 9)))
    running = watched.source.worker
    watched.source.worker = dataclasses.replace(running, **held)
    watched.after(60)
    watched.source.worker = running
    watched.after(9)
    assert watched.found() == []
    watched.after(3)
    assert "has stood at offset 5" in watched.found()[0].message


def test_a_counter_that_begins_anew_gives_no_negative_rate() -> None:
    """After a rollback, a task is opened again under its id, and counts from 0."""

    def counted(processed: int, position: int) -> TaskStatus:
        return task(
            processed=processed,
            restoring=(RestoreStatus("counts", "counts-changelog", 1, 0, position, 9_000),),
        )

    watched = Watched(counted(0, 0))
    for second in range(1, 6):
        watched.after(1, counted(1_000 * second, 500 * second))
    watched.after(1, counted(10, 20))
    watched.after(1, counted(1_010, 520))
    (present,) = watched.source.worker.tasks
    (restore,) = present.restoring
    assert watched.sampler.throughput(present) == 6_000 / 7
    assert watched.sampler.restore_rate(restore) == 3_000 / 7


async def test_a_sample_that_fails_is_not_the_last_one(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status that was read while a task was closed ended all samples: every position stood still from then on."""
    source = FakeSource()
    status, calls = source.status, iter(range(1_000))

    def fails_once() -> WorkerStatus:
        if next(calls) == 0:
            raise RuntimeError("dictionary changed size during iteration")
        return status()

    monkeypatch.setattr(source, "status", fails_once)
    pause = asyncio.sleep
    monkeypatch.setattr(sampler.asyncio, "sleep", lambda _: pause(0))
    await serve(source)
    async with asyncio.timeout(60):
        while next(calls) < 10:
            await pause(0)
    assert "a sample of the worker's counters has failed" in caplog.text


def test_the_history_is_bounded() -> None:
    watched = Watched(task(processed=0))
    watched.after(3 * HISTORY_SECONDS)
    assert len(watched.sampler.history()) < HISTORY_SECONDS


async def test_restore_progress_has_rate_and_time_left(serve: Serve) -> None:
    restore = RestoreStatus("counts", "counts-changelog", 1, 1_000, 1_000, 5_000)
    watched = Watched(task(restoring=(restore,)), state="restoring")
    for second in range(1, 11):
        done = dataclasses.replace(restore, position=1_000 + 100 * second)
        watched.after(1, task(restoring=(done,)))
    response = await StatusViews(watched.source, watched.sampler).status(None)  # type: ignore[arg-type]
    body = json.loads(response.text or "")
    assert body["restore"] == {
        "stores": 1, "remaining": 3_000, "percent": 25.0, "records_per_second": 100.0, "seconds_left": 30,
    }  # fmt: skip
    assert body["tasks"][0]["restoring"][0]["seconds_left"] == 30


def test_nothing_stands_out_when_the_worker_keeps_up() -> None:
    watched = Watched(task(InputStatus("in", 1, 100, 100)))
    watched.after(60)
    assert watched.found() == []


def test_a_partition_that_stands_waits_for_the_empty_one() -> None:
    flights, weather = InputStatus("flights", 1, 10, 500, buffered=400), InputStatus("weather", 1, 7, 12)
    watched = Watched(task(flights, weather))
    watched.after(30)
    first, second = watched.found()
    assert "flights-1 has stood at offset 10 for 30 s; 490 records wait" in first.message
    assert "waits for weather-1" in first.hint
    assert (
        "Nothing arrives from the broker. The record at this offset may belong to an open transaction"
        in second.hint
    )


def test_partitions_whose_records_come_after_those_of_others_are_one_finding() -> None:
    watched = Watched()
    for second in range(31):
        behind = [InputStatus("in", number, 10, 500, behind_others=True) for number in (2, 1)]
        watched.after(1, task(*behind, processed=2_000 * second))
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("info", "in")
    assert found.message == "in (partition 1, 2) has had no turn for 30 s; 980 records wait."
    assert found.hint.startswith("Records of other partitions come first: the worker takes 2,000 records/s.")


@pytest.mark.parametrize(
    ("growth", "hint"),
    [
        (-10, "The lag of the worker shrinks: no action is needed."),
        (10, "The lag of the worker grows by 20 records/s"),
    ],
)
def test_a_partition_behind_others_says_if_the_lag_grows(growth: int, hint: str) -> None:
    """The hint was that no action is needed, also while the lag grew."""
    watched = Watched()
    for second in range(1, 70):
        busy = InputStatus("in", 0, 1_000, 10_000 + 2 * growth * second, buffered=9)
        watched.after(
            1, task(busy, InputStatus("in", 1, 10, 500, behind_others=True), processed=1_000 * second)
        )
    found = next(each for each in watched.found() if each.hint.startswith("Records of other partitions"))
    assert hint in found.hint
    assert (found.severity == "warning") == (growth > 0)


def test_records_that_were_gone_before_they_were_read() -> None:
    """Only a line in the log told that records were missing."""
    watched = Watched(task())
    gone = {TopicPartition("flights-in", 3): RemovedRange(1_020, 1_000, 1_019)}
    watched.source.worker = dataclasses.replace(watched.source.worker, removed_records=gone)
    watched.after(1)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "flights-in-3")
    assert found.message == (
        "Records of flights-in-3 were gone before the worker could read them: offsets 1,000 to 1,019. In all, "
        "1,020 offsets are missing since the start."
    )
    assert "Give flights-in a longer retention" in found.hint


def test_a_record_that_takes_long() -> None:
    watched = Watched(task(InputStatus("in", 1, 10, 500, buffered=400)))
    watched.after(30)
    (found,) = watched.found()
    assert "one record takes long" in found.hint


def test_a_partition_that_falls_behind() -> None:
    watched = Watched(task(InputStatus("in", 1, 0, 5_000), processed=0))
    for second in range(1, 70):
        watched.after(
            1, task(InputStatus("in", 1, 100 * second, 5_000 + 150 * second), processed=100 * second)
        )
        assert bool(watched.found()) == (second >= 60)  # a worker that has just begun catches up
    (found,) = watched.found()
    assert "50 more each second" in found.message
    assert "100 records/s" in found.hint


def test_partitions_that_fall_behind_together_are_one_finding() -> None:
    def at(second: int) -> list[TaskStatus]:
        lagging = [InputStatus("in", number, 0, 5_000 + 20 * second) for number in (0, 1)]
        moving = [dataclasses.replace(each, position=second) for each in lagging]
        return [
            TaskStatus(f"0_{each.partition}", each.partition, "running", 10 * second, (each,), ())
            for each in moving
        ]

    watched = Watched(*at(0))
    for second in range(1, 70):
        watched.after(1, *at(second))
    (found,) = watched.found()
    assert found.subject == "in"
    assert "12,622 records wait, 38 more each second (partition 0, 1)" in found.message
    assert "Task 0_0, 0_1: 20 records/s" in found.hint


@pytest.mark.parametrize("growth", [-50, 50])
def test_agents_and_consumers_that_fall_behind(growth: int) -> None:
    """The worker had no finding, however many records waited for its agents and consumers."""
    watched = Watched(task())
    for second in range(1, 70):
        lag = 10_000 + growth * second
        agents = InputStatus("orders", 2, second, second + lag)
        consumer = dataclasses.replace(BOOK, lag={"readings-0": lag, "readings-1": 7})
        watched.source.worker = dataclasses.replace(
            watched.source.worker, agent_inputs=(agents,), consumers=(consumer,)
        )
        watched.after(1)
        assert bool(watched.found()) == (growth > 0 and second > 60)
    if growth > 0:
        assert [(found.subject, found.message) for found in watched.found()] == [
            (
                "orders",
                "Agents fall behind in orders: 13,450 records wait, 50 more each second (partition 2).",
            ),
            ("fleet-book", "fleet-book falls behind: 13,457 records wait, 50 more each second."),
        ]


def test_partitions_that_a_consumer_takes_over_are_no_growth() -> None:
    watched = Watched(task())
    for second in range(1, 70):
        lag = {"readings-0": 5_000} | ({"readings-1": 5_000} if second > 30 else {})
        consumer = dataclasses.replace(BOOK, lag=lag)
        watched.source.worker = dataclasses.replace(watched.source.worker, consumers=(consumer,))
        watched.after(1)
    assert watched.found() == []


def test_a_restore_that_stands() -> None:
    watched = Watched(task(restoring=(RestoreStatus("s", "s-changelog", 1, 0, 5, 10),)), state="restoring")
    watched.after(20)
    assert [found.severity for found in watched.found()] == ["warning", "info"]
    assert "stood at offset 5 of 10 for 20 s" in watched.found()[0].message


def test_a_copy_that_stands() -> None:
    """A copy that stood still was seen by nobody: it belongs to no task of this worker."""
    watched = Watched()
    copy = StandbyStatus("0_3", 3, False, (RestoreStatus("counts", "counts-changelog", 3, 0, 5, 12),))
    watched.source.worker = dataclasses.replace(watched.source.worker, standbys=(copy,))
    watched.after(5)
    assert watched.found() == []
    watched.after(15)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "counts 3")
    assert "The copy of counts, partition 3, has stood at offset 5 of 12 for" in found.message
    done = dataclasses.replace(copy, stores=(dataclasses.replace(copy.stores[0], position=12),))
    watched.source.worker = dataclasses.replace(watched.source.worker, standbys=(done,))
    watched.after(60)
    assert watched.found() == []


@pytest.mark.parametrize("state", ["starting", "running", "stuck"])
async def test_a_global_topic_that_stands(serve: Serve, state: Any) -> None:
    watched = Watched(task(), state=state)
    rates = InputStatus("rates", 2, 4, 100)
    watched.source.worker = dataclasses.replace(watched.source.worker, global_inputs=(rates,))
    watched.after(21)
    found = next(each for each in watched.found() if each.subject == "rates")
    assert "The global topic rates-2 has stood at offset 4 for 20 s; 96 records wait." in found.message
    assert "partition 2 of rates" in found.hint
    body = await (await (await serve(watched.source)).get("/status")).json()
    assert body["global_inputs"] == [
        {
            "topic": "rates",
            "partition": 2,
            "position": 4,
            "end": 100,
            "buffered": 0,
            "behind_others": False,
            "lag": 96,
        }
    ]
    done = dataclasses.replace(rates, position=100)
    watched.source.worker = dataclasses.replace(watched.source.worker, global_inputs=(done,))
    watched.after(60)
    assert [each for each in watched.found() if each.subject == "rates"] == []


async def test_agents_that_wait_for_another_version(serve: Serve) -> None:
    """The worker was ready, and neither its findings nor its log said that its agents idled."""
    watched = Watched()
    watched.source.worker = dataclasses.replace(
        watched.source.worker, agents_wait_for="http://leader:6066", has_tasks=False
    )
    watched.after(1)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "agents")
    assert "The worker at http://leader:6066 leads the group" in found.message
    assert "an App with an id of its own" in found.hint
    client = await serve(watched.source)
    answer = await client.get("/health/ready")
    assert (
        answer.status == 200
    )  # a rolling update would wait for this worker, which waits for the end of the old ones
    assert (await answer.json())["reason"] == found.message


async def test_topics_that_do_not_exist() -> None:
    """The worker read nothing, and found nothing."""
    watched = Watched()
    watched.source.worker = dataclasses.replace(
        watched.source.worker, missing_topics=("orders",), has_tasks=False
    )
    watched.after(5)
    assert watched.found() == []  # brokers tell a new topic a moment later
    watched.after(16)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "orders")
    assert found.message == "This worker reads the topic orders, which brokers do not have."
    assert "streamapp topic create orders" in found.hint


async def test_agents_that_stand(serve: Serve) -> None:
    """An agent waited for ever. The worker was ready, found nothing, and showed no lag."""
    watched = Watched(task())
    letters = InputStatus("letters", 1, 4, 100, buffered=3)
    watched.source.worker = dataclasses.replace(watched.source.worker, agent_inputs=(letters,))
    watched.after(5)
    assert watched.found() == []
    watched.after(16)
    (found,) = watched.found()
    assert (found.severity, found.subject) == ("warning", "letters-1")
    assert found.message == "Agents have stood at offset 4 of letters-1 for 20 s; 96 records wait."
    assert "has not finished it" in found.hint
    client = await serve(watched.source)
    (shown,) = (await (await client.get("/status")).json())["agent_inputs"]
    assert (shown["position"], shown["buffered"], shown["lag"]) == (4, 3, 96)
    metrics = await (await client.get("/metrics")).text()
    assert 'agent_lag{application="flights",topic="letters",partition="1"} 96' in metrics
    status = StatusViews(watched.source, watched.sampler)
    CALLER.set(Caller())
    answer = json.loads((await status.ready(SimpleNamespace(query={}))).text or "")  # type: ignore[arg-type]
    assert (answer["ready"], answer["reason"]) == (True, found.message)
    fetched = dataclasses.replace(letters, buffered=0)
    watched.source.worker = dataclasses.replace(watched.source.worker, agent_inputs=(fetched,))
    watched.after(1)
    assert "No agent has the record" in watched.found()[0].hint
    done = dataclasses.replace(letters, position=100, buffered=0)
    watched.source.worker = dataclasses.replace(watched.source.worker, agent_inputs=(done,))
    watched.after(60)
    assert watched.found() == []


async def test_consumers_that_take_no_record(serve: Serve) -> None:
    """A database of a consumer stood still. The worker was ready, and found nothing."""
    watched = Watched(task())

    async def said(status: ConsumerStatus) -> tuple[list[Finding], str | None]:
        watched.source.worker = dataclasses.replace(watched.source.worker, consumers=(status,))
        watched.after(1)
        answer = await StatusViews(watched.source, watched.sampler).ready(SimpleNamespace(query={}))  # type: ignore[arg-type]
        return watched.found(), json.loads(answer.text or "")["reason"]

    CALLER.set(Caller())
    assert await said(BOOK) == ([], None)
    (found,), reason = await said(dataclasses.replace(BOOK, oldest_seconds=30.0))
    assert (found.severity, found.subject) == ("warning", "fleet-book")
    assert found.message == (
        "A call of fleet-book has not returned for 30 s: readings-0 at 311; 8 records wait in memory."
    )
    assert reason == found.message
    (found,), reason = await said(dataclasses.replace(BOOK, circuit="OperationalError: no database"))
    assert found.subject == "fleet-book"
    assert found.message == (
        "fleet-book takes no record: a service that it calls fails (OperationalError: no database)."
    )
    assert "8 records wait in memory" in found.hint
    assert reason == "fleet-book takes no record: a service fails (OperationalError: no database)"


def test_a_long_rebalance_a_failure_an_idle_worker_and_a_missing_owner() -> None:
    watched = Watched(state="rebalancing")
    assert watched.found() == []
    watched.after(60)
    assert "rebalancing for 60 s" in watched.found()[0].message
    assert "The group waits for each member" in watched.found()[0].hint
    watched.source.worker = WorkerStatus("failed", "TopologyError: no topic", "http://worker-1:6066")
    watched.after(1)
    assert watched.found()[0].severity == "error"
    assert "no topic" in watched.found()[0].message
    watched.source.worker = WorkerStatus("running", None, "http://worker-1:6066")
    watched.source.add_table("t", "key_value", {}, owners={0: None})
    watched.after(1)
    assert [found.subject for found in watched.found()] == ["t", "worker"]


OTHER_VERSION = (
    "The worker has no task: the leader of the group runs another version, which also reads orders, refunds."
)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, [SPARE]),
        ({"has_tasks": False}, []),  # global tables only
        ({"standbys": (StandbyStatus("0_1", 1, False),)}, []),
        ({"tasks": (task(),)}, []),
        ({"unread": {"refunds", "orders"}}, [OTHER_VERSION]),
    ],
)
async def test_page_and_doctor_agree_on_a_worker_without_a_task(
    serve: Serve, status: dict[str, Any], said: list[str]
) -> None:
    source = FakeSource()
    source.worker = WorkerStatus("running", None, "http://worker-1:6066", **status)
    client = await serve(source)
    body = await (await client.get("/status")).json()
    survey = Survey(Mock(), reports=[WorkerReport("http://worker-1:6066", body)])
    assert [finding["message"] for finding in body["findings"]] == said
    assert [found for _, found in idle_workers(survey)] == [each for each in said if each == SPARE]


@pytest.mark.parametrize(("dropped", "severity"), [(1_000, "warning"), (100, "warning"), (99, "info")])
def test_dropped_records_are_found_with_their_share(dropped: int, severity: str) -> None:
    watch = Watched(task(processed=10_000))
    watch.source.worker = dataclasses.replace(
        watch.source.worker, lost_records={"0_0": dropped - 1, "0_1": 1, "0_2": 0}
    )
    watch.sampler.tick()
    (finding,) = watch.found()
    assert (finding.severity, finding.subject) == (severity, "records")
    assert f"{dropped:,} records were dropped" in finding.message
    assert f"{dropped / 100:.1f} %" in finding.message
    assert f"0_0: {dropped - 1:,}, 0_1: 1)" in finding.message


def test_outdated_answers_of_a_foreign_key_join_are_no_dropped_records() -> None:
    """A worker that lost nothing warned that it had dropped a tenth of its records."""
    watch = Watched(task(processed=10_000))
    drops = {("0_1", "join", "superseded"): 900}
    watch.source.worker = dataclasses.replace(watch.source.worker, dropped_records={"0_1": 900}, drops=drops)
    watch.sampler.tick()
    assert watch.found() == []
    drops |= {("0_1", "sum", "late"): 5, ("0_1", "sum", "null_key"): 1}
    watch.source.worker = dataclasses.replace(
        watch.source.worker, dropped_records={"0_1": 906}, drops=drops, lost_records={"0_1": 6}
    )
    watch.sampler.tick()
    (finding,) = watch.found()
    assert "6 records were dropped since the worker started, 0.1 % of all its records" in finding.message
    assert "Most drops by operator and reason: sum (late) 5, sum (null_key) 1." in finding.hint


def test_the_share_of_dropped_records_counts_a_record_once() -> None:
    """A record that two operators drop counted twice, so all records of a worker seemed to be dropped."""
    watch = Watched(task(processed=10))
    drops = {("0_1", "by day", "late"): 5, ("0_1", "by hour", "late"): 5}
    watch.source.worker = dataclasses.replace(
        watch.source.worker, dropped_records={"0_1": 10}, drops=drops, lost_records={"0_1": 5}
    )
    watch.sampler.tick()
    (finding,) = watch.found()
    assert "5 records were dropped since the worker started, 50.0 % of all its records" in finding.message


def test_dropped_results_are_found() -> None:
    watch = Watched(task(processed=10))
    watch.source.worker = dataclasses.replace(watch.source.worker, dropped_results=3)
    watch.sampler.tick()
    (finding,) = watch.found()
    assert finding.severity == "warning"
    assert "3 results were dropped" in finding.message


async def ready_reason(watched: Watched) -> tuple[int, str | None]:
    """The HTTP status and the reason of ``/health/ready``."""
    CALLER.set(Caller())
    views = StatusViews(watched.source, watched.sampler)
    response = await views.ready(SimpleNamespace(query={}))  # type: ignore[arg-type]
    return response.status, json.loads(response.text or "")["reason"]


async def test_a_ready_worker_names_an_input_of_which_nothing_arrives() -> None:
    """An open transaction hid all records of the inputs, and the worker was ready for minutes without a reason."""
    watched = Watched(task(InputStatus("in", 1, 10, 500)))
    assert await ready_reason(watched) == (200, None)
    watched.after(30, task(InputStatus("in", 1, 10, 500)))
    assert await ready_reason(watched) == (
        200,
        "in-1 has stood at offset 10 for 30 s; 490 records wait.",
    )
    watched.after(1, task(InputStatus("in", 1, 10, 500, behind_others=True), processed=9))
    assert await ready_reason(watched) == (200, None)  # records of other partitions come first


async def test_a_restoring_worker_names_a_restore_that_stands() -> None:
    """An open transaction in a changelog held the restore up, and the worker was not ready without a reason."""
    restore = RestoreStatus("counts", "counts-changelog", 1, 0, 12, 13)
    watched = Watched(task(restoring=(restore,)), state="restoring")
    assert await ready_reason(watched) == (503, None)
    watched.after(20)
    stands = "The restore of counts has stood at offset 12 of 13 for 20 s."
    assert await ready_reason(watched) == (503, stands)


async def test_a_ready_worker_says_that_it_waits_for_a_service(serve: Serve) -> None:
    source = FakeSource()
    task = dataclasses.replace(source.worker.tasks[0], state="running", restoring=())
    parked = ParkedStatus("look-up", 1, 5, 500, None, True, "ConnectionError: the service is down", 1)
    source.worker = dataclasses.replace(
        source.worker, state="running", tasks=(dataclasses.replace(task, parked=(parked,)),)
    )
    client = await serve(source)
    response = await client.get("/health/ready")
    said = "takes no record: a service fails (ConnectionError: the service is down)"
    assert response.status == 200
    assert (await response.json())["reason"] == f"look-up of task {task.id} {said}"
    source.worker = dataclasses.replace(source.worker, tasks=(task,))
    assert (await (await client.get("/health/ready")).json())["reason"] is None
