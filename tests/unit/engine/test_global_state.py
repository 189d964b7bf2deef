"""Global stores, fed without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamapp import (
    ErrorContext,
    JsonSerde,
    LongSerde,
    Materialized,
    OutputRecord,
    PunctuationType,
    Response,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TopicPartition,
    Topology,
    TopologyTestDriver,
)
from streamapp.engine.global_letters import GlobalLetters
from streamapp.engine.global_state import GlobalState
from streamapp.errors import ProcessorStateError
from streamapp.records import RecordBatch

TEXT = StringSerde()
SOURCE = TopicPartition("rates", 2)
POISON = RecordBatch(
    [b"a", b"b", b"c"], [b"1", b"{{{", b"3"], [1, 2, 3], range(7, 10), [(), (("from", b"x"),), ()]
)


def table(config: StreamsConfig) -> Topology:
    builder = StreamsBuilder(config)
    builder.global_table("rates", key_serde=TEXT, value_serde=JsonSerde(), materialized=Materialized("rates"))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    return builder.build()


class Keep:
    def init(self, context: Any) -> None:
        self.store = context.get_state_store("rates")

    def process(self, record: Any) -> None:
        self.store.put(record.key, int(record.value))

    def close(self) -> None: ...


@pytest.mark.parametrize("clock", list(PunctuationType))
def test_the_processor_of_a_global_store_has_no_punctuators(clock: PunctuationType) -> None:
    """Nobody called such a punctuator, and nothing said so."""

    class Ticking(Keep):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(1_000, clock, lambda now: None)

    config = StreamsConfig("app")
    builder = StreamsBuilder(config)
    spec = replace(Stores.key_value("rates", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "rates", Ticking, key_serde=TEXT, value_serde=TEXT, name="ticking")
    with pytest.raises(
        StreamsError, match="ticking fills a global store, and such a processor has no punctuators"
    ):
        GlobalState(builder.build().plan(config), wall_clock_ms=lambda: 0)


def store(config: StreamsConfig) -> Topology:
    builder = StreamsBuilder(config)
    spec = replace(Stores.key_value("rates", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "rates", Keep, key_serde=TEXT, value_serde=TEXT, name="keep")
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    return builder.build()


class Bench:
    """A global table, or a global store with a processor, and the letters that come out."""

    def __init__(self, describe: Callable[[StreamsConfig], Topology], handler: Any, **config: Any) -> None:
        handlers = {f"{kind}_exception_handler": handler for kind in ("deserialization", "processing")}
        settings = StreamsConfig("app", **{"dead_letter_queue_topic": "dead", **handlers, **config})
        self.letters: list[tuple[TopicPartition, int, OutputRecord]] = []
        self.state = GlobalState(
            describe(settings).plan(settings),
            wall_clock_ms=lambda: 0,
            letters=lambda *letter: self.letters.append(letter),
        )

    def process(self, batch: RecordBatch = POISON) -> None:
        self.state.process(SOURCE, batch)

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.state.stores["rates"].all()]


@pytest.mark.parametrize("describe", [table, store])
def test_the_default_extractor_is_not_for_global_topics(
    describe: Callable[[StreamsConfig], Topology],
) -> None:
    """It dropped rows whose values it does not know, as a negative time drops a record of a task."""
    bench = Bench(describe, "fail", default_timestamp_extractor=lambda record, partition_time: -1)
    bench.process(RecordBatch([b"a"], [b"1"], [5], [7]))
    assert bench.keys == ["a"]


@pytest.mark.parametrize("handler", ["continue", "dead_letter", lambda context, error: "dead_letter"])
@pytest.mark.parametrize(
    ("describe", "operator", "what"),
    [(table, "KSTREAM-SOURCE-0000000000", "could not be deserialized"), (store, "keep", "failed")],
)
def test_a_record_that_fails_costs_itself_and_is_a_complete_letter(
    describe: Any, operator: str, what: str, handler: Any
) -> None:
    """KIP-1295 plans such letters for Kafka Streams; KIP-1270 has the handler."""
    bench = Bench(describe, handler, application_version="7")
    bench.process()
    assert bench.keys == ["a", "c"]
    assert bench.state.drops == {(operator, "dead_letter"): 1}
    assert bench.state.dropped_records == 1
    assert bench.state.positions() == {SOURCE: 10}
    ((source, offset, letter),) = bench.letters
    assert (source, offset) == (SOURCE, 8)
    assert letter[:4] == ("dead", b"b", b"{{{", 2)
    headers = dict(letter.headers)
    assert headers.pop("__streams.errors.stacktrace")
    assert headers.pop("__streams.errors.message")
    assert headers.pop("__streams.errors.exception")
    assert headers == {
        "from": b"x",
        "__streams.errors.topic": b"rates",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"8",
        "__streamapp.errors.application": b"app",
        "__streamapp.errors.version": b"7",
        "__streamapp.errors.task": b"-1_-1",
        "__streamapp.errors.operator": operator.encode(),
        "__streamapp.errors.what": what.encode(),
        "__streamapp.errors.timestamp": b"2",
        "__streamapp.errors.attempt": b"1",
    }


@pytest.mark.parametrize(("describe", "reason"), [(table, "undecodable"), (store, "failed")])
def test_a_record_that_is_skipped_is_counted(describe: Any, reason: str) -> None:
    bench = Bench(describe, "skip")
    bench.process()
    assert (bench.keys, bench.letters) == (["a", "c"], [])
    assert [why for _, why in bench.state.drops] == [reason]


@pytest.mark.parametrize(
    ("describe", "failed"), [(table, "could not be deserialized"), (store, "failed: ValueError")]
)
def test_a_record_that_is_to_stop_the_worker_is_named(describe: Any, failed: str) -> None:
    with pytest.raises(StreamsError, match=f"record of rates-2 at offset 8 {failed}"):
        Bench(describe, "fail").process()


@pytest.mark.parametrize("describe", [table, store])
def test_a_handler_makes_its_own_letters(describe: Any) -> None:
    def choose(context: ErrorContext, error: Exception) -> Response:
        where = f"{context.topic}-{context.partition}@{context.offset}".encode()
        letters = (OutputRecord(topic, context.key, where, None) for topic in ("bad-1", "bad-2"))
        return Response.resume(*letters)

    bench = Bench(describe, choose, dead_letter_queue_topic=None)
    bench.process()
    assert bench.keys == ["a", "c"]
    assert [(letter.topic, letter.value) for _, _, letter in bench.letters] == [
        ("bad-1", b"rates-2@8"),
        ("bad-2", b"rates-2@8"),
    ]


def test_no_handler_is_asked_about_a_disk_or_a_broker() -> None:
    class Damaged(Keep):
        def process(self, record: Any) -> None:
            raise ProcessorStateError("the disk is full")

    builder = StreamsBuilder(StreamsConfig("app", processing_exception_handler="skip"))
    spec = replace(Stores.key_value("rates", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "rates", Damaged, key_serde=TEXT, value_serde=TEXT)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    state = GlobalState(builder.build().plan(), wall_clock_ms=lambda: 0)
    with pytest.raises(StreamsError, match="the disk is full"):
        state.process(SOURCE, POISON)


def test_the_record_under_way_is_known_to_the_watchdog() -> None:
    """A processor of a global store that hung kept the worker ready for ever."""
    seen: list[str | None] = []

    class Looking(Keep):
        def process(self, record: Any) -> None:
            seen.append(state.at)

    builder = StreamsBuilder(StreamsConfig("app"))
    spec = replace(Stores.key_value("rates", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "rates", Looking, key_serde=TEXT, value_serde=TEXT)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    state = GlobalState(builder.build().plan(), wall_clock_ms=lambda: 0)
    state.process(SOURCE, RecordBatch([b"a"], [b"1"], [5], [3], None))
    assert seen == [f"record of {SOURCE} at offset 3"]
    assert state.at is None


def test_dropped_records_become_letters_where_that_is_asked_for() -> None:
    bench = Bench(table, "fail", dead_letter_drops=("null_key",))
    bench.process(RecordBatch([None], [b"1"], [5], [3], None))
    assert [
        (offset, dict(letter.headers)["__streamapp.errors.what"]) for _, offset, letter in bench.letters
    ] == [(3, b"null_key")]


def test_the_test_driver_has_the_letter() -> None:
    config = StreamsConfig(
        "app", deserialization_exception_handler="dead_letter", dead_letter_queue_topic="dead"
    )
    with TopologyTestDriver(table(config)) as driver:
        driver.pipe_raw("rates", b"b", b"{{{", 2)
        (letter,) = driver.produced["dead"]
        assert (letter.key, letter.value) == (b"b", b"{{{")
        assert list(driver.drops.values()) == [1]


# ------------------------------------------------------------------ one of several processes writes


def letters_of(*offsets: int, source: TopicPartition = SOURCE, max_bytes: int = 1_000) -> GlobalLetters:
    letters = GlobalLetters(max_bytes)
    for offset in offsets:
        letters.take(source, offset, OutputRecord("dead", b"k", b"%d" % offset, None))
    return letters


def values(letters: GlobalLetters) -> list[bytes | None]:
    return [letter.value for letter in letters.waiting]


def test_a_process_writes_the_letters_that_no_other_process_has_written() -> None:
    letters = letters_of(3, 5, 5, 9)
    letters.learn({SOURCE: 5})
    assert values(letters) == [b"5", b"5", b"9"]
    assert letters.positions == {SOURCE: 10}
    letters.learn(letters.positions)
    assert not letters
    letters.take(SOURCE, 9, OutputRecord("dead", b"k", b"again", None))
    assert not letters
    assert letters.positions == {SOURCE: 10}


def test_positions_of_other_partitions_stay() -> None:
    letters = letters_of(4)
    other = TopicPartition("rates", 0)
    letters.learn({other: 7})
    assert letters.positions == {other: 7, SOURCE: 5}
    assert values(letters) == [b"4"]


def test_letters_that_wait_have_a_bound() -> None:
    letters = letters_of(1, max_bytes=4)
    assert not letters.full
    letters.take(SOURCE, 2, OutputRecord("dead", b"k", b"2", None))
    assert letters.full
    letters.learn({SOURCE: 2})
    assert not letters.full


@pytest.mark.parametrize("write", ["put", "put_if_absent", "delete"])
def test_a_processor_of_a_task_only_reads_a_global_store(write: str) -> None:
    class Spoil(Keep):
        def process(self, record: Any) -> None:
            assert self.store.get("a") == 1
            assert [*self.store.all()] == [("a", 1)]
            getattr(self.store, write)("a", *([] if write == "delete" else [2]))

    builder = StreamsBuilder(StreamsConfig("app"))
    spec = replace(Stores.key_value("rates", TEXT, LongSerde()), logged=False)
    builder.add_global_store(spec, "rates", Keep, key_serde=TEXT, value_serde=TEXT, name="keep")
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).process(Spoil)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("rates", TEXT, TEXT).pipe_input("a", "1")
        with pytest.raises(StreamsError, match="rates is a global store, which only its topic"):
            driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert driver.store("rates").get("a") == 1
