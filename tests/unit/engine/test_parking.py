"""Records that wait for a retry, key by key or in place: order, bounds, attempts, what a restart finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    Backoff,
    ConfigError,
    LongSerde,
    OutputRecord,
    Response,
    Retry,
    SchemaRegistryError,
    ServiceDown,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.engine.parked import ParkedRecord, ParkedRecords
from streamapp.records import RecordContext
from streamapp.state.backend import MemoryBackend
from tests.unit.engine.support import CONFIG, QUICK, TEXT, commit, feed, task_of


class Service:
    """A function that fails for chosen values, so many times each; -1: always."""

    def __init__(self, **failing: int) -> None:
        self.failing = failing
        self.calls: list[str] = []
        self.down: Exception | None = None

    def __call__(self, value: str) -> str:
        self.calls.append(value)
        if self.down is not None:
            raise self.down
        left = self.failing.get(value, 0)
        if left:
            self.failing[value] = left - 1
            raise ValueError(f"no {value}")
        return value.upper()


def described(service: Callable[[str], str], on_error: Any, config: StreamsConfig = CONFIG) -> StreamsBuilder:
    builder = StreamsBuilder(config)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.map_values(service, on_error=on_error, name="look-up").to("out", value_serde=TEXT)
    return builder


class Bench:
    """A driver with one service behind ``on_error``."""

    def __init__(self, service: Callable[[str], str], on_error: Any, config: StreamsConfig = CONFIG) -> None:
        self.driver = TopologyTestDriver(described(service, on_error, config).build())
        self.input = self.driver.create_input_topic("in", TEXT, TEXT)

    def pipe(self, *records: str) -> None:
        """Records such as ``a:1``: key a, value 1."""
        for record in records:
            key, _, value = record.partition(":")
            self.input.pipe_input(key or None, value)

    def wait(self, ms: int) -> None:
        self.driver.advance_wall_clock_time(ms)

    @property
    def out(self) -> list[str]:
        return [_shown(record) for record in self.driver.produced.get("out", [])]

    @property
    def dead(self) -> list[str]:
        return [_shown(record) for record in self.driver.produced.get("dead", [])]


def _shown(record: OutputRecord) -> str:
    return f"{(record.key or b'').decode()}:{(record.value or b'').decode()}"


def test_a_key_waits_and_the_others_flow() -> None:
    bench = Bench(Service(bad=2), Retry.by_key(backoff=QUICK))
    bench.pipe("a:1", "b:bad", "b:2", "a:3", "b:4", "c:5")
    assert bench.out == ["a:1", "a:3", "c:5"]
    bench.wait(100)
    assert bench.out == ["a:1", "a:3", "c:5"]
    bench.wait(100)
    assert bench.out == ["a:1", "a:3", "c:5", "b:BAD", "b:2", "b:4"]
    bench.pipe("b:6")
    assert bench.out[-1] == "b:6"
    assert list(bench.driver.store("look-up-parked").all()) == []


def test_a_key_that_always_fails_ends_with_the_dead_letters_and_lets_its_followers_go() -> None:
    service = Service(bad=-1)
    bench = Bench(service, Retry.by_key(times=2, backoff=QUICK))
    bench.pipe("b:bad", "b:2")
    for _ in range(3):
        bench.wait(100)
    assert service.calls.count("bad") == 3
    assert (bench.dead, bench.out) == (["b:bad"], ["b:2"])
    said = dict(bench.driver.produced["dead"][0].headers)
    assert said["__streams.errors.topic"] == b"in"
    assert said["__streams.errors.offset"] == b"0"
    assert said["__streamapp.errors.operator"] == b"look-up"
    assert said["__streamapp.errors.attempt"] == b"3"
    assert bench.driver.drops == {("look-up", "dead_letter"): 1}


def test_a_record_is_tried_as_itself() -> None:
    seen: list[tuple[int, int]] = []
    builder = StreamsBuilder(CONFIG)
    service = Service(bad=1)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(
        service, on_error=Retry.by_key(backoff=QUICK)
    )
    stream.to(
        lambda key, value, context: seen.append((context.offset, context.timestamp)) or "out",
        value_serde=TEXT,
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"a", b"bad", 500, (("trace", b"1"),))
        driver.pipe_raw("in", b"z", b"ok", 900)
        driver.advance_wall_clock_time(100)
        assert seen == [(1, 900), (0, 500)]
        assert driver.produced["out"][1].headers == (("trace", b"1"),)
        assert driver.produced["out"][1].timestamp == 500


def test_in_place_the_task_takes_no_further_record() -> None:
    bench = Bench(Service(bad=2), Retry.in_place(backoff=QUICK))
    bench.pipe("a:1", "b:bad", "c:2", "b:3")
    assert bench.out == ["a:1"]
    bench.wait(100)
    bench.wait(100)
    assert bench.out == ["a:1", "b:BAD", "c:2", "b:3"]


def test_a_service_that_is_down_costs_no_record_and_no_attempt() -> None:
    service = Service()
    bench = Bench(service, Retry.by_key(times=1, backoff=QUICK))
    service.down = ServiceDown("the registry does not answer")
    bench.pipe("a:1", "b:2", "a:3")
    (parked,) = bench.driver.parked
    assert parked.circuit == "ServiceDown: the registry does not answer"
    assert parked.closed
    assert service.calls == ["1"]
    for _ in range(20):
        bench.wait(100)
    assert (bench.out, bench.dead) == ([], [])
    assert set(service.calls) == {"1"}
    service.down = None
    bench.wait(100)
    assert bench.out == ["a:1", "b:2", "a:3"]
    assert not bench.driver.parked[0].closed
    assert bench.driver.drops == {}


def test_the_log_has_a_service_that_stays_down_once_and_no_single_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A service that failed for every tenth request gave two lines for each failure."""
    caplog.set_level("INFO", "streamapp.engine.operators.parking")
    service = Service()
    bench = Bench(service, Retry.by_key(times=1, backoff=QUICK))
    for number in range(10):
        service.down = ServiceDown("503")
        bench.pipe(f"a:{number}")
        service.down = None
        bench.wait(100)
    assert len(bench.out) == 10
    assert caplog.messages == []
    service.down = ServiceDown("503")
    bench.pipe("a:10")
    for _ in range(30):
        bench.wait(100)
    (line,) = caplog.messages
    assert "a service fails (ServiceDown: 503)" in line
    service.down = None
    bench.wait(100)
    assert "the service answers after 3." in caplog.messages[1]


def test_the_log_has_a_failure_at_once_if_the_next_attempt_is_far_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The task took no record for the minute until the second attempt, and no line said why."""
    caplog.set_level("INFO", "streamapp.engine.operators.parking")
    service = Service()
    bench = Bench(service, Retry.by_key(times=1, backoff=Backoff(60_000)))
    service.down = ServiceDown("503")
    bench.pipe("a:1")
    assert "a service fails (ServiceDown: 503)" in caplog.text


@pytest.mark.parametrize("answer", ["skip", "dead_letter"])
def test_a_service_that_is_down_makes_no_record_bad(answer: str) -> None:
    service = Service()
    service.down = ConnectionError("refused")
    bench = Bench(service, answer)
    with pytest.raises(StreamsError, match="a service failed and not the record"):
        bench.pipe("a:1")
    assert bench.dead == []


@pytest.mark.parametrize(
    ("when_full", "dead", "dropped"),
    [("dead_letter", ["c:bad"], "dead_letter"), ("skip", [], "parking_full")],
)
def test_a_record_that_finds_no_room(when_full: Any, dead: list[str], dropped: str) -> None:
    bench = Bench(Service(bad=-1), Retry.by_key(max_records=2, when_full=when_full, backoff=QUICK))
    bench.pipe("a:bad", "b:bad", "c:bad", "d:1")
    assert (bench.dead, bench.out) == (dead, ["d:1"])
    assert bench.driver.drops == {("look-up", dropped): 1}


def test_at_the_bound_the_task_waits_for_room() -> None:
    bench = Bench(Service(bad=3), Retry.by_key(max_records=1, backoff=QUICK))
    bench.pipe("a:bad", "b:1")
    assert bench.out == []
    bench.wait(100)
    bench.wait(100)
    bench.wait(100)
    assert bench.out == ["a:BAD", "b:1"]


def test_a_task_takes_no_more_records_at_once_than_may_wait() -> None:
    task, _ = task_of(
        described(Service(bad=-1), Retry.by_key(max_records=3, backoff=QUICK)), config=CONFIG, now=[0]
    )
    feed(task, "in", [(str(number), "bad", number) for number in range(50)])
    task.process()
    assert [each.parked.records for each in task.parkings.values()] == [3]


def test_a_record_that_has_waited_too_long_is_given_up() -> None:
    bench = Bench(Service(bad=-1), Retry.by_key(times=None, max_age=250, backoff=QUICK, then="skip"))
    bench.pipe("a:bad")
    for _ in range(5):
        bench.wait(100)
    assert bench.driver.drops == {("look-up", "retries_exhausted"): 1}
    assert bench.driver.parked[0].records == 0


def test_a_function_chooses() -> None:
    def choose(context: Any, error: Exception) -> Any:
        assert context.processor == "look-up"
        return "retry" if "again" in str(error) else "dead_letter"

    bench = Bench(Service(again=1, bad=1), Retry.by_key(choose=choose, backoff=QUICK))
    bench.pipe("a:again", "b:bad")
    assert bench.dead == ["b:bad"]
    bench.wait(100)
    assert bench.out == ["a:AGAIN"]


def test_a_handler_makes_its_own_dead_letters() -> None:
    letter = OutputRecord("elsewhere", b"k", b"v", 5)
    bench = Bench(Service(bad=1), lambda context, error: Response.resume(letter))
    bench.pipe("a:bad", "a:2")
    assert bench.driver.produced["elsewhere"] == [letter]
    assert (bench.out, bench.dead) == (["a:2"], [])


def test_a_record_without_key_waits_alone() -> None:
    bench = Bench(Service(bad=1), Retry.by_key(backoff=QUICK))
    bench.pipe(":bad", ":2")
    assert bench.out == [":2"]
    bench.wait(100)
    assert bench.out == [":2", ":BAD"]


def test_an_attempt_gives_all_results_or_none() -> None:
    calls: list[str] = []

    def parts(value: str) -> Any:
        for part in value.split():
            calls.append(part)
            if calls.count(part) == 1 and part == "bad":
                raise ValueError(part)
            yield part

    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.flat_map_values(parts, on_error=Retry.by_key(backoff=QUICK)).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"a", b"good bad", 0)
        assert "out" not in driver.produced
        driver.advance_wall_clock_time(100)
        assert [record.value for record in driver.produced["out"]] == [b"good", b"bad"]


def test_a_task_that_starts_again_finds_who_waits_and_how_often_it_tried() -> None:
    backend, now = MemoryBackend(), [1_000]
    service = Service(bad=-1)
    builder = described(service, Retry.by_key(times=3, backoff=QUICK))
    task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
    feed(task, "in", [("a", "bad", 1), ("a", "2", 2), ("b", "3", 3)])
    task.process()
    now.append(1_100)
    task.punctuate_wall_clock(1_100)
    commit(task)
    calls = len(service.calls)
    task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
    assert task.parkings["look-up"].parked.records == 2
    for _ in range(3):
        now.append(now[-1] + 100)
        task.punctuate_wall_clock(now[-1])
    assert service.calls[calls:] == ["bad", "bad", "2"]
    assert sent.to("dead") == [("a", "bad", 1)]
    assert sent.to("out") == [("a", "2", 2)]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("error", [ValueError("no"), ConnectionError("down")])
def test_a_clock_that_is_set_back_makes_no_record_wait_longer(error: Exception, restarted: bool) -> None:
    """A record, or all records of a service that had failed, waited until the clock reached the old time again."""
    backend, now, service = MemoryBackend(), [1_000_000], Service()
    builder = described(service, Retry.by_key(backoff=QUICK))
    task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
    service.down = error
    feed(task, "in", [("a", "1", 1)])
    task.process()
    commit(task)
    service.down = None
    now.append(50_000)
    if restarted:
        task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
    else:
        task.clock_jumped(-950_000)
    task.punctuate_wall_clock(50_001)
    assert sent.to("out") == []
    task.punctuate_wall_clock(50_100)
    assert sent.to("out") == [("a", "1", 1)]


@pytest.mark.parametrize("size", [1, 200_000, 870_000])
def test_a_waiting_record_of_any_size_fits_into_messages_of_its_changelog(size: int) -> None:
    """A row has the bytes of the record and of its source as text, so a row is larger than a message may be."""
    backend, now, large = MemoryBackend(), [1_000], "x" * size
    builder = described(service := Service(**{large: 2}), Retry.by_key(times=3, backoff=QUICK))
    task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
    feed(task, "in", [("a", large, 1), ("a", "2", 2), ("b", "3", 3), ("a", large, 4)])
    task.process()
    for _ in range(2):  # a start from the store, after each attempt
        commit(task)
        rows = list(task.store("look-up-parked").all())
        assert max(len(key) + len(row) for key, row in rows) < 1_000_000
        task, sent = task_of(builder, config=CONFIG, backend=backend, now=now)
        assert task.parkings["look-up"].parked.records == 3
        assert task.parkings["look-up"].parked.bytes == sum(len(row) for _, row in rows)
        now.append(now[-1] + 100)
        task.punctuate_wall_clock(now[-1])
    assert [(key, len(value)) for key, value, _ in sent.to("out")] == [("a", size), ("a", 1), ("a", size)]
    assert service.failing[large] == 0
    assert list(task.store("look-up-parked").all()) == []
    assert task.parkings["look-up"].parked.bytes == 0


class Rows(dict[bytes, bytes]):
    """A store of parked records. ``log`` has the writes since the last commit, in the order of the changelog."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, row: bytes | None) -> None:
        self.log[key] = row
        self.pop(key, None)
        if row is not None:
            self[key] = row

    def all(self) -> list[tuple[bytes, bytes]]:
        return sorted(self.items())


def waiting(value: bytes) -> ParkedRecord:
    return ParkedRecord(b"a", value, 1, (), RecordContext("in", 0, 0, 1, (), b"a", value), 1)


def waiting_in(store: Rows) -> list[tuple[bytes | None, int]]:
    """Value and attempts of the records that wait in lane a, as a task finds them at its start."""
    records, found = ParkedRecords(Rows(store)), []
    while (lane := records.lanes.get(b"a")) is not None:
        found.append((lane.head.value, lane.head.attempts))
        records.remove_head(lane)
    return found


@pytest.mark.parametrize("size", [200_000, 400_000])
def test_long_rows_of_a_version_before_parts_are_read(size: int) -> None:
    values = [b"x" * size, b"y" * size]
    before = Rows((b"\0\0\0\1a%s" % n.to_bytes(8), waiting(each).encode()) for n, each in enumerate(values))
    assert waiting_in(before) == [(values[0], 0), (values[1], 0)]
    records = ParkedRecords(before)
    records.lanes[b"a"].head.attempts += 1
    records.postpone(records.lanes[b"a"])
    assert waiting_in(before) == [(values[0], 1), (values[1], 0)]


def test_a_crash_between_the_rows_of_a_record_loses_no_record() -> None:
    """With at_least_once, the changelog may have only the first rows of a commit. The next start has to read them."""
    old, new = b"x" * 400_000, b"y" * 600_000
    store = Rows()
    ParkedRecords(store).park(b"a", waiting(old))
    steps: list[Callable[[ParkedRecords], Any]] = [
        lambda records: records.park(b"a", waiting(new)),
        lambda records: [
            setattr(records.lanes[b"a"].head, "attempts", 7),
            records.postpone(records.lanes[b"a"]),
        ],
        lambda records: records.remove_head(records.lanes[b"a"]),
    ]
    for step in steps:
        before, after = Rows(store), Rows(store)
        step(ParkedRecords(after))
        outcomes = waiting_in(before), waiting_in(after)
        for count in range(len(after.log) + 1):
            torn = Rows(store)
            for key, row in list(after.log.items())[:count]:
                torn.put(key, row)
            assert waiting_in(torn) in outcomes
            if waiting_in(torn) == outcomes[0]:
                step(ParkedRecords(torn))
            assert waiting_in(torn) == outcomes[1]
            records = ParkedRecords(torn)
            records.park(b"b", waiting(b"z"))  # deletes parts that the crash has left
            records.remove_head(records.lanes[b"b"])
            assert torn.keys() == after.keys()
        store = after


def test_a_key_keeps_its_order_if_a_new_version_waits_by_key() -> None:
    """The record of the earlier version waits in the lane of its task. A later record of its key overtook it."""
    service, backend, now = Service(bad=1), MemoryBackend(), [1_000]
    task, _ = task_of(
        described(service, Retry.in_place(backoff=QUICK)), config=CONFIG, backend=backend, now=now
    )
    feed(task, "in", [("a", "bad", 1)])
    task.process()
    commit(task)
    task, sent = task_of(
        described(service, Retry.by_key(backoff=QUICK)), config=CONFIG, backend=backend, now=now
    )
    feed(task, "in", [("a", "2", 2), ("b", "3", 3)], offset=1)
    task.process()
    assert sent.to("out") == []
    now.append(1_100)
    task.punctuate_wall_clock(1_100)
    assert sent.to("out") == [("a", "BAD", 1), ("a", "2", 2), ("b", "3", 3)]


def test_nothing_wakes_the_task_while_nothing_waits() -> None:
    builder = described(Service(bad=1), Retry.by_key(backoff=QUICK))
    now = [0]
    task, _ = task_of(builder, config=CONFIG, now=now)
    assert not task.punctuate_wall_clock(10**9)
    feed(task, "in", [("a", "bad", 1)])
    task.process()
    assert not task.punctuate_wall_clock(99)
    now.append(100)
    assert task.punctuate_wall_clock(100)
    assert not task.punctuate_wall_clock(10**9)


def test_what_cannot_be_promised_is_refused() -> None:
    with pytest.raises(ConfigError, match="Set dead_letter_queue_topic"):
        described(Service(), Retry.by_key(), StreamsConfig("app")).build().plan()
    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(TopologyError, match="no serde for their values"):
        stream.map_values(len).map_values(str, on_error=Retry.by_key())
    with pytest.raises(TopologyError, match="gets no better by a retry"):
        stream.to("out", on_error=Retry.by_key())
    with pytest.raises(ConfigError, match='is "fail", "skip"'):
        stream.map_values(str, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="of one operator"):
        StreamsConfig("app", processing_exception_handler=Retry.by_key())  # type: ignore[arg-type]


RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(records=RECORDS, times=st.integers(1, 3), bound=st.sampled_from([2, 5, 1000]), waits=st.integers(0, 5))
def test_each_key_keeps_its_order_and_each_record_is_in_one_place(
    records: list[tuple[str, int]], times: int, bound: int, waits: int
) -> None:
    left = {f"{number}": fails for number, (_, fails) in enumerate(records)}

    def service(value: str) -> str:
        if left[value]:
            left[value] -= 1
            raise ValueError(value)
        return value

    bench = Bench(service, Retry.by_key(times=times, max_records=bound, backoff=QUICK))
    for number, (key, _) in enumerate(records):
        bench.pipe(f"{key}:{number}")
        if number % 7 < waits:
            bench.wait(60)
    ended = [each.split(":") for each in bench.out + bench.dead]
    parked = sum(each.records for each in bench.driver.parked)
    waiting = sum(bench.driver.buffered.values())
    assert len(ended) + parked + waiting == len(records)
    for _ in range(len(records) * (times + 2)):
        bench.wait(100)
    out = [each.split(":") for each in bench.out]
    dead = [each.split(":") for each in bench.dead]
    assert sorted(int(value) for _, value in out + dead) == list(range(len(records)))
    assert {int(value) for _, value in dead} == {n for n, (_, fails) in enumerate(records) if fails > times}
    for key in "abcd":
        numbers = [int(value) for k, value in out if k == key]
        assert numbers == sorted(numbers)


def test_a_message_names_the_function_the_record_and_the_command() -> None:
    def look_up(value: str) -> str:
        raise ValueError("no such flight")

    bench = Bench(look_up, "fail")
    with pytest.raises(StreamsError) as caught:
        bench.pipe("N1:secret")
    said = str(caught.value)
    assert "look_up (" in said
    assert "test_parking.py:" in said
    assert "Record: key b'N1', value b'secret'" in said
    assert said.endswith("streamapp try APPLICATION --topic in --partition 0 --offset 0")
    masked = Bench(
        look_up, "fail", CONFIG.replace(show_record=lambda key, value: f"{len(value or b'')} bytes")
    )
    with pytest.raises(StreamsError, match="Record: 6 bytes") as caught:
        masked.pipe("N1:secret")
    assert "secret" not in str(caught.value)


def test_dropped_records_become_dead_letters_if_asked() -> None:
    builder = StreamsBuilder(CONFIG.replace(dead_letter_drops=("null_key",)))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key().count(name="count")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", None, b"lost", 5)
        driver.pipe_raw("in", b"k", None, 6)
        (dead,) = driver.produced["dead"]
        assert (dead.key, dead.value) == (None, b"lost")
        assert dict(dead.headers)["__streams.errors.exception"] == b"streamapp.errors.RecordDropped"
        assert driver.drops == {("count", "null_key"): 1, ("count", "null_value"): 1}
    with pytest.raises(ConfigError, match="each one of late"):
        StreamsConfig(dead_letter_queue_topic="dead", dead_letter_drops=("lost",))


def test_sources_sinks_and_coroutines_answer_for_themselves() -> None:
    async def look_up(value: int) -> str:
        if value == 2:
            raise ValueError("no flight 2")
        return str(value)

    builder = StreamsBuilder(CONFIG)
    numbers = builder.stream(
        "in", key_serde=TEXT, value_serde=LongSerde(), on_error="skip", name="numbers"
    ).map_values_async(look_up, name="look-up", on_error="dead_letter")
    numbers.to("out", value_serde=LongSerde(), on_error="skip", name="written")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("in", b"k", b"?", 1)
        for number in (1, 2):
            driver.pipe_raw("in", b"k", LongSerde().serialize(number), 1)
        assert driver.drops == {
            ("numbers", "undecodable"): 1,
            ("look-up", "dead_letter"): 1,
            ("written", "unserializable"): 1,
        }
        assert len(driver.produced["dead"]) == 1


def test_retries_that_take_long_leave_the_inputs_their_turn() -> None:
    """Each attempt takes 400 ms of the task's clock."""
    now = [0]
    service = Service(bad=1)

    def slow(value: str) -> str:
        now.append(now[-1] + 400)
        return service(value)

    task, sent = task_of(described(slow, Retry.by_key(backoff=QUICK)), config=CONFIG, now=now)
    feed(task, "in", [("a", "bad", 1), *(("a", str(number), 2) for number in range(9))])
    task.process()
    turns = []
    while task.parkings["look-up"].parked.records:
        now.append(now[-1] + 200)
        before = len(sent.to("out"))
        task.punctuate_wall_clock(now[-1])
        turns.append(len(sent.to("out")) - before)
    assert turns == [3, 3, 3, 1]
    assert [value for _, value, _ in sent.to("out")] == ["BAD", *map(str, range(9))]


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_registry_that_is_away_while_a_record_is_parked_is_no_fault_of_the_record(part: str) -> None:
    """The record is neither dropped nor said to have the wrong serde: it comes again after a restart."""

    class Away(StringSerde):
        def serialize(self, value: Any) -> bytes:
            raise SchemaRegistryError("the schema registry does not answer")

    builder = StreamsBuilder(CONFIG.replace(processing_exception_handler="continue"))
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    serdes = {"key": TEXT, "value": TEXT, part: Away()}
    retry = Retry.by_key(key_serde=serdes["key"], value_serde=serdes["value"])
    stream.map_values(Service(a=-1), on_error=retry, name="look-up").to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        with pytest.raises(StreamsError, match="^the schema registry does not answer"):
            topic.pipe_input("k", "a")
        assert not driver.drops
