"""A record that was held back and fails later is reported as itself: never with the bytes of the record that let it go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streamapp import (
    BufferConfig,
    BytesSerde,
    JoinWindows,
    Materialized,
    OutputRecord,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    Suppressed,
    TopologyTestDriver,
)
from streamapp.engine.current_record import CurrentRecord
from streamapp.records import RecordBatch, RecordContext
from streamapp.state.write_behind import WriteBehindStore
from tests.unit.engine.support import feed, task_of

TEXT = StringSerde()
TEXTS = {"key_serde": TEXT, "value_serde": TEXT}


def config(cache_bytes=0):
    return StreamsConfig(
        "test",
        processing_exception_handler="continue",
        dead_letter_queue_topic="dead",
        statestore_cache_max_bytes=cache_bytes,
    )


def letters_of(records):
    """(source topic, partition, offset, key, value, timestamp) of each dead letter."""
    letters = []
    for letter in records:
        if letter.topic == "dead":
            of = {name: None if value is None else value.decode() for name, value in letter.headers}
            source = [of[f"__streams.errors.{part}"] for part in ("topic", "partition", "offset")]
            key, value = (None if data is None else data.decode() for data in (letter.key, letter.value))
            letters.append((source[0], int(source[1]), int(source[2]), key, value, letter.timestamp))
    return letters


class Letters:
    """A driver whose operators fail for the value ``bad``; the dead letters say whose record failed."""

    def __init__(self, builder):
        self.driver = TopologyTestDriver(builder.build(), config())
        self.letters = self.driver.create_output_topic("dead", BytesSerde(), BytesSerde())

    def pipe(self, topic, key, value, timestamp):
        self.driver.create_input_topic(topic, TEXT, TEXT).pipe_input(key, value, timestamp)

    def read(self):
        read = []
        while not self.letters.is_empty:
            read.append(OutputRecord("dead", *self.letters.read_record()[:4]))
        return letters_of(read)


def fail_for_bad(key, value):
    if value == "bad":
        raise ValueError("bad")
    return value


def test_an_update_that_a_suppression_held_back():
    builder = StreamsBuilder()
    left = builder.stream("left", **TEXTS).to_table(materialized=Materialized("lefts"))
    right = builder.table("right", **TEXTS)
    held = left.outer_join(right, lambda a, b: a or b, materialized=Materialized("joined", **TEXTS)).suppress(
        Suppressed.until_time_limit(timedelta(milliseconds=10), BufferConfig.unbounded())
    )
    held.to_stream().map_values(fail_for_bad, with_key=True).to("out", **TEXTS)
    letters = Letters(builder)
    letters.pipe("left", "a", "bad", 0)
    assert letters.read() == []
    letters.pipe("right", "b", "good", 100)
    assert letters.read() == [("left", 0, 0, None, None, 0)]


def test_a_record_that_a_join_with_grace_held_back():
    builder = StreamsBuilder()
    versioned = Materialized("rights", history_retention=timedelta(hours=1))
    table = builder.table("right", **TEXTS, materialized=versioned)
    builder.stream("left", **TEXTS).left_join(
        table, lambda a, b: fail_for_bad(None, a), grace=timedelta(milliseconds=10)
    ).to("out", **TEXTS)
    letters = Letters(builder)
    letters.pipe("left", "a", "bad", 0)
    assert letters.read() == []
    letters.pipe("left", "b", "good", 100)
    assert letters.read() == [("left", 0, 0, None, None, 0)]


def test_a_held_record_that_fails_leaves_the_buffer_and_holds_up_no_other():
    builder = StreamsBuilder()
    versioned = Materialized("rights", history_retention=timedelta(hours=1))
    table = builder.table("right", **TEXTS, materialized=versioned)
    builder.stream("left", **TEXTS).left_join(
        table, lambda a, b: fail_for_bad(None, a), grace=timedelta(milliseconds=10)
    ).to("out", **TEXTS)
    letters = Letters(builder)
    out = letters.driver.create_output_topic("out", TEXT, TEXT)
    for key, value, timestamp in (("a", "bad", 0), ("b", "b", 1), ("c", "c", 100), ("d", "d", 200)):
        letters.pipe("left", key, value, timestamp)
    assert letters.read() == [("left", 0, 0, None, None, 0)]
    assert out.read_values() == ["b", "c"]


def test_the_error_names_the_record_that_was_held_back():
    builder = StreamsBuilder()
    table = builder.table("left", **TEXTS, materialized=Materialized("lefts"))
    held = table.suppress(Suppressed.until_time_limit(timedelta(milliseconds=10), BufferConfig.unbounded()))
    held.to_stream().map_values(fail_for_bad, with_key=True).to("out", **TEXTS)
    task, _ = task_of(builder)
    feed(task, "left", [("a", "bad", 0), ("b", "good", 100)], offset=5)
    with pytest.raises(StreamsError, match="record of left-0 at offset 5 failed: ValueError: bad"):
        task.process()


@pytest.mark.parametrize("cache_bytes", [1_000_000, 100], ids=["commit", "eviction"])
def test_an_update_that_a_record_cache_held_back(cache_bytes):
    builder = StreamsBuilder()
    table = builder.table("left", **TEXTS, materialized=Materialized("lefts"))
    table.to_stream().map_values(fail_for_bad, with_key=True).to("out", **TEXTS)
    task, sent = task_of(builder, config=config(cache_bytes))
    feed(task, "left", [("a", "bad", 0), ("b", "good", 1), ("c", "good", 2)], offset=5)
    task.process()
    assert len(letters_of(sent.records)) == (1 if cache_bytes == 100 else 0)
    task.flush()
    assert letters_of(sent.records) == [("left", 0, 5, "a", "bad", 0)]


def test_the_letter_of_a_cached_count_has_the_record_of_the_last_update():
    builder = StreamsBuilder()
    counts = builder.stream("left", **TEXTS).group_by_key(**TEXTS).count(materialized=Materialized("counts"))
    counts.to_stream().foreach(lambda key, count: 1 / 0)
    task, sent = task_of(builder, config=config(1_000_000))
    feed(task, "left", [("a", "one", 0), ("b", "two", 1), ("a", "three", 2)], offset=5)
    task.process()
    task.flush()
    assert letters_of(sent.records) == [("left", 0, 6, "b", "two", 1), ("left", 0, 7, "a", "three", 2)]
    entries = task.store("counts")._held.values()
    assert {(entry.source_raw_key, entry.source_raw_value) for entry in entries} == {(None, None)}


@pytest.mark.parametrize(
    ("kept", "settings"),
    [
        (False, {}),
        (True, {"dead_letter_queue_topic": "dead"}),
        (True, {"processing_exception_handler": lambda context, error: "fail"}),
        (True, {"production_exception_handler": lambda context, error: "fail"}),
    ],
)
def test_a_record_cache_keeps_source_bytes_only_if_there_may_be_letters(kept, settings):
    builder = StreamsBuilder()
    builder.table("left", **TEXTS, materialized=Materialized("lefts")).to_stream().to("out", **TEXTS)
    task, _ = task_of(builder, config=StreamsConfig("test", **settings))
    feed(task, "left", [("a", "good", 0)])
    task.process()
    store = task.store("lefts")
    (entry,) = store._held.values()
    assert (entry.source_raw_key, entry.source_raw_value) == ((b"a", b"good") if kept else (None, None))
    feed(task, "left", [("a", "gooood", 1), ("b", "good", 2)], offset=5)
    task.process()
    rows = WriteBehindStore.dirty_bytes.fget(store)
    assert store.dirty_bytes - rows == (len("agooood" + "bgood") if kept else 0)
    task.flush()
    assert store.dirty_bytes == rows


@pytest.mark.parametrize("place", ["operator", "table", "sink"])
def test_a_function_as_on_error_gets_the_bytes_of_a_cached_row(place):
    asked = []

    def chooses(context, error):
        asked.append((context.offset, context.key, context.value))
        return "skip"

    answers = {name: chooses if name == place else None for name in ("operator", "table", "sink")}

    class Fails(StringSerde):
        def serialize(self, value):
            raise ValueError("bad")

    builder = StreamsBuilder()
    rows = builder.table("left", **TEXTS, materialized=Materialized("lefts"))
    if place == "table":
        rows = rows.map_values(lambda value: fail_for_bad(None, value), on_error=answers["table"])
    stream = rows.to_stream()
    if place == "operator":
        stream = stream.map_values(lambda value: fail_for_bad(None, value), on_error=answers["operator"])
    fails = Fails() if place == "sink" else TEXT
    stream.to("out", key_serde=TEXT, value_serde=fails, on_error=answers["sink"])
    task, _ = task_of(builder, config=StreamsConfig("test"))
    feed(task, "left", [("a", "bad", 0)], offset=5)
    task.process()
    task.flush()
    assert asked == [(5, b"a", b"bad")]


def test_a_row_whose_time_to_live_is_over_belongs_to_the_record_that_moved_the_time():
    builder = StreamsBuilder()
    rows = builder.table("left", **TEXTS, materialized=Materialized("lefts", ttl=timedelta(milliseconds=10)))
    rows.to_stream().foreach(lambda key, value: 1 / 0 if value is None else None)
    letters = Letters(builder)
    letters.pipe("left", "a", "good", 0)
    letters.pipe("left", "b", "good", 100)
    assert letters.read() == [("left", 0, 1, "b", "good", 10)]


class Forwards(Processor):
    """Forwards another timestamp, and goes on with its own record."""

    def init(self, context):
        self.context = context
        context.schedule(timedelta(milliseconds=50), PunctuationType.STREAM_TIME, self.punctuate)

    def process(self, record):
        self.context.forward(record.with_timestamp(7))
        if record.value == "raises":
            raise ValueError("raises")

    def punctuate(self, time):
        self.context.forward(Record("t", "bad", time))


def test_a_processor_goes_on_with_its_own_record_behind_a_forward_that_fails():
    builder = StreamsBuilder()
    builder.stream("left", **TEXTS).process(Forwards).map_values(fail_for_bad, with_key=True).to(
        "out", **TEXTS
    )
    letters = Letters(builder)
    letters.pipe("left", "a", "bad", 1)
    letters.pipe("left", "a", "raises", 2)
    # The first punctuation comes with the first record.
    assert letters.read() == [
        ("left", 0, 0, "a", "bad", 7),
        (None, -1, -1, None, None, 1),
        ("left", 0, 1, "a", "raises", 2),
    ]


def test_a_record_that_a_stream_join_held_back_belongs_to_the_record_that_closed_its_window():
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXTS), builder.stream("right", **TEXTS)
    joined = left.left_join(
        right, lambda a, b: a, JoinWindows.of_time_difference_with_no_grace(timedelta(milliseconds=10))
    )
    joined.map_values(fail_for_bad, with_key=True).to("out", **TEXTS)
    letters = Letters(builder)
    letters.pipe("left", "a", "bad", 0)
    letters.pipe("left", "b", "good", 100)
    assert letters.read() == [("left", 0, 1, "b", "good", 100)]


@pytest.mark.parametrize("offsets", [[2, 3, 4], [2, 4, 5], [0, 2, 4], [4, 6, 7], [1, 3, 4]])
def test_the_bytes_of_a_record_among_records_with_missing_offsets(offsets):
    record = CurrentRecord()
    record.topic, record.offset = "right", 4
    record.batch = RecordBatch([b"%d" % offset for offset in offsets], [None] * 3, [0] * 3, offsets)
    assert record.source_bytes() == (b"4", None)


def test_work_as_another_record_ends_with_the_call():
    record = CurrentRecord()
    record.partition, record.topic, record.offset = 3, "right", 4
    record.timestamp, record.batch = 50, RecordBatch([b"k", b"l"], [b"v", b"w"], [40, 50], [2, 4])
    mine = RecordContext("right", 3, 4, 50, (), b"l", b"w")
    held = RecordContext("left", 3, 0, 10, (("h", b"1"),), b"a", None)
    seen = []

    def fails():
        seen.append(record.record_context)
        raise ValueError("held")

    assert record.record_context == mine
    with pytest.raises(ValueError, match="held"):
        record.work_as(held, fails)
    assert seen == [held]
    assert record.record_context == mine
    assert record.work_as(RecordContext(None, -1, -1, 60), lambda: record.record_context) == RecordContext(
        None, -1, -1, 60
    )
