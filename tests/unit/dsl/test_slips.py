"""Slips of a newcomer: an error names each slip at its place, with the right way to write the line."""

from __future__ import annotations

import warnings

import pytest

from streamapp import (
    JoinWindows,
    LongSerde,
    Materialized,
    Processor,
    SessionWindows,
    SlidingWindows,
    Stores,
    StoreSpec,
    StreamsBuilder,
    StreamsError,
    StringSerde,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
    ValueTransformer,
)

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


@pytest.fixture
def builder():
    return StreamsBuilder()


@pytest.fixture
def words(builder):
    return builder.stream("words", **TEXT)


@pytest.fixture
def table(builder):
    return builder.table("rows", **TEXT)


@pytest.mark.parametrize(
    ("windows", "name", "says"),
    [
        (TimeWindows, "of_size", "of_size_with_no_grace"),
        (TimeWindows, "ofSizeWithNoGrace", "did you mean of_size_with_no_grace"),
        (TimeWindows, "tumbling", None),  # a property
        (SessionWindows, "with_gap", "of_inactivity_gap_and_grace"),
        (SlidingWindows, "of_time_difference", "of_time_difference_and_grace"),
        (JoinWindows, "of_time_difference", "of_time_difference_and_grace"),
    ],
)
def test_constructors_of_windows_that_there_are_not(windows, name, says):
    if says is None:
        getattr(windows, name)
        return
    with pytest.raises(AttributeError, match=says):
        getattr(windows, name)


def test_methods_of_another_kind_of_thing(words, table):
    with pytest.raises(AttributeError, match=r"KTable has no to; .*table\.to_stream\(\)\.to\(topic\)"):
        table.to("out")
    with pytest.raises(AttributeError, match=r"KStream has no count; group first"):
        words.count()
    with pytest.raises(AttributeError, match="KStream has no groupByKey; did you mean group_by_key"):
        words.groupByKey()
    assert not hasattr(words, "__no_such__")


def test_a_branch_has_the_name_of_the_split_in_front(words):
    branches = words.split("by-").branch(lambda key, word: word > "m", "luxury").default_branch("rest")
    with pytest.raises(KeyError, match="no branch luxury.*The branches are by-luxury, by-rest"):
        branches["luxury"]
    assert branches.get("luxury") is None
    assert list(branches) == ["by-luxury", "by-rest"]


class ForwardsParts(Processor):
    def process(self, record):
        self.context.forward(record.key, 3)


@pytest.mark.parametrize(
    ("describe", "says"),
    [
        (lambda words: words.process(ForwardsParts), r"takes a Record, as in forward\(record.with_value"),
        (lambda words: words.map(lambda key, word: word), r"map\(\) has to give \(key, value\), not 'to'"),
        (
            lambda words: words.flat_map(lambda key, word: [word]),
            r"flat_map\(\) has to give \(key, value\), not 'to'",
        ),
    ],
    ids=["forward", "map", "flat_map"],
)
def test_results_of_the_wrong_shape(builder, words, describe, says):
    describe(words).to("out", **TEXT)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(StreamsError, match=says):
        driver.create_input_topic("words", **TEXT).pipe_input("a", "to")


def test_a_pair_may_be_a_list(builder, words):
    words.map(lambda key, word: [word, key]).to("out", **TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("words", **TEXT).pipe_input("a", "to")
        assert driver.create_output_topic("out", **TEXT).read_key_value() == ("to", "a")


def test_functions_that_take_the_key_as_well(words, table):
    with pytest.raises(TopologyError, match="with with_key=True the key comes first"):
        words.join(table, lambda key, word, row: word)
    for described in (words, table):
        with pytest.raises(TopologyError, match="with with_key=True the key comes first"):
            described.map_values(lambda key, word: word)


def test_a_topic_that_nobody_wrote_to(builder, words):
    words.to("loud")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("words", **TEXT).pipe_input("a", "to")
        with pytest.raises(
            LookupError, match="nothing was written to topic lodu; .*: loud; did you mean loud"
        ):
            driver.create_output_topic("lodu", **TEXT).read_value()
        read = driver.create_output_topic("loud", **TEXT)
        read.read_value()
        with pytest.raises(LookupError, match="no record left to read in topic loud"):
            read.read_value()


class Keeps(Processor):
    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec

    def process(self, record): ...


class KeepsSupplier:
    def __init__(self, spec: StoreSpec) -> None:
        self.stores = (spec,)

    def __call__(self):
        return Keeps(self.stores[0])


def test_two_stores_of_one_name_are_named_with_their_owners(builder, words):
    def store():
        return Stores.key_value("seen", StringSerde(), StringSerde())

    words.process(KeepsSupplier(store()), name="first")
    words.process(KeepsSupplier(store()), name="second")
    with pytest.raises(TopologyError, match=r"name seen by first.*give one of the two another name"):
        builder.build()


@pytest.mark.parametrize(
    "describe",
    [
        lambda words: words.group_by_key().count(materialized=Materialized(key_serde=LongSerde())),
        lambda words: (
            words.group_by_key()
            .windowed_by(TimeWindows.of_size_with_no_grace(5))
            .count(materialized=Materialized(key_serde=LongSerde()))
        ),
        lambda words: words.group_by_key().count(materialized=Materialized(value_serde=StringSerde())),
        lambda words: words.group_by_key().reduce(max, materialized=Materialized(value_serde=LongSerde())),
        lambda words: words.to_table(materialized=Materialized(value_serde=LongSerde())),
    ],
)
def test_a_serde_that_no_row_fits(words, describe):
    with pytest.raises(TopologyError, match=r"Materialized\((key|value)_serde=.*leave (key|value)_serde out"):
        describe(words)


class NoInit:
    def transform(self, key, value):
        return value


class NoInitProcessor:
    def process(self, record): ...


def test_transformers_and_processors_without_a_life(words, table):
    with pytest.raises(
        TopologyError, match=r"NoInit, .* has no init\(\); derive the class from ValueTransformer"
    ):
        table.transform_values(NoInit)
    with pytest.raises(
        TopologyError, match=r"NoInitProcessor, .* has no init\(\); derive the class from Processor"
    ):
        words.process(lambda: NoInitProcessor())

    class Derived(NoInit, ValueTransformer): ...

    table.transform_values(Derived)


def test_a_forgotten_return_is_noticed(builder, words):
    def long_words(key, word):
        len(word) > 3  # noqa: B015

    def total(key, word, sum):
        sum + len(word)

    def sometimes(key, word):
        return True if word == "to" else None

    words.filter(long_words, name="long").to("out")
    words.filter(sometimes)
    words.filter_not(long_words, name="short").to("short")
    words.group_by_key().aggregate(
        int, total, materialized=Materialized(value_serde=LongSerde()), name="total"
    )
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("words", **TEXT).pipe_key_values([("a", "to"), ("a", "be")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        driver.close()
    said = [str(warning.message) for warning in caught]
    assert [message.split(":")[0] for message in said] == ["long", "short", "total"]
    assert "gave None for each of 2 records, which drops each record; is a return missing?" in said[0]
    assert "which keeps each record" in said[1]
    assert "test_slips.py" in said[0]
