"""``on_error`` of tables, global tables and global stores: records whose bytes the serdes do not take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamapp import (
    ErrorContext,
    JsonSerde,
    Materialized,
    OutputRecord,
    Processor,
    Record,
    Response,
    Retry,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.desk.trial import try_record
from streamapp.engine.collector import ResultRefused
from streamapp.engine.global_letters import makes_letters
from streamapp.engine.queues import ConsumedRecord
from streamapp.engine.timestamps import wallclock_timestamp
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import RecordBatch
from streamapp.serdes import LongSerde

from .support import CONFIG, TEXT, feed, task_of

NUMBER = LongSerde()
BAD = b"{{{"


class Keep(Processor[str, Any, None, None]):
    def process(self, record: Record[str, Any]) -> None:
        if record.value == "worse":
            raise ValueError("worse")
        self.context.get_state_store("rows").put(record.key, record.value)


ROWS: dict[str, Any] = {"key_serde": TEXT, "value_serde": JsonSerde(), "name": "rows"}


def table(builder: StreamsBuilder, on_error: Any) -> None:
    builder.table("rows", **ROWS, materialized=Materialized("rows"), on_error=on_error)


def global_table(builder: StreamsBuilder, on_error: Any) -> None:
    builder.global_table("rows", **ROWS, materialized=Materialized("rows"), on_error=on_error)


def global_store(builder: StreamsBuilder, on_error: Any) -> None:
    spec = replace(Stores.key_value("rows", TEXT, JsonSerde()), logged=False)
    builder.add_global_store(spec, "rows", Keep, **ROWS, on_error=on_error)


Describe = Callable[[StreamsBuilder, Any], None]
SOURCES = pytest.mark.parametrize("describe", [table, global_table, global_store])
GLOBALS = pytest.mark.parametrize("describe", [global_table, global_store])


def built(describe: Describe, on_error: Any = None, config: StreamsConfig = CONFIG) -> Any:
    builder = StreamsBuilder(config)
    describe(builder, on_error)
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    return builder.build()


def driven(describe: Describe, on_error: Any, config: StreamsConfig = CONFIG) -> TopologyTestDriver:
    driver = TopologyTestDriver(built(describe, on_error, config))
    driver.pipe_raw("rows", b"a", b"1", 1)
    driver.pipe_raw("rows", b"a", BAD, 2)
    driver.pipe_raw("rows", b"b", b"3", 3)
    return driver


def rows(driver: TopologyTestDriver) -> dict[str, Any]:
    return {key: row[0] if isinstance(row, tuple) else row for key, row in driver.store("rows").all()}


@SOURCES
@pytest.mark.parametrize("answer", ["skip", "dead_letter", "continue", lambda context, error: "dead_letter"])
def test_the_row_stays_as_before_the_record(describe: Describe, answer: Any) -> None:
    with driven(describe, answer) as driver:
        assert rows(driver) == {"a": 1, "b": 3}
        letters = [(each.key, each.value) for each in driver.produced.get("dead", ())]
        assert letters == ([] if answer == "skip" else [(b"a", BAD)])
        reason = "undecodable" if answer == "skip" else "dead_letter"
        assert driver.drops == {("rows-source", reason): 1}


@SOURCES
def test_the_source_answers_before_the_configuration(describe: Describe) -> None:
    lenient = CONFIG.replace(deserialization_exception_handler="skip", processing_exception_handler="skip")
    with pytest.raises(StreamsError, match=r"rows-source .*record of rows-0 at offset 1 could not be des"):
        driven(describe, "fail", lenient)
    with driven(describe, None, lenient) as driver:
        assert rows(driver) == {"a": 1, "b": 3}


@SOURCES
def test_a_function_chooses_by_record_and_makes_its_own_letters(describe: Describe) -> None:
    def choose(context: ErrorContext, error: Exception) -> Response:
        about = f"{context.processor} {context.topic}@{context.offset} {type(error).__name__}"
        return Response.resume(OutputRecord("bad", context.key, about.encode(), None))

    with driven(describe, choose, CONFIG.replace(dead_letter_queue_topic=None)) as driver:
        (letter,) = driver.produced["bad"]
        assert letter.value == b"rows-source rows@1 SerializationError"


@SOURCES
def test_a_retry_is_refused(describe: Describe) -> None:
    with pytest.raises(TopologyError, match=r"rows.*(gets no better by a retry|cannot have on_error=Retry)"):
        built(describe, Retry.by_key())


@SOURCES
def test_a_word_that_is_none_is_refused(describe: Describe) -> None:
    with pytest.raises(ConfigError, match=r"on_error of rows \(topic rows\) is"):
        built(describe, "ignore")


@SOURCES
def test_letters_without_a_topic_are_refused(describe: Describe) -> None:
    topology = built(describe, "dead_letter", StreamsConfig("app"))
    with pytest.raises(
        ConfigError, match=r"rows-source \(topic rows\) sends records to the dead letters.*dead_letter_queue"
    ):
        topology.plan()


def test_the_processor_of_a_global_store_is_answered_for() -> None:
    with driven(global_store, "dead_letter") as driver:
        driver.pipe_raw("rows", b"c", b'"worse"', 4)
        assert rows(driver) == {"a": 1, "b": 3}
        assert [letter.key for letter in driver.produced["dead"]] == [b"a", b"c"]
        assert driver.drops == {("rows-source", "dead_letter"): 1, ("rows", "dead_letter"): 1}


@SOURCES
def test_a_trial_raises_whatever_on_error_says(describe: Describe) -> None:
    topology = built(describe, "skip")
    assert try_record(topology, CONFIG, "rows", b"a", BAD, 1).drops
    with pytest.raises(StreamsError, match="could not be deserialized"):
        try_record(topology, CONFIG, "rows", b"a", BAD, 1, raises=True)
    if describe is global_store:
        with pytest.raises(StreamsError, match="worse"):
            try_record(topology, CONFIG, "rows", b"a", b'"worse"', 1, raises=True)


@GLOBALS
def test_a_worker_looks_for_letters_that_only_on_error_makes(describe: Describe) -> None:
    def own(context: ErrorContext, error: Exception) -> Response:
        return Response.resume()

    bare = StreamsConfig("app")
    assert makes_letters(built(describe, own, bare).plan())
    assert not makes_letters(built(describe, "skip", bare).plan())
    with_topic = bare.replace(dead_letter_queue_topic="dead", deserialization_exception_handler="continue")
    assert makes_letters(built(describe, None, with_topic).plan())
    assert makes_letters(built(describe, "dead_letter", with_topic).plan())
    assert not makes_letters(built(describe, "skip", with_topic).plan())


@GLOBALS
def test_a_worker_looks_for_letters_of_records_that_global_tables_drop(describe: Describe) -> None:
    """A worker that did not look would write these letters again after each start."""
    config = StreamsConfig("app", dead_letter_queue_topic="dead", dead_letter_drops=("null_key",))
    topology = built(describe, "skip", config)
    assert makes_letters(topology.plan())
    if describe is global_table:
        with TopologyTestDriver(topology) as driver:
            driver.pipe_raw("rows", None, b"1", 1)
            assert driver.create_output_topic("dead", TEXT, TEXT).read_values() == ["1"]


@GLOBALS
def test_the_log_does_not_say_that_each_process_sends_the_letter(
    describe: Describe, caplog: pytest.LogCaptureFixture
) -> None:
    with driven(describe, "dead_letter"):
        (message,) = caplog.messages
    assert message.endswith(
        "; going on without it; one process of the application writes its dead letter to dead, once"
    )


# ------------------------------------------------------------------ a source topic that is the changelog


def optimized(on_error: Any, serde: Any = NUMBER, handler: Any = "fail") -> Any:
    config = CONFIG.replace(topology_optimization="all", deserialization_exception_handler=handler)
    builder = StreamsBuilder(config)
    builder.table(
        "rows", key_serde=TEXT, value_serde=serde, materialized=Materialized("rows"), on_error=on_error
    )
    return builder, config


GOOD, MORE = (5).to_bytes(8, "big"), (6).to_bytes(8, "big")


@pytest.mark.parametrize(("answer", "handler"), [("skip", "fail"), ("dead_letter", "fail"), (None, "skip")])
def test_a_restore_leaves_out_what_the_source_has_left_out(answer: Any, handler: Any) -> None:
    """Kafka Streams restores such a record as a row (KAFKA-8037)."""
    builder, config = optimized(answer, handler=handler)
    first, _ = task_of(builder, config=config)
    feed(first, "rows", [("a", GOOD, 1), ("a", b"short", 2), ("b", MORE, 3)])
    first.process()
    second, _ = task_of(builder, config=config, init=False)
    second.restore("rows", RecordBatch([b"a"] * 2 + [b"b"], [GOOD, b"short", MORE], [1, 2, 3], range(3)))
    second.restore("rows", RecordBatch([b"b"], [b"also short"], [4], [3]))
    second.init()
    assert (
        list(second.store("rows").all()) == list(first.store("rows").all()) == [("a", (5, 1)), ("b", (6, 3))]
    )
    assert second.changelog_offsets == {"rows": 4}


def test_a_restore_leaves_out_what_the_extractor_has_dropped_and_keeps_its_timestamps() -> None:
    """A record without a timestamp became a row. A versioned table lost the rows whose time the extractor had given."""

    def twice(record: ConsumedRecord, partition_time: int) -> int:
        if record.timestamp == 9:
            raise ValueError("no time")
        return record.timestamp * 2

    config = CONFIG.replace(topology_optimization="all", default_timestamp_extractor=twice)
    builder = StreamsBuilder(config)
    builder.table("rows", key_serde=TEXT, value_serde=NUMBER, materialized=Materialized("rows"))
    first, _ = task_of(builder, config=config)
    feed(first, "rows", [("a", GOOD, 1), ("a", MORE, -1), ("b", MORE, 3)])
    first.process()
    second, _ = task_of(builder, config=config, init=False)
    second.restore("rows", RecordBatch([b"a", b"a", b"b"], [GOOD, MORE, MORE], [1, -1, 3], range(3)))
    second.restore("rows", RecordBatch([b"c"], [GOOD], [9], [3]))
    second.init()
    rows = [("a", (5, 2)), ("b", (6, 6))]
    assert list(first.store("rows").all()) == rows
    assert list(second.store("rows").all()) == [*rows, ("c", (5, 9))]
    assert second.changelog_offsets == {"rows": 4}


def test_a_restore_does_not_give_rows_the_time_of_the_restore() -> None:
    config = CONFIG.replace(topology_optimization="all", default_timestamp_extractor=wallclock_timestamp)
    builder = StreamsBuilder(config)
    builder.table("rows", key_serde=TEXT, value_serde=NUMBER, materialized=Materialized("rows"))
    task, _ = task_of(builder, config=config, init=False)
    task.restore("rows", RecordBatch([b"a", b"b"], [GOOD, MORE], [5, -1], range(2)))
    task.init()
    (_, first), (_, (value, time)) = task.store("rows").all()
    assert first == (5, 5)
    assert value == 6
    assert time > 5  # a record without a timestamp has no other time


def test_a_restore_that_cannot_reach_the_registry_does_not_leave_rows_out() -> None:
    class Registered(LongSerde):
        def deserialize(self, data: bytes) -> int:
            raise BrokerError("the registry does not answer")

    builder, config = optimized("skip", Registered())
    task, _ = task_of(builder, config=config, init=False)
    with pytest.raises(BrokerError, match="the registry does not answer"):
        task.restore("rows", RecordBatch([b"a"], [GOOD], [1], [0]))
    assert task.changelog_offsets == {}


# ------------------------------------------------------------------ a record whose time brokers refuse


@pytest.mark.parametrize("most", [5_000, 500])
def test_a_letter_that_brokers_refuse_for_its_time_gets_that_of_the_clock(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poison with a time far ahead would end each worker anew. A letter that is refused for other reasons still does."""
    builder = StreamsBuilder(CONFIG.replace(dead_letter_queue_topic="dead"))
    builder.stream("in", key_serde=TEXT, value_serde=JsonSerde(), on_error="dead_letter").to(
        "out", value_serde=JsonSerde()
    )
    send = TopologyTestDriver.send

    def refusing(driver: TopologyTestDriver, topic: str, *record: Any) -> None:
        if topic == "dead" and record[2] > most:
            raise ResultRefused("out of range", "")
        send(driver, topic, *record)

    monkeypatch.setattr(TopologyTestDriver, "send", refusing)
    with TopologyTestDriver(builder.build(), initial_wall_clock_ms=1_000) as driver:
        if most < 1_000:
            with pytest.raises(StreamsError, match="out of range"):
                driver.pipe_raw("in", b"k", BAD, 9_000)
            return
        driver.pipe_raw("in", b"k", BAD, 9_000)
        driver.pipe_raw("in", b"k", BAD, 4_000)
        assert [letter.timestamp for letter in driver.produced["dead"]] == [1_000, 4_000]
