"""``Retry.topics``: a failed record waits in internal topics, all others go on, and each record ends in one place."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    ConfigError,
    LongSerde,
    Retry,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    TopologyTestDriver,
    UnsupportedOperation,
)
from streamapp.desk.trial import try_record
from streamapp.engine.runner_ports import TaskEnvironment, TaskRules
from streamapp.engine.task import Task
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.run_order import check_runnable
from streamapp.state.backend import MemoryBackend

from .support import Sent, commit, task_of
from .test_parking import CONFIG, TEXT, Bench, Service, described

SECOND, MINUTE = 1_000, 60_000
RETRY = Retry.topics(SECOND, timedelta(minutes=1))


def test_a_record_waits_in_each_topic_and_all_others_go_on() -> None:
    bench = Bench(Service(bad=2), RETRY)
    bench.pipe("a:1", "b:bad", "b:2", "a:3")
    assert bench.out == ["a:1", "b:2", "a:3"]
    bench.wait(SECOND - 1)
    assert bench.out == ["a:1", "b:2", "a:3"]
    bench.wait(1)
    assert {each.operator: each.records for each in bench.driver.parked} == {
        "look-up-retry-1-delay": 0,
        "look-up-retry-2-delay": 1,
    }
    bench.wait(MINUTE)
    assert bench.out == ["a:1", "b:2", "a:3", "b:BAD"]
    assert bench.dead == []


def test_the_default_extractor_sees_no_record_that_waits() -> None:
    """The extractor knows the values of inputs. It raised for the records of retry topics, so the worker ended."""

    def first_letter(record: Any, partition_time: int) -> int:
        return ord(record.value[0])

    config = CONFIG.replace(default_timestamp_extractor=first_letter)
    bench = Bench(Service(bad=2), RETRY, config)
    bench.pipe("b:bad")
    bench.wait(SECOND)
    bench.wait(MINUTE)
    assert bench.out == ["b:BAD"]
    assert bench.driver.produced["out"][0].timestamp == ord("b")


def test_the_last_attempt_ends_with_a_letter_of_the_record_as_it_came() -> None:
    service = Service(bad=-1)
    bench = Bench(service, RETRY)
    bench.driver.pipe_raw("in", b"b", b"bad", 7, (("trace", b"1"),))
    bench.wait(SECOND)
    bench.wait(MINUTE)
    assert service.calls == ["bad"] * 3
    assert bench.dead == ["b:bad"]
    (letter,) = bench.driver.produced["dead"]
    said = dict(letter.headers)
    assert (said["__streams.errors.topic"], said["__streams.errors.offset"]) == (b"in", b"0")
    assert (said["__streamapp.errors.operator"], said["__streamapp.errors.attempt"]) == (b"look-up", b"3")
    assert (said["trace"], letter.timestamp) == (b"1", 7)
    assert bench.driver.drops == {("look-up", "dead_letter"): 1}


def test_a_driver_takes_input_while_many_records_wait_in_a_retry_topic() -> None:
    bench = Bench(Service(bad=-1), Retry.topics(MINUTE))
    bench.pipe(*["a:bad"] * 1_500, "b:1")
    assert bench.out == ["b:1"]
    (waiting,) = bench.driver.parked
    assert (waiting.records, waiting.closed) == (1_500, False)


def test_a_record_is_tried_as_itself() -> None:
    seen: list[tuple[str, int, int]] = []
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(Service(bad=1), on_error=RETRY)
    stream.to(
        lambda key, value, context: seen.append((context.topic, context.offset, context.timestamp)) or "out",
        value_serde=TEXT,
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"a", b"bad", 500, (("trace", b"1"),))
        driver.advance_wall_clock_time(SECOND)
        assert seen == [("in", 0, 500)]
        assert driver.produced["out"][0].headers == (("trace", b"1"),)
        assert driver.produced["out"][0].timestamp == 500


def test_a_service_that_is_down_uses_up_no_attempt() -> None:
    service = Service()
    bench = Bench(service, Retry.topics(SECOND))
    service.down = ConnectionError("no route")
    bench.pipe("a:1")
    for _ in range(5):
        bench.wait(SECOND)
    assert (bench.out, bench.dead) == ([], [])
    service.down = None
    bench.wait(SECOND)
    assert bench.out == ["a:1"]


def test_a_function_chooses() -> None:
    def choose(context: Any, error: Exception) -> Any:
        return "skip" if context.value == b"worse" else "retry"

    bench = Bench(Service(bad=1, worse=-1), Retry.topics(SECOND, choose=choose))
    bench.pipe("a:bad", "a:worse")
    bench.wait(SECOND)
    assert bench.out == ["a:BAD"]
    assert bench.driver.drops == {("look-up", "skipped"): 1}


def test_the_topics_are_internal_and_readable() -> None:
    bench = Bench(Service(bad=-1), RETRY)
    plan = bench.driver.plan
    assert [(topic.name, topic.kind) for topic in plan.internal_topics if topic.kind == "repartition"] == [
        ("app-look-up-retry-back", "repartition"),
        ("app-look-up-retry-1", "repartition"),
        ("app-look-up-retry-2", "repartition"),
    ]
    counts = plan.partition_counts({"in": 6})
    assert {counts[f"app-look-up-retry-{part}"] for part in ("back", "1", "2")} == {6}
    bench.pipe("b:bad")
    (record,) = bench.driver.produced["app-look-up-retry-1"]
    row = json.loads(record.value or b"")
    assert (record.key, row["error"], row["attempts"]) == (b"b", "ValueError: no bad", 1)


def test_each_delay_has_tasks_of_its_own_so_that_a_long_one_holds_up_no_other() -> None:
    service, retry = Service(bad=-1), Retry.topics(SECOND, MINUTE)
    plan = described(service, retry).build().plan()
    stages = {sub.source_topics: sub for sub in plan.subtopologies}
    sent, now = Sent(), 0
    environment = TaskEnvironment(plan, sent, wall_clock_ms=lambda: now)
    bench = Bench(service, retry)
    bench.pipe("b:bad")
    (record,) = bench.driver.produced["app-look-up-retry-1"]
    tasks = []
    for stage, count in ((2, 1_500), (1, 1)):
        topic = f"app-look-up-retry-{stage}"
        task = Task(environment, stages[topic,], 0, MemoryBackend())
        task.init()
        rows = [[record.key] * count, [record.value] * count, [0] * count, list(range(count))]
        task.enqueue(TopicPartition(topic, 0), RecordBatch(*rows, None))
        tasks.append(task)
    assert [task.process() for task in tasks] == [1_000, 1]  # the first one is full


def test_a_task_that_starts_again_finds_who_waits() -> None:
    service = Service(bad=-1)
    plan = described(service, Retry.topics(SECOND)).build().plan()
    bench = Bench(service, Retry.topics(SECOND))
    bench.pipe("b:bad")
    (record,) = bench.driver.produced["app-look-up-retry-1"]
    (stage,) = (sub for sub in plan.subtopologies if "app-look-up-retry-1" in sub.source_topics)
    backend, sent = MemoryBackend(), Sent()

    def start(now: int) -> Task:
        task = Task(TaskEnvironment(plan, sent, wall_clock_ms=lambda: now), stage, 0, backend)
        task.init()
        return task

    task = start(0)
    task.enqueue(
        TopicPartition("app-look-up-retry-1", 0), RecordBatch([record.key], [record.value], [0], [0], None)
    )
    task.process()
    commit(task)
    assert sent.to("app-look-up-retry-back") == []
    # The clock was set back: the record waits for its delay, and not until the old time comes again.
    again = start(-100 * SECOND)
    again.punctuate_wall_clock(-99 * SECOND - 1)
    assert sent.to("app-look-up-retry-back") == []
    again.clock_jumped(-SECOND)
    again.punctuate_wall_clock(-99 * SECOND)
    assert [record.partition for record in sent.records if record.topic == "app-look-up-retry-back"] == [0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12),
    st.lists(st.sampled_from([0, SECOND, MINUTE]), max_size=6),
)
def test_each_record_is_in_one_place(records: list[tuple[str, int]], waits: list[int]) -> None:
    """A value ends with the number of times for which it fails."""
    values = [f"{number}.{times}" for number, (_, times) in enumerate(records)]
    service = Service(**{value: int(value[-1]) for value in values})
    bench = Bench(service, RETRY)
    for (key, _), value in zip(records, values, strict=True):
        bench.pipe(f"{key}:{value}")
        if waits:
            bench.wait(waits.pop())
    for _ in range(3):
        bench.wait(MINUTE)
    ended = [shown.partition(":")[2] for shown in bench.out + bench.dead]
    assert sorted(ended) == sorted(values)
    assert all(shown.endswith(".3") for shown in bench.dead)
    assert not any(each.records for each in bench.driver.parked)


def test_several_operators_of_one_stream_have_topics_of_their_own() -> None:
    first, second = Service(bad=1), Service(BAD=1)
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    once = stream.map_values(first, on_error=RETRY, name="first")
    twice = once.map_values(second, on_error=Retry.topics(SECOND, value_serde=TEXT), name="second")
    twice.group_by_key(key_serde=TEXT, value_serde=TEXT).count(name="counted").to_stream().to(
        "out", key_serde=TEXT, value_serde=LongSerde()
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"a", b"bad", 0)
        driver.advance_wall_clock_time(SECOND)
        assert "out" not in driver.produced
        driver.advance_wall_clock_time(SECOND)
        assert len(driver.produced["out"]) == 1


def test_one_record_can_be_tried_without_topics() -> None:
    topology = described(Service(bad=-1), RETRY).build()
    with pytest.raises(StreamsError, match="no bad"):
        try_record(topology, CONFIG, "in", b"a", b"bad", 0, raises=True)
    (output,) = try_record(topology, CONFIG, "in", b"a", b"good", 0, raises=True).outputs
    assert output.value == b"GOOD"


def test_what_cannot_be_had_is_refused() -> None:
    with pytest.raises(
        UnsupportedOperation, match="look-up cannot run on Spark: its records wait in retry topics"
    ):
        check_runnable(described(Service(), RETRY).build().plan())
    with pytest.raises(UnsupportedOperation, match="Retry.by_key"):
        task_of(described(Service(), RETRY), config=CONFIG, rules=TaskRules(retries_at_once=True))
    with pytest.raises(ConfigError, match="needs a delay for each attempt"):
        Retry.topics()
    with pytest.raises(ConfigError, match="takes no backoff, max_records"):
        Retry.topics(SECOND, backoff=1, max_records=1)
    with pytest.raises(ConfigError, match="Set dead_letter_queue_topic"):
        described(Service(), RETRY, CONFIG.replace(dead_letter_queue_topic=None)).build().plan()
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(TopologyError, match="no serde for their values"):
        stream.map_values(len).map_values(str, on_error=RETRY)
    table = builder.table("rows", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(TopologyError, match="cannot have on_error=Retry"):
        table.map_values(str, on_error=RETRY)


# ------------------------------------------------------------------ look-ups


def joiner(service: Service) -> Any:
    return lambda value, row: f"{service(value)} {row}"


def with_table(builder: StreamsBuilder, stream: Any, service: Service, left: bool) -> Any:
    rows = builder.table("rows", key_serde=TEXT, value_serde=TEXT)
    join = stream.left_join if left else stream.join
    return join(rows, joiner(service), on_error=RETRY, name="look-up")


def with_global_table(builder: StreamsBuilder, stream: Any, service: Service, left: bool) -> Any:
    rows = builder.global_table("rows", key_serde=TEXT, value_serde=TEXT)
    join = stream.left_join if left else stream.join
    return join(rows, joiner(service), key_selector=lambda key, value: key, on_error=RETRY, name="look-up")


class LookUp(Bench):
    """The bench of `described`, around a join with the rows of a table."""

    def __init__(self, describe: Any, service: Service, left: bool = False) -> None:
        builder = StreamsBuilder(CONFIG)
        stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
        describe(builder, stream, service, left).to("out", key_serde=TEXT, value_serde=TEXT)
        self.driver = TopologyTestDriver(builder.build())
        self.input = self.driver.create_input_topic("in", TEXT, TEXT)


@pytest.mark.parametrize("describe", [with_table, with_global_table])
def test_a_look_up_that_fails_waits_and_sees_the_row_of_its_attempt(describe: Any) -> None:
    bench = LookUp(describe, Service(bad=1, worse=-1))
    for key in (b"a", b"b"):
        bench.driver.pipe_raw("rows", key, b"old", 0)
    bench.pipe("a:bad", "a:worse", "b:2")
    assert bench.out == ["b:2 old"]
    bench.driver.pipe_raw("rows", b"a", b"new", 1)
    bench.wait(SECOND)
    assert bench.out == ["b:2 old", "a:BAD new"]
    bench.wait(MINUTE)
    assert bench.dead == ["a:worse"]
    assert bench.driver.drops == {("look-up", "dead_letter"): 1}


@pytest.mark.parametrize("describe", [with_table, with_global_table])
@pytest.mark.parametrize("left", [False, True])
def test_a_row_that_is_gone_at_the_attempt_is_missing(describe: Any, left: bool) -> None:
    bench = LookUp(describe, Service(bad=1), left)
    bench.driver.pipe_raw("rows", b"a", b"row", 0)
    bench.pipe("a:bad")
    bench.driver.pipe_raw("rows", b"a", None, 1)
    bench.wait(SECOND)
    assert bench.out == (["a:BAD None"] if left else [])


def test_a_record_looks_up_in_the_partition_it_came_from() -> None:
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    with_table(builder, stream, Service(), left=False).to("out", key_serde=TEXT, value_serde=TEXT)
    plan = builder.build().plan()
    join = next(sub for sub in plan.subtopologies if "rows" in sub.source_topics)
    assert "app-look-up-retry-back" in join.source_topics
    counts = plan.partition_counts({"in": 3, "rows": 3})
    assert {counts[f"app-look-up-retry-{name}"] for name in ("1", "2", "back")} == {3}
