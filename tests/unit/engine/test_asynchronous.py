"""Asynchronous steps: order, bounds, time-outs, failures, commits; with a loop that the test holds in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp import (
    Backoff,
    Materialized,
    Retry,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.engine.runner_ports import TaskEnvironment
from streamapp.engine.task import Task
from streamapp.errors import ConfigError, StreamsError, TopologyError, UnsupportedOperation
from streamapp.records import RecordBatch, TopicPartition
from streamapp.state.backend import MemoryBackend

TEXT = StringSerde()
IN = TopicPartition("in", 0)


class Sent:
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def send(self, topic: str, key: Any, value: Any, timestamp: Any, headers: Any, partition: Any) -> None:
        if topic == "out":
            self.records.append((key, value, timestamp, headers))

    def partition_count(self, topic: str) -> int:
        return 1

    @property
    def values(self) -> list[str]:
        return [value.decode() for _, value, _, _ in self.records]


class Bench:
    """One task with an asynchronous step. Calls start at once and end when the test says so, by value."""

    def __init__(self, describe: Callable[[Any, Any], Any], config: StreamsConfig | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.gates: dict[str, asyncio.Event] = {}
        self.running = self.most = 0
        self.sent = Sent()
        builder = StreamsBuilder()
        describe(builder.stream("in", key_serde=TEXT, value_serde=TEXT), self.call)
        plan = builder.build().plan(config or StreamsConfig("test"))
        environment = TaskEnvironment(plan, self.sent, wall_clock_ms=lambda: 0, run_async=self.run_async)
        self.task = Task(environment, plan.subtopologies[0], 0, MemoryBackend())
        self.task.init()
        self.offset = 0

    def run_async(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        future: Future[None] = Future()
        task = self.loop.create_task(coroutine)
        future.add_done_callback(lambda ended: task.cancel() if ended.cancelled() else None)
        for _ in range(2):
            self.turn()
        return future

    async def call(self, value: str) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gates.setdefault(value, asyncio.Event()).wait()
        finally:
            self.running -= 1
        if value.startswith("bad"):
            raise ValueError(f"cannot look up {value}")
        if value.startswith("cancelled"):
            other = asyncio.ensure_future(asyncio.sleep(60))
            other.cancel()
            await other
        if value.startswith("exit"):
            raise SystemExit(3)
        return value.upper()

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def feed(self, *records: str) -> None:
        """Records as "key:value"; timestamps are offsets."""
        keys, values = zip(*(record.split(":") for record in records), strict=True)
        offsets = list(range(self.offset, self.offset + len(records)))
        self.offset += len(records)
        self.task.enqueue(
            IN,
            RecordBatch(
                [k.encode() or None for k in keys],
                [v.encode() for v in values],
                offsets,
                offsets,
                [(("n", str(n).encode()),) for n in offsets],
            ),
        )

    def end(self, *values: str) -> list[str]:
        """Lets these calls end, in this order; what has come out by then."""
        for value in values:
            self.gates.setdefault(value, asyncio.Event()).set()
            for _ in range(2):  # what comes out may let others begin, whose calls may end at once
                for _ in range(4):
                    self.turn()
                self.task.process(0)
        return self.sent.values

    def finish(self) -> None:
        """Until every call has ended, by itself."""
        while self.task.pending:
            self.turn()
            self.task.process(0)

    def close(self) -> None:
        self.task.close()
        under_way = asyncio.all_tasks(self.loop)
        if under_way:
            self.loop.run_until_complete(asyncio.wait(under_way))
        self.loop.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def bench(config: StreamsConfig | None = None, **options: Any) -> Bench:
        made = Bench(
            lambda stream, call: stream.map_values_async(call, **options).to("out", value_serde=TEXT), config
        )
        benches.append(made)
        return made

    yield bench
    for each in benches:
        each.close()


def test_order_of_the_partition(make: Callable[..., Bench]) -> None:
    bench = make(order="partition")
    bench.feed("a:1", "b:2", "c:3")
    assert bench.task.process() == 3
    assert bench.end("3", "2") == []
    assert bench.end("1") == ["1", "2", "3"]


def test_order_of_each_key(make: Callable[..., Bench]) -> None:
    bench = make(order="key")
    bench.feed("a:1", "b:2", "a:3", "c:4", ":5", ":6")
    bench.task.process()
    assert bench.end("3", "6") == []
    assert bench.end("4", "2", "1") == ["4", "2", "1", "3"]
    assert bench.end("5") == ["4", "2", "1", "3", "5", "6"]


def test_records_keep_their_timestamp_and_headers(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.feed("a:x", "b:y")
    bench.task.process()
    bench.end("y", "x")
    assert bench.sent.records == [
        (b"b", b"Y", 1, (("n", b"1"),)),
        (b"a", b"X", 0, (("n", b"0"),)),
    ]


def test_only_so_many_are_under_way_and_the_rest_waits_in_the_queue(make: Callable[..., Bench]) -> None:
    bench = make(concurrency=2)
    bench.feed("a:1", "b:2", "c:3", "d:4")
    assert bench.task.process() == 2
    assert bench.task.process() == 0
    assert (bench.task.pending, bench.task.buffered) == (2, {IN: 2})
    bench.end("2")
    assert bench.task.process() == 1
    bench.end("1", "3")
    bench.task.process()
    assert bench.end("4") == ["2", "1", "3", "4"]
    assert (bench.task.pending, bench.most) == (0, 2)


def test_a_record_that_becomes_many_does_not_exceed_the_concurrency() -> None:
    bench = Bench(
        lambda stream, call: (
            stream.flat_map_values(lambda value: list(value))
            .map_values_async(call, concurrency=2)
            .to("out", value_serde=TEXT)
        )
    )
    bench.feed("a:wxyz")
    bench.task.process()
    assert bench.task.pending == 4
    assert bench.end("z", "y", "x", "w") == ["W", "X", "Y", "Z"]
    assert bench.most == 2
    bench.close()


def test_a_commit_waits_until_everything_has_come_out(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.feed("a:1", "b:2")
    bench.task.process()
    bench.end("2")
    with pytest.raises(StreamsError, match="1 record is under way"):
        bench.task.flush()
    bench.end("1")
    bench.task.flush()
    assert bench.task.positions == {IN: 2}


def test_a_commit_waits_for_rows_that_a_record_cache_hands_to_a_step() -> None:
    """The cache gives its rows at the commit. A commit before their results come out would lose the results."""

    def describe(stream: Any, call: Any) -> None:
        rows = stream.group_by_key(key_serde=TEXT, value_serde=TEXT).reduce(
            lambda old, new: new, materialized=Materialized("rows", key_serde=TEXT, value_serde=TEXT)
        )
        rows.to_stream().map_values_async(call).to("out", value_serde=TEXT)

    bench = Bench(describe, StreamsConfig("test", statestore_cache_max_bytes=1_000_000))
    with closing(bench):
        bench.feed("a:1", "a:2")
        bench.task.process()
        assert bench.task.pending == 0
        assert not bench.task.drained()
        assert bench.task.pending == 1
        with pytest.raises(StreamsError, match="1 record is under way"):
            bench.task.flush()
        assert bench.end("2") == ["2"]
        assert bench.task.drained()
        bench.task.flush()


def test_a_commit_in_the_driver_waits_for_steps_behind_a_cache_and_behind_a_retry() -> None:
    attempts = []

    def twice(value: str) -> str:
        attempts.append(value)
        if len(attempts) == 1:
            raise ValueError(value)
        return value

    async def shout(value: str) -> str:
        await asyncio.sleep(0.001)
        return value.upper()

    config = StreamsConfig("test", statestore_cache_max_bytes=1_000_000)
    builder = StreamsBuilder(config)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    retried = stream.map_values(twice, on_error=Retry.by_key(backoff=Backoff(10, jitter=0), then="skip"))
    retried.map_values_async(shout).to("out", value_serde=TEXT)
    rows = builder.table("rows", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("rows"))
    rows.to_stream().map_values_async(shout).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.pipe_raw("rows", b"k", b"row", 0)
        driver.pipe_raw("in", b"k", b"late", 0)
        driver.advance_wall_clock_time(10)
        assert [record.value for record in driver.produced["out"]] == [b"ROW", b"LATE"]


def test_a_failed_call_names_the_step_and_the_record(make: Callable[..., Bench]) -> None:
    bench = make(name="look-up")
    bench.feed("a:1", "b:bad", "c:3")
    bench.task.process()
    with pytest.raises(StreamsError, match=r"look-up .*in-0 at offset 1 failed: ValueError: cannot look up"):
        bench.end("3", "1", "bad")


def test_a_failed_call_goes_to_the_dead_letters_and_the_others_on(make: Callable[..., Bench]) -> None:
    config = StreamsConfig("test", processing_exception_handler="continue", dead_letter_queue_topic="out")
    bench = make(config, order="partition")
    bench.feed("a:bad", "b:2")
    bench.task.process()
    assert bench.end("2", "bad") == ["bad", "2"]  # as it came in, and the other's result
    assert bench.task.metrics.dropped_records == 1
    assert ("__streams.errors.offset", b"0") in bench.sent.records[0][3]


def test_a_call_that_waits_for_something_cancelled_has_failed(make: Callable[..., Bench]) -> None:
    """The record stayed in the step for ever, and no later record could be committed."""
    bench = make(name="look-up")
    bench.feed("a:1", "b:cancelled")
    bench.task.process()
    with pytest.raises(
        StreamsError, match=r"look-up .*in-0 at offset 1 failed: .*CancelledError, but nobody has"
    ):
        bench.end("1", "cancelled")
    config = StreamsConfig("test", processing_exception_handler="continue", dead_letter_queue_topic="out")
    bench = make(config, order="partition")
    bench.feed("a:cancelled", "b:2")
    bench.task.process()
    assert bench.end("2", "cancelled") == ["cancelled", "2"]


@pytest.mark.parametrize("answer", [None, "skip"])
def test_a_call_that_exits_ends_the_task_and_not_the_event_loop(
    make: Callable[..., Bench], answer: Any
) -> None:
    """The loop ended, and the worker hung. As for other functions, no handler and no ``on_error`` is asked."""
    bench = make(StreamsConfig("test", processing_exception_handler="continue"), on_error=answer)
    bench.feed("a:exit")
    bench.task.process()
    with pytest.raises(SystemExit):
        bench.end("exit")


def test_what_fails_behind_the_step_is_named() -> None:
    bench = Bench(
        lambda stream, call: (
            stream.map_values_async(call).map_values(int, name="count").to("out", value_serde=TEXT)
        )
    )
    bench.feed("a:x")
    bench.task.process()
    with pytest.raises(StreamsError, match=r"count .*in-0 at offset 0 failed: ValueError"):
        bench.end("x")
    bench.close()


def test_a_call_that_takes_too_long(make: Callable[..., Bench]) -> None:
    short = timedelta(milliseconds=1)
    bench = make(timeout=short, on_timeout=lambda value: f"no answer for {value}")
    bench.feed("a:1")
    bench.task.process()
    bench.finish()
    assert bench.sent.values == ["no answer for 1"]
    assert bench.running == 0
    bench = make(timeout=short)
    bench.feed("a:1")
    bench.task.process()
    with pytest.raises(StreamsError, match="TimeoutError"):
        bench.finish()


def test_time_in_which_the_event_loop_stands_still_does_not_count(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a suspension of the process, all open calls timed out, also those whose answers had arrived."""
    now = [1_000.0]
    bench = make(timeout=timedelta(seconds=2), on_timeout=lambda value: f"no answer for {value}")
    monkeypatch.setattr(bench.loop, "time", lambda: now[0])
    bench.feed("a:x", "b:y")
    bench.task.process()
    now[0] += 60
    for _ in range(4):
        bench.turn()
    assert bench.running == 2
    assert bench.end("x") == ["X"]
    now[0] += 2.1
    bench.finish()
    assert bench.sent.values == ["X", "no answer for y"]


def test_closing_gives_calls_up(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.feed("a:1")
    bench.task.process()
    assert bench.running == 1
    bench.task.close()
    bench.turn()
    bench.turn()
    assert (bench.running, bench.task.pending) == (0, 0)


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["key", "partition"]),
    st.randoms(use_true_random=False),
)
def test_whatever_the_order_of_the_calls_nothing_is_lost_doubled_or_swapped(
    keys: list[str], concurrency: int, order: Any, random: Any
) -> None:
    def describe(stream: Any, call: Any) -> None:
        stream.map_values_async(call, concurrency=concurrency, order=order).to("out", value_serde=TEXT)

    with closing(Bench(describe)) as bench:  # hypothesis may break off in the middle
        bench.feed(*(f"{key}:{key}{n}" for n, key in enumerate(keys)))
        bench.task.process()
        while bench.task.pending:
            under_way = [value for value, gate in bench.gates.items() if not gate.is_set()]
            bench.end(random.choice(under_way))
            bench.task.process()
            assert bench.most <= concurrency
        wanted = [f"{key}{n}".upper() for n, key in enumerate(keys)]
        if order == "partition":
            assert bench.sent.values == wanted
        for key in "ABC":
            assert [v for v in bench.sent.values if v[0] == key] == [v for v in wanted if v[0] == key]
        assert len(bench.sent.values) == len(keys)


async def test_the_driver_runs_steps_to_their_end_also_inside_a_running_loop() -> None:
    async def slowly(key: str, value: str) -> tuple[str, str]:
        await asyncio.sleep(0.001)
        return value, key

    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_async(slowly).group_by_key(
        key_serde=TEXT, value_serde=TEXT
    ).count().to_stream().map_values(str).to("out", key_serde=TEXT, value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", TEXT, TEXT)
        for key, value in ("ax", "by", "cx"):
            source.pipe_input(key, value)
        out = driver.create_output_topic("out", TEXT, TEXT)
        assert out.read_key_values() == [("x", "1"), ("y", "1"), ("x", "2")]


def test_a_runner_without_a_loop_refuses() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values_async(asyncio.sleep).to(
        "out", value_serde=TEXT
    )
    plan = builder.build().plan()
    environment = TaskEnvironment(plan, Sent(), wall_clock_ms=lambda: 0)
    task = Task(environment, plan.subtopologies[0], 0, MemoryBackend())
    with pytest.raises(UnsupportedOperation, match="asynchronous"):
        task.init()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"concurrency": 0}, TopologyError, "must be 1 or more"),
        ({"concurrency": 2.5}, TopologyError, "must be 1 or more"),
        ({"order": "none"}, TopologyError, '"key" or "partition"'),
        ({"timeout": 0}, TopologyError, "longer than 0"),
        ({"timeout": 1.5}, ConfigError, "timedelta or an int"),
        ({"on_timeout": "skip"}, TopologyError, "on_timeout"),
    ],
)
def test_wrong_use_is_refused_at_once(options: dict[str, Any], error: type[Exception], message: str) -> None:
    stream = StreamsBuilder().stream("in", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(error, match=message):
        stream.map_values_async(asyncio.sleep, **options)
    with pytest.raises(TopologyError, match="coroutine function"):
        stream.map_async(3)  # type: ignore[arg-type]
