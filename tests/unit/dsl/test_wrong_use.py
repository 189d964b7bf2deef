"""What cannot be right is refused when it is described, with the operator, the reason and what to do."""

from __future__ import annotations

import functools
import pickle
import re
from datetime import timedelta
from pathlib import Path

import pytest

from streamapp import (
    BufferConfig,
    ConfigError,
    JoinWindows,
    LongSerde,
    Materialized,
    Processor,
    Record,
    Retry,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.serdes import SessionWindowedSerde, TimeWindowedSerde

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}
NUMBERS = Materialized(value_serde=LongSerde())
NEAR = JoinWindows.of_time_difference_with_no_grace(5)
HOURLY = TimeWindows.of_size_with_no_grace(5)


class Shared(Processor):
    def process(self, record: Record) -> None: ...


SHARED = Shared()
GLOBAL = Stores.key_value("g", StringSerde(), StringSerde())


class Counting(Shared):
    stores = (Stores.key_value("counts", StringSerde(), StringSerde()),)


class Unlisted(Shared):
    def stores(self) -> None: ...


def driven(use):
    with TopologyTestDriver(Described().build()) as driver:
        use(driver)


class Described:
    """A builder with a stream ``in``, a table ``rows`` and the stream grouped; all that a case needs."""

    def __init__(self):
        self.builder = StreamsBuilder()
        self.stream = self.builder.stream("in", **TEXT, name="flights")
        self.table = self.builder.table("rows", **TEXT, name="gates")
        self.grouped = self.stream.group_by_key()
        self.windowed = self.grouped.windowed_by(HOURLY)

    def build(self, *_):
        return self.builder.build()


async def late_or_not(key, value):
    return True


class Awaited:
    async def __call__(self, key, value):
        return True


def other():
    return StreamsBuilder().stream("elsewhere", **TEXT, name="foreign")


FUNCTIONS = {
    "filter": (lambda d: d.stream.filter(lambda v: True), r"filter\(\) of flights .* <lambda> takes \(v\)"),
    "filter by a coroutine": (
        lambda d: d.stream.filter(late_or_not),
        r"filter\(\) of flights .* late_or_not is a coroutine function, .* map_async",
    ),
    "filter by a part of a coroutine": (
        lambda d: d.stream.filter(functools.partial(late_or_not)),
        r"filter\(\) of flights .* partial is a coroutine function",
    ),
    "filter by an object whose call is a coroutine": (
        lambda d: d.stream.filter(Awaited()),
        r"filter\(\) of flights .* Awaited is a coroutine function",
    ),
    "filter_not": (
        lambda d: d.stream.filter_not("late"),
        r"filter_not\(\) of flights needs a predicate .* got 'late'",
    ),
    "map": (lambda d: d.stream.map(lambda v: v), r"map\(\) of flights .* called with 2 arguments"),
    "map_values": (
        lambda d: d.stream.map_values(lambda k, v: v),
        r"map_values\(\) of flights .* called with 1 argument,",
    ),
    "map_values with key": (
        lambda d: d.stream.map_values(lambda v: v, with_key=True),
        "function of key and value",
    ),
    "flat_map": (lambda d: d.stream.flat_map(lambda v: v), r"flat_map\(\) of flights"),
    "flat_map_values": (
        lambda d: d.stream.flat_map_values(lambda k, v: v),
        r"flat_map_values\(\) of flights",
    ),
    "select_key": (lambda d: d.stream.select_key(lambda v: v), r"select_key\(\) of flights"),
    "peek": (lambda d: d.stream.peek(lambda v: v), r"peek\(\) of flights"),
    "foreach": (lambda d: d.stream.foreach(None), r"foreach\(\) of flights .* got None"),
    "branch": (lambda d: d.stream.split("by-").branch(lambda v: True), "by- needs a predicate"),
    "to by function": (
        lambda d: d.stream.to(lambda v: "out"),
        "a topic, or a function of key, value and context",
    ),
    "partitioner": (
        lambda d: d.stream.to("out", partitioner=lambda k: 0),
        "a partitioner of topic, key, value",
    ),
    "repartition by": (
        lambda d: d.stream.repartition(partitioner=3),
        r"repartition\(\) of flights needs a partitioner",
    ),
    "group_by": (lambda d: d.stream.group_by(lambda v: v), r"group_by\(\) of flights"),
    "reduce": (lambda d: d.grouped.reduce(lambda v: v), r"reduce\(\) of flights"),
    "initializer": (lambda d: d.grouped.aggregate(0, max), "an initializer without arguments, got 0"),
    "initializer takes": (lambda d: d.grouped.aggregate(lambda k: 0, max), "called with no arguments"),
    "aggregator": (
        lambda d: d.grouped.aggregate(int, lambda v, a: a),
        r"aggregate\(\) of flights .* \(v, a\)",
    ),
    "windowed": (lambda d: d.windowed.aggregate(int, lambda v, a: a), r"aggregate\(\) of flights"),
    "merger": (
        lambda d: d.grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).aggregate(
            int, lambda k, v, a: a, lambda a, b: a
        ),
        "a merger of key and two aggregates",
    ),
    "cogroup": (lambda d: d.grouped.cogroup(lambda v, a: a), r"cogroup\(\) of flights"),
    "merger of a cogroup": (
        lambda d: (
            d.grouped.cogroup(lambda k, v, a: a)
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
            .aggregate(int, lambda a, b: a)
        ),
        r"aggregate\(\) of flights needs a merger of key and two aggregates",
    ),
    "joiner": (
        lambda d: d.stream.join(d.table, lambda a: a),
        "the join of flights needs a joiner of left and right",
    ),
    "joiner with key": (
        lambda d: d.stream.join(d.table, lambda a, b: a, with_key=True),
        "a joiner of key, left and",
    ),
    "table filter": (lambda d: d.table.filter(lambda v: True), r"filter\(\) of gates"),
    "table map_values": (lambda d: d.table.map_values(lambda k, v: v), r"map_values\(\) of gates"),
    "table group_by": (lambda d: d.table.group_by(lambda v: v), r"group_by\(\) of gates"),
    "table join": (lambda d: d.table.join(d.table, lambda a: a), "the join of gates"),
    "foreign key": (
        lambda d: d.table.join(d.table, max, foreign_key=lambda k, v: v),
        "extracts the foreign key",
    ),
    "to_stream": (lambda d: d.table.to_stream(lambda v: v), "a key selector of key and value"),
    "adder": (
        lambda d: d.table.group_by(lambda k, v: (k, v), **TEXT).reduce(lambda a: a, max),
        "an adder of",
    ),
    "subtractor": (lambda d: d.table.group_by(lambda k, v: (k, v), **TEXT).reduce(max, 5), "a subtractor of"),
    "extractor": (
        lambda d: d.builder.stream("x", **TEXT, timestamp_extractor=lambda r: 1),
        "a timestamp extractor",
    ),
    "extractor of a table": (
        lambda d: d.builder.table("x", **TEXT, timestamp_extractor=5),
        "a timestamp extractor",
    ),
}

ARGUMENTS = {
    "topic": (lambda d: d.builder.stream(5, **TEXT), "a list of names, or a compiled pattern, not 5"),
    "topics": (lambda d: d.builder.stream([], **TEXT), "needs at least one topic"),
    "pattern of bytes": (lambda d: d.builder.stream(re.compile(b"a"), **TEXT), "needs a pattern of text"),
    "illegal topic": (lambda d: d.builder.stream("a b", **TEXT), 'topic "a b" is illegal'),
    "table of many": (lambda d: d.builder.table(["a", "b"], **TEXT), "topic must be a string, not list"),
    "table of a pattern": (lambda d: d.builder.table(re.compile("a"), **TEXT), "topic must be a string"),
    "name": (lambda d: d.stream.filter(max, name="a b"), 'name "a b" is illegal'),
    "merge with a table": (lambda d: d.stream.merge(d.table), r"turn a table into one with to_stream\(\)"),
    "merge across": (lambda d: d.stream.merge(other()), "flights and foreign come from different builders"),
    "join across": (lambda d: d.stream.join(other(), max, NEAR), "come from different builders"),
    "cogroup across": (
        lambda d: d.grouped.cogroup(lambda k, v, a: a).cogroup(other().group_by_key(), lambda k, v, a: a),
        "come from different builders",
    ),
    "cogroup what": (
        lambda d: d.grouped.cogroup(lambda k, v, a: a).cogroup("x", lambda k, v, a: a),
        "takes a KGrouped",
    ),
    "name of a branch": (
        lambda d: d.stream.split("x-").branch(max, 5),
        "the name of a branch of x- must be a string, not 5",
    ),
    "True partitions": (lambda d: d.stream.repartition(partitions=True), "at least 1, not True"),
    "branch twice": (
        lambda d: d.stream.split("x").branch(max, "a").branch(max, "a"),
        "has a branch a already",
    ),
    "partitions": (
        lambda d: d.stream.repartition(partitions="4"),
        "number of partitions of at least 1, not '4'",
    ),
    "no partitions": (lambda d: d.stream.repartition(partitions=0), "at least 1, not 0"),
    "materialized of count": (lambda d: d.grouped.count(materialized="s"), r"give Materialized\('s'\)"),
    "materialized of table": (
        lambda d: d.builder.table("x", **TEXT, materialized="s"),
        "the table of topic x",
    ),
    "materialized of join": (lambda d: d.table.join(d.table, max, materialized="s"), "the join of gates"),
    "materialized of window": (lambda d: d.windowed.count(materialized=5), "count"),
    "windows": (lambda d: d.grouped.windowed_by(NEAR), "takes TimeWindows, SlidingWindows"),
    "class of windows": (lambda d: d.grouped.windowed_by(TimeWindows), "takes TimeWindows"),
    "emit": (lambda d: d.windowed.emit_strategy("on_window_close"), "EmitStrategy.ON_WINDOW_UPDATE or"),
    "suppress": (lambda d: d.table.suppress("x"), r"takes Suppressed.until_window_closes"),
    "suppress unwindowed": (
        lambda d: d.table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())),
        "use until_time_limit",
    ),
    "join without windows": (lambda d: d.stream.join(d.stream, max), "needs windows: JoinWindows"),
    "join with other windows": (
        lambda d: d.stream.join(d.stream, max, HOURLY),
        "needs JoinWindows, got TimeWindows",
    ),
    "windows for a table": (
        lambda d: d.stream.join(d.table, max, NEAR),
        "a join with a table takes no windows",
    ),
    "stream_joined": (lambda d: d.stream.join(d.stream, max, NEAR, stream_joined="x"), "give StreamJoined"),
    "serdes in two places": (
        lambda d: d.stream.outer_join(
            d.stream,
            max,
            NEAR,
            stream_joined=StreamJoined("x", value_serde=LongSerde()),
            value_serde=StringSerde(),
        ),
        "value_serde of the join is also in stream_joined. Give it only once",
    ),
    "global in Java's order": (
        lambda d: d.stream.left_join(d.builder.global_table("g", **TEXT), lambda k, v: v, max),
        "takes the joiner as second argument, and the function that gives the key as key_selector=",
    ),
    "global without selector": (
        lambda d: d.stream.join(d.builder.global_table("g", **TEXT), max),
        "needs key_selector",
    ),
    "grace": (lambda d: d.stream.join(d.table, max, grace=5), "needs a versioned table"),
    "table with stream": (lambda d: d.table.join(d.stream, max), r"with to_table\(\)"),
    "late side": (lambda d: d.stream.join(d.stream, max, NEAR).late_records("both"), '"left" or "right"'),
    "store": (lambda d: d.builder.add_state_store("x"), "takes a StoreSpec"),
    "global store": (lambda d: d.builder.add_global_store("x", "t", Shared, **TEXT), "takes a StoreSpec"),
}

PROCESSORS = {
    "instance": (lambda d: d.stream.process(SHARED), "needs a supplier, .* give Shared itself"),
    "no process": (lambda d: d.stream.process(dict), r"gives dict, which has no process\(\) of its own"),
    "base class": (lambda d: d.stream.process(Processor), r"Processor, which has no process\(\) of its own"),
    "one for all tasks": (lambda d: d.stream.process(lambda: SHARED), "gives the same object each time"),
    "arguments": (lambda d: d.stream.process(lambda config: Shared()), "a supplier without arguments"),
    "store itself": (
        lambda d: d.stream.process(Shared, Stores.key_value("s", StringSerde(), StringSerde())),
        r"takes the names of stores, .* add_state_store\(\)",
    ),
    "unknown store": (
        lambda d: d.build(d.stream.process(Shared, "nowhere")),
        "state store nowhere is not added yet",
    ),
    "transformer": (lambda d: d.table.transform_values(dict), r"has no transform\(\)"),
    "global": (
        lambda d: d.builder.add_global_store(
            Stores.key_value("s", StringSerde(), StringSerde()), "t", 5, **TEXT
        ),
        "needs a supplier",
    ),
}

TOGETHER = {
    "lru windows": (
        lambda d: d.windowed.count(materialized=Materialized("s", store_type="lru", max_entries=2)),
        r"windowed table s cannot have store_type='lru': windows go by their retention",
    ),
    "versioned sessions": (
        lambda d: d.grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(
            materialized=Materialized("s", history_retention=5)
        ),
        "windowed table s cannot have history_retention",
    ),
    "name twice": (
        lambda d: d.build(d.stream.filter(max, name="f"), d.stream.filter(max, name="f")),
        "processor f is already added; give one of the two another name",
    ),
    "store name twice": (
        lambda d: d.build(
            d.grouped.count(materialized=Materialized("s")),
            d.builder.table("x", **TEXT, materialized=Materialized("s")),
        ),
        "already been added with the name s",
    ),
    "topic twice": (
        lambda d: d.build(d.builder.stream("rows", **TEXT)),
        "topic rows has already been registered",
    ),
    "no key serde": (
        lambda d: d.stream.group_by(lambda k, v: v).count(),
        "knows no serde for them. Give key_serde",
    ),
    "no value serde": (lambda d: d.grouped.aggregate(int, lambda k, v, a: a), "Materialized.value_serde=..."),
    "explicit names": (
        lambda d: (
            StreamsBuilder(StreamsConfig(ensure_explicit_internal_resource_naming=True))
            .stream("in", **TEXT)
            .group_by(lambda k, v: v, **TEXT)
            .count()
            ._context.names.require_explicit()
        ),
        "not explicitly named: .*state store.*repartition topic.*Name the operators",
    ),
}


def source():
    return Topology().add_source("s", "t", **TEXT)


def filled():
    return Topology().add_global_store(GLOBAL, "read", "airports", "fill", Shared, **TEXT)


LOW_LEVEL = {
    "no topics": (lambda d: Topology().add_source("s", **TEXT), "source s reads nothing"),
    "no name": (lambda d: Topology().add_source("", "t", **TEXT), "a node needs a name"),
    "supplier": (
        lambda d: Topology().add_source("s", "t", **TEXT).add_processor("p", 5, "s"),
        "processor p needs a",
    ),
    "shared": (
        lambda d: Topology().add_source("s", "t", **TEXT).add_processor("p", lambda: SHARED, "s"),
        "the supplier of processor p gives the same object each time",
    ),
    "topic twice": (lambda d: Topology().add_source("s", "t", "u", "t", **TEXT), "names topic t twice"),
    "sink": (
        lambda d: Topology().add_source("s", "t", **TEXT).add_sink("k", None, "s", **TEXT),
        "sink k needs the name of a topic or a function",
    ),
    "global store": (
        lambda d: Topology().add_global_store(None, "s", "t", "p", Shared, **TEXT),
        "takes a StoreSpec",
    ),
    "global processor": (
        lambda d: Topology().add_global_store(GLOBAL, "s", "t", "p", None, **TEXT),
        "processor p needs a supplier",
    ),
    "parent": (
        lambda d: Topology().add_processor("p", Shared, "nobody"),
        "parent node nobody of p is unknown",
    ),
    "store": (lambda d: Topology().add_state_store("x"), "takes a StoreSpec"),
    "driver": (lambda d: TopologyTestDriver(d.builder), r"StreamsBuilder.build\(\) gives"),
    "empty": (lambda d: Topology().plan(), "the topology is empty"),
    "text as a pattern": (
        lambda d: Topology().add_source("s", pattern="t.*", **TEXT),
        r"source s needs a pattern of text, as re.compile makes one, not 't\.\*'",
    ),
    "topics and a pattern": (
        lambda d: Topology().add_source("s", "t", pattern=re.compile("u.*"), **TEXT),
        "source s has topics and a pattern: add two sources",
    ),
    "extractor": (
        lambda d: Topology().add_source("s", "t", timestamp_extractor=lambda record: 1, **TEXT),
        "source s needs a timestamp extractor",
    ),
    "partitioner": (
        lambda d: source().add_sink("k", "u", "s", partitioner=5, **TEXT),
        "sink k needs a partit",
    ),
    "retry of a source": (
        lambda d: Topology().add_source("s", "t", on_error=Retry.in_place(), **TEXT),
        "source s cannot have on_error=Retry: a record that cannot be decoded",
    ),
    "retry of a sink": (
        lambda d: source().add_sink("k", "u", "s", on_error=Retry.in_place(), **TEXT),
        "sink k cannot have on_error=Retry: a result that cannot be written",
    ),
    "parent twice": (lambda d: source().add_sink("k", "u", "s", "s", **TEXT), "k names parent s twice"),
    "sink behind a global store": (
        lambda d: filled().add_sink("k", "u", "fill", **TEXT),
        "fill fills global store g and cannot be used as a parent: no task runs k behind it",
    ),
    "processor behind a global source": (
        lambda d: filled().add_source("s", "t", **TEXT).add_processor("p", Shared, "s", "read"),
        "read fills global store g and cannot be used as a parent: no task runs p behind it",
    ),
    "another store of a global processor": (
        lambda d: filled().add_state_store(Stores.key_value("other", StringSerde(), StringSerde()), "fill"),
        "fill fills global store g, so no other store can be connected to it",
    ),
    "stores of a global processor": (
        lambda d: Topology().add_global_store(GLOBAL, "read", "airports", "fill", Counting, **TEXT),
        "fill fills global store g, so it cannot bring other stores: counts",
    ),
}


def cases(**groups):
    return [
        pytest.param(*case, id=f"{group}: {name}")
        for group, found in groups.items()
        for name, case in found.items()
    ]


@pytest.mark.parametrize(
    ("describe", "words"),
    cases(
        function=FUNCTIONS, argument=ARGUMENTS, processor=PROCESSORS, together=TOGETHER, low_level=LOW_LEVEL
    ),
)
def test_wrong_use_is_refused_with_operator_reason_and_remedy(describe, words):
    with pytest.raises(TopologyError, match=words):
        describe(Described())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: StreamsBuilder().stream("x", key_serde=StringSerde, value_serde=StringSerde()),
            r"give an instance: St",
        ),
        (
            lambda: StreamsBuilder().table("x", key_serde="string", value_serde=StringSerde()),
            "'string', which is no Ser",
        ),
        (
            lambda: Described().stream.to("out", value_serde=LongSerde),
            r"value_serde of KSTREAM-SINK.*LongSerde\(\)",
        ),
        (lambda: Materialized("x", value_serde=StringSerde), "value_serde of Materialized is the class"),
        (
            lambda: Described().stream.group_by_key(key_serde="text"),
            "key_serde of flights is 'text', which is no",
        ),
        (
            lambda: Described().stream.group_by(max, value_serde=str),
            "value_serde of .*str.*, which is no Serde",
        ),
        (
            lambda: Described().table.group_by(lambda k, v: (k, v), key_serde=str),
            "key_serde of KTABLE-SELECT-.*, which is no Serde",
        ),
        (
            lambda: Described().stream.to_table(
                value_serde=5, materialized=Materialized(value_serde=StringSerde())
            ),
            r"value_serde of to_table\(\) of flights is 5, which is no Serde",
        ),
        (
            lambda: (d := Described()).stream.join(d.table, max, value_serde=5),
            "value_serde of the join of flights is 5, which is no Serde",
        ),
        *(
            (make, "logging of .* has to be True or False, not {'retention.ms': '5'}")
            for make in (
                lambda: Materialized("x", logging={"retention.ms": "5"}),
                lambda: StreamJoined("x", logging={"retention.ms": "5"}),
                lambda: Stores.key_value("x", StringSerde(), StringSerde(), logging={"retention.ms": "5"}),
            )
        ),
        (
            lambda: Stores.window(
                "x", StringSerde(), StringSerde(), retention=9, window_size=3, retain_duplicates="no"
            ),
            "retain_duplicates of store x has to be True or False, not 'no'",
        ),
        (lambda: Materialized("x", topic_config={"retention.ms": 5}), "takes text"),
        (lambda: Materialized("x", topic_config=None), "topic_config of Materialized has to be a dict"),
        (
            lambda: Materialized("x", store_type="lru", max_entries="5"),
            "has to be an int, at least 1, got '5'",
        ),
        (
            lambda: Stores.lru("s", "x", StringSerde(), StringSerde()),
            "max_entries of store s has to be an int",
        ),
        (
            lambda: Stores.lru("s", 0, StringSerde(), StringSerde()),
            "max_entries of store s has to be an int, at least 1, but is 0",
        ),
        (lambda: BufferConfig.bounded(max_records="5"), "max_records of a bounded buffer has to be an int"),
        (lambda: TimeWindowedSerde("x", 10), "the inner serde of a TimeWindowedSerde is 'x'"),
        (lambda: SessionWindowedSerde(None), "the inner serde of a SessionWindowedSerde is None"),
        (
            lambda: StreamsConfig(commit_interval_ms=timedelta(seconds=1)),
            "commit_interval_ms has to be an int of milliseconds, not datetime",
        ),
        (lambda: StreamsConfig(statestore_cache_max_bytes="10MB"), "has to be an int of bytes, not '10MB'"),
        (
            lambda: StreamsConfig(processing_exception_handler=lambda error: "continue"),
            r"must be .* a function \(no coroutine function\) of an ErrorContext and an exception",
        ),
        *(
            (wrong, r"a function \(no coroutine function\) of .*late_or_not")
            for wrong in [
                lambda: StreamsConfig(deserialization_exception_handler=late_or_not),
                lambda: StreamsConfig(production_exception_handler=late_or_not),
                lambda: StreamsConfig(default_timestamp_extractor=late_or_not),
                lambda: StreamsConfig(show_record=late_or_not),
                lambda: Retry.in_place(choose=late_or_not),
                lambda: Described().stream.map_values(str, on_error=late_or_not),
            ]
        ),
        (
            lambda: StreamsConfig(default_timestamp_extractor="x"),
            "of a record and the partition's time",
        ),
        (lambda: StreamsConfig(dead_letter_queue_topic="a b"), "dead_letter_queue_topic"),
        (lambda: StreamsConfig(num_standby_replicas=True), "num_standby_replicas has to be an int, not True"),
        *(
            (functools.partial(StreamsConfig, **{name: value}), words)
            for name, value, words in [
                ("bootstrap_servers", "kafka://localhost:29392", "host:port.*: write localhost:29392"),
                ("bootstrap_servers", "", "bootstrap_servers is empty; it takes host:port"),
                ("bootstrap_servers", 9092, "bootstrap_servers has to be a string.*not 9092"),
                ("bootstrap_servers", ["a:1"], r"bootstrap_servers has to be a string.*not \['a:1'\]"),
                ("bootstrap_servers", "a:1,", "nothing beside a comma; it takes host:port"),
                ("bootstrap_servers", "localhost", "'localhost'; it takes host:port"),
                ("bootstrap_servers", "a:1,::1", "'::1'; it takes host:port"),
                ("client_properties", ["a"], "client_properties has to be a mapping.*not list"),
                ("state_dir", None, "state_dir has to be a string, not None"),
                ("state_dir", 3, "state_dir has to be a string, not 3"),
                ("state_dir", "", "state_dir is empty"),
                ("application_id", "a b", 'application_id "a b" is illegal'),
                ("group_instance_id", "", "group_instance_id must not be empty"),
                ("group_instance_id", 3, "group_instance_id has to be a string, not 3"),
                ("group_instance_id", "pod/3", "group_instance_id .* illegal"),
                ("client_rack", 5, "client_rack has to be a string, not 5"),
                ("ensure_explicit_internal_resource_naming", "yes", "has to be True or False, not 'yes'"),
                ("topology_optimization", 1, "topology_optimization has to be a string, not 1"),
                ("default_key_serde", "string", "default_key_serde is 'string', which is no Serde"),
                ("default_value_serde", StringSerde, r"give an instance: StringSerde\(\)"),
                ("max_task_idle_ms", -7, "max_task_idle_ms must be at least -1, not -7"),
                ("replication_factor", 0, "replication_factor must be at least 1, or -1 .* not 0"),
                ("replication_factor", -5, "replication_factor must be at least -1, not -5"),
                ("comit_interval_ms", 5, "no setting comit_interval_ms; did you mean commit_interval_ms"),
            ]
        ),
        (
            lambda: StreamsConfig().replace(state_dirr="x"),
            "StreamsConfig has no setting state_dirr; did you mean state_dir",
        ),
        (lambda: Topology().add_source("s", ["t"], **TEXT), r"each an argument of its own, not \['t'\]"),
        (
            lambda: Topology().add_source("s", "t", **TEXT).add_processor("p", Shared, ["s"]),
            r"p has parents by name, each an argument of its own, not \['s'\]",
        ),
        (lambda: Described().stream.process(Unlisted), "stores of .*Unlisted.* tuple or list of StoreSpec"),
        (
            lambda: driven(lambda d: d.create_input_topic("in", None, StringSerde())),
            "key_serde of input topic in",
        ),
        (lambda: Materialized("x", caching="yes"), "caching of Materialized has to be True or False"),
        (lambda: StreamJoined("x", other_value_serde=int), "other_value_serde of StreamJoined"),
        (lambda: Stores.key_value("s", StringSerde, StringSerde()), "key_serde of store s"),
        (lambda: Topology().add_source("s", "t", key_serde=None, value_serde=None), "key_serde of s is None"),
        (lambda: StreamsBuilder({"application.id": "x"}), "StreamsConfig.from_properties"),
        (lambda: Described().builder.build().plan({}), "takes a StreamsConfig"),
        (lambda: Suppressed.until_time_limit(5, 10), "BufferConfig.unbounded"),
        (
            lambda: TimeWindows.of_size_and_grace(-5, 0),
            "the window size has to be larger than zero, got -5 ms",
        ),
        (lambda: Described().stream.join(Described().table, max, grace="1s"), None),
    ],
)
def test_settings_that_cannot_be_are_refused(make, words):
    with pytest.raises((ConfigError, TopologyError), match=words):
        make()


@pytest.mark.parametrize("function", [max, print, "{}{}".format, lambda *both: 0, lambda a, b, c=0: a])
def test_functions_whose_arguments_are_not_known_or_optional_are_taken(function):
    described = Described()
    described.stream.join(described.table, function)


def test_a_supplier_may_be_a_class_or_a_function():
    described = Described()
    described.stream.process(Shared)
    described.stream.process(lambda: Shared())
    described.build()


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap_servers": "kafka-1:9092, [::1]:9092"},
        {"max_task_idle_ms": -1},
        {"replication_factor": 3},
        {"state_dir": Path("state")},
        {"client_rack": "eu-1a", "group_instance_id": "pod-3"},
        {"default_key_serde": StringSerde(), "topology_optimization": "all"},
        {"session_timeout_ms": 60_000, "max_poll_interval_ms": 30_000},
    ],
)
def test_settings_that_can_be_are_taken(settings):
    config = StreamsConfig("flights", **settings)
    assert config == config.replace()
    assert pickle.loads(pickle.dumps(config)).state_dir == config.state_dir
    assert isinstance(config.state_dir, str)
