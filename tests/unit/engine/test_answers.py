"""``on_error`` of joins, aggregations and tables: what is left out, what stays, and who answers for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    JoinWindows,
    JsonSerde,
    KTable,
    LongSerde,
    Materialized,
    Retry,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
)

from .support import CONFIG, QUICK, TEXT

LONG = LongSerde()
TENS = TimeWindows.of_size_with_no_grace(10)


class Bench:
    """A topology of streams ``a`` and ``b`` and an output; records are written as ``key:value@time``."""

    def __init__(self, describe: Callable[..., Any], config: StreamsConfig = CONFIG) -> None:
        builder = StreamsBuilder(config)
        streams = [builder.stream(name, key_serde=TEXT, value_serde=TEXT) for name in ("a", "b")]
        out = describe(*streams)
        if isinstance(out, KTable):
            out = out.to_stream(lambda key, value: str(key))
        out.map(lambda key, value: (key, None if value is None else str(value))).to(
            "out", key_serde=TEXT, value_serde=TEXT
        )
        self.driver = TopologyTestDriver(builder.build())

    def pipe(self, topic: str, *records: str) -> None:
        for record in records:
            pair, _, time = record.partition("@")
            key, _, value = pair.partition(":")
            self.driver.pipe_raw(
                topic, key.encode() or None, None if value == "-" else value.encode(), int(time or 0)
            )

    def shown(self, topic: str) -> list[str]:
        records = self.driver.produced.get(topic, [])
        return [f"{(r.key or b'').decode()}:{'-' if r.value is None else r.value.decode()}" for r in records]

    @property
    def out(self) -> list[str]:
        return self.shown("out")

    @property
    def dead(self) -> list[str]:
        return self.shown("dead")


def strict(left: Any, right: Any) -> str:
    if "bad" in (left, right):
        raise ValueError("bad")
    return f"{left}+{right}"


def number(value: str) -> int:
    return int(value)


def add(key: str, value: str, total: int) -> int:
    return total + int(value)


SUMS = Materialized("sums", value_serde=LONG)


# ------------------------------------------------------------------ look-ups in tables


@pytest.mark.parametrize("answer", ["skip", "dead_letter"])
def test_a_look_up_in_a_table_leaves_out_the_record_that_fails(answer: Any) -> None:
    bench = Bench(lambda a, b: a.join(b.to_table(), strict, on_error=answer, name="join"))
    bench.pipe("b", "k:row")
    bench.pipe("a", "k:1", "k:bad", "k:2")
    assert bench.out == ["k:1+row", "k:2+row"]
    assert bench.dead == (["k:bad"] if answer == "dead_letter" else [])
    reason = "dead_letter" if answer == "dead_letter" else "failed"
    assert bench.driver.drops == {("join", reason): 1}


def test_a_record_waits_until_the_row_that_it_looks_up_is_there() -> None:
    def present(flight: str, gate: str | None) -> str:
        if gate is None:
            raise LookupError("no gate yet")
        return f"{flight} at {gate}"

    retry = Retry.by_key(times=None, backoff=QUICK)
    bench = Bench(lambda a, b: a.left_join(b.to_table(), present, on_error=retry, name="gate"))
    bench.pipe("b", "n2:B1")
    bench.pipe("a", "n1:UA1", "n2:UA2", "n1:UA3")
    bench.driver.advance_wall_clock_time(100)
    assert bench.out == ["n2:UA2 at B1"]
    bench.pipe("b", "n1:A1")
    bench.driver.advance_wall_clock_time(100)
    assert bench.out == ["n2:UA2 at B1", "n1:UA1 at A1", "n1:UA3 at A1"]


def test_a_global_table_is_looked_up_again_and_its_key_selector_answered_for() -> None:
    builder = StreamsBuilder(CONFIG)
    table = builder.global_table(
        "g",
        key_serde=TEXT,
        value_serde=TEXT,
        materialized=Materialized("g", key_serde=TEXT, value_serde=TEXT),
    )

    def select(key: str, value: str) -> str:
        return value.split("/")[1]

    def present(value: str, row: str | None) -> str:
        if row is None:
            raise LookupError(value)
        return row

    stream = builder.stream("a", key_serde=TEXT, value_serde=TEXT)
    stream.left_join(
        table, present, key_selector=select, on_error=Retry.by_key(times=1, backoff=QUICK), name="join"
    ).to("out", value_serde=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw("a", b"k1", b"x/g1", 0)
        driver.pipe_raw("a", b"k2", b"no separator", 0)
        driver.pipe_raw("g", b"g1", b"row", 0)
        driver.advance_wall_clock_time(100)
        assert [record.value for record in driver.produced["out"]] == [b"row"]
        assert [record.value for record in driver.produced["dead"]] == [b"no separator"]


def test_a_record_that_waits_in_the_buffer_of_a_join_is_answered_for_as_itself() -> None:
    def describe(a: Any, b: Any) -> Any:
        rows = b.to_table(
            materialized=Materialized("rows", key_serde=TEXT, value_serde=TEXT, history_retention=1_000)
        )
        return a.join(rows, strict, grace=10, on_error="dead_letter", name="join")

    bench = Bench(describe)
    bench.pipe("b", "k:row@0")
    bench.pipe("a", "k:bad@1", "k:1@2", "k:2@50")
    assert bench.out == ["k:1+row"]
    said = dict(bench.driver.produced["dead"][0].headers)
    assert (said["__streams.errors.offset"], said["__streamapp.errors.timestamp"]) == (b"0", b"1")


# ------------------------------------------------------------------ joins of streams

NEAR = JoinWindows.of_time_difference_with_no_grace(10)


def test_a_join_of_streams_gives_all_pairs_of_a_record_or_none() -> None:
    bench = Bench(lambda a, b: a.join(b, strict, NEAR, on_error="dead_letter"))
    bench.pipe("b", "k:1@0", "k:bad@1", "k:3@2")
    bench.pipe("a", "k:x@3")
    assert (bench.out, bench.dead) == ([], ["k:x"])
    bench.pipe("b", "k:4@4")  # the record is in its window all the same
    assert bench.out == ["k:x+4"]


def test_a_stream_joined_with_itself_answers_too() -> None:
    config = CONFIG.replace(topology_optimization="all")
    bench = Bench(lambda a, b: a.join(a, strict, NEAR, on_error="dead_letter"), config)
    bench.pipe("a", "k:bad@0", "j:1@0")
    assert (bench.out, bench.dead) == (["j:1+1"], ["k:bad"])


# ------------------------------------------------------------------ aggregations


def per_key(grouped: Any, answer: Any) -> Any:
    return grouped.aggregate(int, add, materialized=SUMS, on_error=answer, name="sum")


def per_window(windows: Any) -> Callable[[Any, Any], Any]:
    def describe(grouped: Any, answer: Any) -> Any:
        merger = [lambda key, one, two: one + two] if isinstance(windows, SessionWindows) else []
        return grouped.windowed_by(windows).aggregate(
            int, add, *merger, materialized=SUMS, on_error=answer, name="sum"
        )

    return describe


def together(grouped: Any, answer: Any) -> Any:
    return grouped.cogroup(add).aggregate(int, materialized=SUMS, on_error=answer, name="sum")


def reduced(grouped: Any, answer: Any) -> Any:
    return grouped.reduce(lambda one, two: str(int(one) + int(two)), on_error=answer, name="sum")


AGGREGATIONS = {
    "aggregate": per_key,
    "reduce": reduced,
    "cogroup": together,
    "tumbling": per_window(TENS),
    "hopping": per_window(TENS.advance_by(5)),
    "sliding": per_window(SlidingWindows.of_time_difference_with_no_grace(10)),
    "session": per_window(SessionWindows.of_inactivity_gap_with_no_grace(10)),
}


@pytest.mark.parametrize(
    "windows",
    [
        TENS.advance_by(5),
        SlidingWindows.of_time_difference_and_grace(10, 100),
        SessionWindows.of_inactivity_gap_and_grace(10, 100),
    ],
)
def test_a_record_is_in_all_of_its_windows_or_in_none(windows: Any) -> None:
    """The function raises for the second window, or for the second time that it is called for the record."""
    calls: list[str] = []

    def fussy(key: str, value: str, seen: list[str]) -> list[str]:
        calls.append(value)
        if value == "bad" and (calls.count("bad") == 2 or isinstance(windows, SessionWindows)):
            raise ValueError("once is enough")
        return [*seen, value]

    def describe(a: Any, b: Any) -> Any:
        merger = [lambda key, one, two: one + two] if isinstance(windows, SessionWindows) else []
        return (
            a.group_by_key()
            .windowed_by(windows)
            .aggregate(
                list,
                fussy,
                *merger,
                materialized=Materialized("values", value_serde=JsonSerde()),
                on_error="dead_letter",
            )
        )

    bench = Bench(describe)
    bench.pipe("a", "k:1@21", "k:3@28", "k:bad@26")
    assert bench.dead == ["k:bad"]
    kept = [row[1] for row in bench.driver.store("values").all()]
    assert not any("bad" in values for values in kept)
    assert not any("bad" in shown for shown in bench.out)
    bench.pipe("a", "k:2@27")
    assert any("2" in row[1] for row in bench.driver.store("values").all())


@pytest.mark.parametrize("cache", [0, 1_000_000])
@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_an_aggregate_stays_as_it_was(kind: str, cache: int) -> None:
    config = CONFIG.replace(statestore_cache_max_bytes=cache)
    bench = Bench(lambda a, b: AGGREGATIONS[kind](a.group_by_key(), "dead_letter"), config)
    bench.pipe("a", "k:1@5", "k:bad@6", "k:2@7")
    assert bench.dead == ["k:bad"]
    assert [count for (_, reason), count in bench.driver.drops.items() if reason == "dead_letter"] == [1]
    assert bench.out[-1].endswith(":3")
    deletions = [shown for shown in bench.out if shown.endswith(":-")]
    assert len(deletions) <= (1 if kind == "session" else 0)


def test_windows_that_merge_stay_apart_when_the_function_fails() -> None:
    sessions = per_window(SessionWindows.of_inactivity_gap_and_grace(10, 100))
    bench = Bench(lambda a, b: sessions(a.group_by_key(), "skip"))
    bench.pipe("a", "k:1@0", "k:2@20", "k:bad@10")
    store = bench.driver.store("sums")
    assert [(key.start, key.end, value) for key, value in store.fetch_range("k", "k")] == [
        (0, 0, 1),
        (20, 20, 2),
    ]


def test_a_count_answers_for_a_key_that_cannot_be_written() -> None:
    bench = Bench(
        lambda a, b: (
            a.select_key(lambda key, value: 5 if value == "bad" else key)
            .map_values(len)
            .filter(lambda key, value: True)
            .process_values(Same)
            .group_by_key(key_serde=TEXT, value_serde=LONG)
            .count(on_error="skip", name="counted")
        )
    )
    bench.pipe("a", "k:1", "k:2")
    assert bench.out == ["k:1", "k:2"]


class Same:
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record)

    def close(self) -> None: ...


@pytest.mark.parametrize("cache", [0, 1_000_000])
def test_an_aggregation_does_not_answer_for_those_behind(cache: int) -> None:
    config = CONFIG.replace(statestore_cache_max_bytes=cache)

    def describe(a: Any, b: Any) -> Any:
        sums = per_key(a.group_by_key(), "skip")
        return sums.to_stream().map_values(lambda total: 1 // (total - 3), name="behind")

    bench = Bench(describe, config)
    with pytest.raises(StreamsError, match="behind .*ZeroDivisionError"):
        bench.pipe("a", "k:3")
        bench.driver.close()


# ------------------------------------------------------------------ tables


def rows(table: Any, answer: Any) -> Any:
    return table.map_values(number, on_error=answer, name="numbers")


def test_a_row_whose_function_raises_is_not_in_the_table() -> None:
    bench = Bench(lambda a, b: rows(a.to_table(), "dead_letter"))
    bench.pipe("a", "k:1", "k:bad", "k:2")
    assert bench.out == ["k:1", "k:-", "k:2"]
    assert bench.dead == ["k:bad"]
    assert bench.driver.drops == {("numbers", "dead_letter"): 1}


@pytest.mark.parametrize("materialized", [None, Materialized("numbers", key_serde=TEXT, value_serde=LONG)])
def test_old_values_are_taken_back_that_went_in_and_no_others(materialized: Any) -> None:
    def describe(a: Any, b: Any) -> Any:
        numbers = a.to_table().map_values(
            number, on_error="dead_letter", materialized=materialized, name="numbers"
        )
        grouped = numbers.group_by(lambda key, value: ("all", value), key_serde=TEXT, value_serde=LONG)
        return grouped.reduce(lambda one, two: one + two, lambda one, two: one - two)

    bench = Bench(describe)
    bench.pipe("a", "k:1", "j:5", "k:bad", "k:bad", "k:3", "j:-")
    assert bench.out[-1] == "all:3"
    assert bench.dead == ["k:bad", "k:bad"]


@pytest.mark.parametrize("negate", [False, True])
def test_a_filter_and_those_who_read_through_it_agree(negate: bool) -> None:
    def describe(a: Any, b: Any) -> Any:
        table = b.to_table()
        keep = table.filter_not if negate else table.filter
        kept = keep(lambda key, value: (int(value) > 5) is not negate, on_error="skip", name="large")
        return a.left_join(kept, "{} {}".format)

    bench = Bench(describe)
    bench.pipe("b", "k:7", "j:bad", "l:3")
    bench.pipe("a", "k:x", "j:y", "l:z")
    assert bench.out == ["k:x 7", "j:y None", "l:z None"]
    assert bench.driver.drops == {("large", "failed"): 1}


def test_a_transformer_and_those_who_read_through_it_agree() -> None:
    class Numbers:
        def init(self, context: Any) -> None: ...
        def transform(self, key: str, value: Any) -> Any:
            return None if value is None else int(value)

        def close(self) -> None: ...

    def describe(a: Any, b: Any) -> Any:
        return a.left_join(b.to_table().transform_values(Numbers, on_error="skip", name="n"), "{} {}".format)

    bench = Bench(describe)
    bench.pipe("b", "k:7", "j:bad")
    bench.pipe("a", "k:x", "j:y")
    assert bench.out == ["k:x 7", "j:y None"]


def test_a_service_that_is_down_is_not_taken_for_a_missing_row() -> None:
    down = []

    def ask(value: str) -> str:
        if down:
            raise ConnectionError("down")
        return value

    for topic, message in (("a", "ConnectionError"), ("b", "a service failed and not the record")):
        down.clear()
        bench = Bench(lambda a, b: a.left_join(b.to_table().map_values(ask, on_error="skip"), "{} {}".format))
        bench.pipe("b", "k:7")
        down.append(True)
        with pytest.raises(StreamsError, match=message):
            bench.pipe(topic, "k:8")


def test_a_row_dropped_with_continue_stays_dropped_for_those_who_read_it() -> None:
    """The first call dropped the row, and a join that called the function again stopped the worker."""

    def ask(value: str) -> str:
        raise ConnectionError("down")

    bench = Bench(lambda a, b: a.left_join(b.to_table().map_values(ask, on_error="continue"), "{} {}".format))
    bench.pipe("b", "k:7")
    bench.pipe("a", "k:x")
    assert bench.out == ["k:x None"]


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_a_join_of_tables_has_no_row_where_the_joiner_raises(kind: str) -> None:
    def describe(a: Any, b: Any) -> Any:
        joined = getattr(a.to_table(), kind)(b.to_table(), strict, on_error="dead_letter", name="both")
        grouped = joined.group_by(lambda key, value: ("all", value), key_serde=TEXT, value_serde=TEXT)
        return grouped.aggregate(
            list,
            lambda key, value, values: [*values, value],
            lambda key, value, values: [each for each in values if each != value],
            materialized=Materialized("values", value_serde=JsonSerde()),
        )

    bench = Bench(describe)
    bench.pipe("a", "k:1")
    bench.pipe("b", "k:bad", "k:2")
    bench.pipe("a", "k:bad", "k:3")
    assert bench.out[-1] == "all:['3+2']"
    assert bench.dead == ["k:bad", "k:bad"]


def test_a_join_by_foreign_key_has_no_row_where_a_function_raises() -> None:
    def describe(a: Any, b: Any) -> Any:
        return a.to_table().join(
            b.to_table(),
            strict,
            foreign_key=lambda value: value.split("/")[1],
            on_error="dead_letter",
            name="fk",
        )

    bench = Bench(describe)
    bench.pipe("b", "x:row", "y:bad")
    bench.pipe("a", "k:1/x", "j:1/y", "l:none", "j:2/x", "l:3/x", "k:none")
    assert bench.out == ["k:1/x+row", "j:-", "j:2/x+row", "l:3/x+row", "k:-"]
    assert [count for (_, reason), count in bench.driver.drops.items() if reason == "dead_letter"] == [1, 2]
    assert not any(reason == "null_key" for _, reason in bench.driver.drops)


def test_a_row_that_cannot_be_grouped_takes_no_part() -> None:
    def describe(a: Any, b: Any) -> Any:
        table = a.to_table()
        grouped = table.group_by(
            lambda key, value: (value[0], int(value[1:])),
            key_serde=TEXT,
            value_serde=LONG,
            on_error="dead_letter",
        )
        return grouped.reduce(lambda one, two: one + two, lambda one, two: one - two)

    bench = Bench(describe)
    bench.pipe("a", "k:x1", "j:x4", "k:xbad", "k:x2")
    assert bench.out == ["x:1", "x:5", "x:4", "x:6"]
    assert bench.dead == ["k:xbad"]


def test_a_split_answers_for_its_predicates() -> None:
    def describe(a: Any, b: Any) -> Any:
        branches = a.split("by-", on_error="dead_letter").branch(lambda key, value: int(value) > 5, "large")
        return branches.no_default_branch()["by-large"]

    bench = Bench(describe)
    bench.pipe("a", "k:9", "k:bad", "k:1")
    assert (bench.out, bench.dead) == (["k:9"], ["k:bad"])


# ------------------------------------------------------------------ refusals

RETRY = Retry.by_key(times=1)
WAITS: dict[str, Callable[[Any, Any], Any]] = {
    "aggregate": lambda a, b: per_key(a.group_by_key(), RETRY),
    "count": lambda a, b: a.group_by_key().count(on_error=RETRY),
    "tumbling": lambda a, b: per_window(TENS)(a.group_by_key(), RETRY),
    "cogroup": lambda a, b: together(a.group_by_key(), RETRY),
    "streams": lambda a, b: a.join(b, strict, NEAR, on_error=RETRY),
    "table": lambda a, b: rows(a.to_table(), RETRY),
    "filter": lambda a, b: a.to_table().filter(lambda key, value: True, on_error=RETRY),
    "tables": lambda a, b: a.to_table().join(b.to_table(), strict, on_error=RETRY),
    "group_by": lambda a, b: a.to_table().group_by(lambda key, value: (key, value), on_error=RETRY),
    "split": lambda a, b: a.split(on_error=RETRY),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_retry_is_refused_where_state_would_move_on_meanwhile(kind: str) -> None:
    with pytest.raises(TopologyError, match=r"cannot have on_error=Retry: .*map_values\(on_error=Retry"):
        Bench(WAITS[kind])


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
def test_joins_whose_records_wait_for_a_match_do_not_answer(kind: str) -> None:
    with pytest.raises(TopologyError, match="records that have waited for a match"):
        Bench(lambda a, b: getattr(a, kind)(b, strict, NEAR, on_error="skip"))


def test_an_aggregation_of_a_table_does_not_answer() -> None:
    def describe(a: Any, b: Any) -> Any:
        grouped = a.to_table().group_by(lambda key, value: (key, value))
        return grouped.reduce(lambda one, two: one, lambda one, two: one, on_error="skip")

    with pytest.raises(TopologyError, match="would subtract a value that was never added"):
        Bench(describe)


def test_an_answer_without_a_topic_for_it_is_refused() -> None:
    with pytest.raises(StreamsError, match="Set dead_letter_queue_topic"):
        Bench(lambda a, b: rows(a.to_table(), "dead_letter"), StreamsConfig("app"))


def test_a_record_can_be_tried_without_any_answer() -> None:
    async def ask(value: str) -> str:
        return value

    builder = StreamsBuilder(CONFIG)
    stream = builder.stream("a", key_serde=TEXT, value_serde=TEXT)
    stream.map_values_async(ask, on_error="skip", name="asked").to("out", value_serde=TEXT)
    rows(stream.to_table(), "skip").to_stream().to("numbers", value_serde=LONG)
    per_key(stream.group_by_key(), "skip")
    bare = builder.build().without_answers()
    for name in ("asked", "numbers", "sum"):
        operator: Any = bare.nodes[name].operator
        assert getattr(operator, "on_error", None) is None
