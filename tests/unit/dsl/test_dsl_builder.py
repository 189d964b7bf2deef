from __future__ import annotations

import re

import pytest

from streamapp import (
    BufferConfig,
    ConfigError,
    JoinWindows,
    LongSerde,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.state.kinds import LruTable

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}
HOUR = 3_600_000


def everything() -> StreamsBuilder:
    """One of almost everything that optimisation and building touch."""
    builder = StreamsBuilder(StreamsConfig(topology_optimization="all"))
    stream = builder.stream("in", **TEXT)
    again = builder.stream("in", **TEXT)
    table = builder.table("rows", **TEXT, materialized=Materialized("rows"))
    rekeyed = stream.merge(again).select_key(lambda k, v: v)
    grouped = rekeyed.group_by_key(key_serde=StringSerde())
    grouped.count().to_stream().to("counts", **TEXT)
    windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count()
    windowed.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    stream.join(stream, "{}{}".format, JoinWindows.of_time_difference_with_no_grace(5))
    other = stream.to_table()
    joined = table.left_join(
        other, "{}{}".format, materialized=Materialized("joined", value_serde=StringSerde())
    )
    joined.join(table, "{}{}".format, foreign_key=lambda v: v)
    return builder


def test_building_twice_gives_the_same_topology():
    builder = everything()
    first, second = builder.build(), builder.build()
    assert first.describe() == second.describe()
    assert first.plan().fingerprint == second.plan().fingerprint


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_each_join_of_streams_takes_the_serdes_as_arguments(kind):
    """`outer_join` took them only as a `StreamJoined`."""
    serdes = {"key_serde": StringSerde(), "value_serde": LongSerde(), "other_value_serde": StringSerde()}
    near = JoinWindows.of_time_difference_with_no_grace(5)

    def plan(**given):
        builder = StreamsBuilder()
        lengths = builder.stream("left", **TEXT).map_values(len)
        join = getattr(lengths, kind)
        join(builder.stream("right", **TEXT), "{}{}".format, near, **given).to("out", **TEXT)
        return builder.build().plan()

    expected = plan(stream_joined=StreamJoined(**serdes)).fingerprint
    assert plan(**serdes).fingerprint == expected
    # Serdes beside `stream_joined` had no effect.
    assert plan(**serdes, stream_joined=StreamJoined()).fingerprint == expected


def test_a_topology_can_be_extended_after_it_was_built():
    builder = StreamsBuilder(StreamsConfig(topology_optimization="all"))
    stream = builder.stream("in", **TEXT)
    before = builder.build()
    stream.select_key(lambda k, v: v).group_by_key(key_serde=StringSerde()).count()
    assert len(builder.build().nodes) > len(before.nodes) == 1


def test_plans_can_be_shipped():
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    plan = everything().build().plan()
    assert cloudpickle.loads(cloudpickle.dumps(plan)).fingerprint == plan.fingerprint


def test_streams_of_the_same_topics_share_a_source():
    builder = StreamsBuilder()
    builder.stream(["a", "b"], **TEXT).to("one")
    builder.stream(["b", "a"], **TEXT).to("two")
    builder.stream(re.compile("x.*"), **TEXT).to("three")
    builder.stream(re.compile("x.*"), **TEXT).to("four")
    sources = [n for n in builder.build().nodes if "SOURCE" in n]
    assert sources == ["KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000004"]


def test_sources_that_overlap_are_refused():
    builder = StreamsBuilder()
    builder.stream(["a", "b"], **TEXT)
    builder.stream("a", **TEXT)
    with pytest.raises(TopologyError, match="both read topic a"):
        builder.build()


# -------------------------------------------------------------------- optimisations


def test_source_topics_serve_as_changelogs_only_when_optimised():
    def changelogs(optimization):
        builder = StreamsBuilder(StreamsConfig(topology_optimization=optimization))
        builder.table("rows", **TEXT, materialized=Materialized("s"))
        return [t.name for t in builder.build().plan().subtopologies[0].changelog_topics.values()]

    assert changelogs("none") == ["streamapp-s-changelog"]
    assert changelogs("reuse.ktable.source.topics") == ["rows"]


def test_repartition_topics_behind_one_key_change_are_merged():
    def repartition_topics(optimization, change_value):
        builder = StreamsBuilder(StreamsConfig(topology_optimization=optimization))
        rekeyed = builder.stream("in", **TEXT).select_key(lambda k, v: v)
        rekeyed.group_by_key(key_serde=StringSerde()).count()
        second = rekeyed.map_values(len) if change_value else rekeyed.filter(lambda k, v: True)
        second.group_by_key(key_serde=StringSerde(), value_serde=LongSerde()).count()
        return [t.name for s in builder.build().plan().subtopologies for t in s.repartition_topics]

    first = "streamapp-KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
    assert len(repartition_topics("none", False)) == 2
    assert repartition_topics("merge.repartition.topics", False) == [first]
    assert len(repartition_topics("merge.repartition.topics", True)) == 2


def test_a_self_join_needs_one_store_when_optimised():
    def stores(optimization):
        builder = StreamsBuilder(StreamsConfig(topology_optimization=optimization))
        stream = builder.stream("in", **TEXT)
        stream.join(stream, "{}{}".format, JoinWindows.of_time_difference_with_no_grace(5))
        return list(builder.build().stores)

    assert len(stores("none")) == 2
    assert len(stores("single.store.self.join")) == 1


# -------------------------------------------------------------------- stores


def store_of(config=None, *, windows=None, materialized=None):
    builder = StreamsBuilder(config)
    grouped = builder.stream("in", **TEXT).group_by_key()
    (grouped if windows is None else grouped.windowed_by(windows)).count(materialized=materialized)
    (spec,) = builder.build().stores.values()
    return spec


@pytest.mark.parametrize(
    ("windows", "retention_ms", "size_ms"),
    [
        (TimeWindows.of_size_and_grace(10, 5), 15, 10),
        (SlidingWindows.of_time_difference_and_grace(10, 5), 25, 10),
        (SessionWindows.of_inactivity_gap_and_grace(10, 5), 15, 0),
    ],
)
def test_windows_are_kept_as_long_as_they_can_change(windows, retention_ms, size_ms):
    kind = store_of(windows=windows).kind
    assert (kind.retention_ms, kind.window_size_ms, kind.segment_ms) == (retention_ms, size_ms, 60_000)
    longer = store_of(windows=windows, materialized=Materialized("s", retention=HOUR)).kind
    assert (longer.retention_ms, longer.segment_ms) == (HOUR, HOUR // 2)
    with pytest.raises(ConfigError, match="store s has a retention of 14 ms"):
        store_of(windows=windows, materialized=Materialized("s", retention=14))


def test_caching_follows_the_configuration_unless_the_table_says_no():
    no_cache = StreamsConfig(statestore_cache_max_bytes=0)
    assert store_of().cached
    assert not store_of(no_cache).cached
    assert not store_of(materialized=Materialized("s", caching=False)).cached
    assert not store_of(materialized=Materialized("s", history_retention=5)).cached


def test_store_types():
    assert store_of().persistent
    assert not store_of(StreamsConfig(dsl_store_type="in_memory")).persistent
    assert not store_of(materialized=Materialized("s", store_type="in_memory")).persistent
    assert store_of(
        StreamsConfig(dsl_store_type="in_memory"), materialized=Materialized("s", history_retention=HOUR)
    ).persistent
    assert store_of(materialized=Materialized("s", store_type="lru", max_entries=3)).kind == LruTable(
        max_entries=3
    )
    versioned = store_of(materialized=Materialized("s", history_retention=HOUR)).kind
    assert (str(versioned), versioned.history_ms, versioned.segment_ms) == ("versioned", HOUR, HOUR // 12)


@pytest.mark.parametrize(
    "settings",
    [
        {"store_type": "disk"},
        {"store_type": "lru"},
        {"max_entries": 5},
        {"store_type": "lru", "max_entries": 0},
        {"retention": -1},
        {"history_retention": 5, "store_type": "in_memory"},
        {"history_retention": 5, "segment_interval": 0},
    ],
)
def test_stores_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError):
        Materialized("s", **settings)


def test_a_table_gets_a_store_only_if_somebody_needs_it():
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    left.filter(lambda k, v: True).to_stream().to("out")
    assert list(builder.build().stores) == []
    left.map_values(str).join(right, "{}{}".format)
    assert list(builder.build().stores) == ["left-STATE-STORE-0000000000", "right-STATE-STORE-0000000003"]


@pytest.mark.parametrize(
    ("kept", "join_time"),
    [
        ({}, 20),
        ({"history_retention": 100}, 20),
        ({"timestamped": False}, 5),
        ({"store_type": "lru", "max_entries": 9}, 20),  # case aggregate/lru_store: Java keeps its timestamps
    ],
)
def test_tables_work_the_same_in_every_kind_of_store(kept, join_time):
    """A store that forgets timestamps only makes a join's result as old as the update that caused it."""
    text = StringSerde()
    builder = StreamsBuilder(StreamsConfig(statestore_cache_max_bytes=0))
    left = builder.table("left", **TEXT, materialized=Materialized("l", **kept))
    right = builder.table("right", **TEXT, materialized=Materialized("r", **kept))
    joined = Materialized("j", value_serde=text, **kept)
    left.left_join(right, "{}{}".format, materialized=joined).to_stream().to("joined")
    groups = left.group_by(lambda k, v: (v, v), **TEXT)
    groups.count(materialized=Materialized("g", **kept)).to_stream().to("counts")
    with TopologyTestDriver(builder.build()) as driver:
        inputs = {t: driver.create_input_topic(t, text, text) for t in ("left", "right")}
        inputs["left"].pipe_input("k", "a", 10)
        inputs["left"].pipe_input("k", "b", 20)
        inputs["right"].pipe_input("k", "x", 5)
        records = driver.create_output_topic("joined", text, text).read_records()
        assert [(r.value, r.timestamp) for r in records] == [("aNone", 10), ("bNone", 20), ("bx", join_time)]
        counts = driver.create_output_topic("counts", text, LongSerde()).read_key_values()
        assert counts == [("a", 1), ("a", 0), ("b", 1)]


# -------------------------------------------------------------------- what is refused


def test_a_missing_serde_is_named_where_it_is_needed():
    with pytest.raises(TopologyError, match=r"KSTREAM-SOURCE-0000000000 \(topic in\) .* no serde"):
        StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"KTABLE-SOURCE-0000000002 \(topic rows\) .* no serde"):
        StreamsBuilder().table("rows")
    with pytest.raises(TopologyError, match=r"orders \(topics a, b\) .* no serde"):
        StreamsBuilder().stream(["a", "b"], name="orders")
    with pytest.raises(TopologyError, match=r"KSTREAM-SOURCE-0000000000 \(topic order-.\*\) .* no serde"):
        StreamsBuilder().stream(re.compile("order-.*"))
    stream = StreamsBuilder().stream("in", **TEXT).map_values(len)
    with pytest.raises(TopologyError, match="value_serde"):
        stream.to("out")
    with pytest.raises(TopologyError, match="value_serde"):
        stream.group_by_key().aggregate(int, lambda k, v, a: a + v)
    stream.group_by_key().count()


def test_default_serdes_fill_in():
    config = StreamsConfig(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    builder = StreamsBuilder(config)
    builder.stream("in").map(lambda k, v: (v, k)).group_by_key().reduce(max).to_stream().to("out")
    assert all(spec.value_serde is config.default_value_serde for spec in builder.build().stores.values())


@pytest.mark.parametrize(
    "describe",
    [
        lambda s, t: s.filter("not a function"),
        lambda s, t: s.group_by_key().aggregate(0, max),
        lambda s, t: s.group_by_key().windowed_by(5),
        lambda s, t: s.repartition(partitions=0),
        lambda s, t: s.join(t, max, JoinWindows.of_time_difference_with_no_grace(5)),
        lambda s, t: s.join(s, max),
        lambda s, t: s.join(t, max, grace=5),
        lambda s, t: s.join("table", max),
        lambda s, t: t.join(s, max),
        lambda s, t: t.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())),
        lambda s, t: t.suppress("closed"),
        lambda s, t: s.split("x").no_default_branch() or s.outer_join(t, max, None),
        lambda s, t: s.join(StreamsBuilder().table("rows", **TEXT), max),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(describe):
    builder = StreamsBuilder()
    stream, table = builder.stream("in", **TEXT), builder.table("rows", **TEXT)
    with pytest.raises(TopologyError):
        describe(stream, table)


def test_suppress_refuses_versioned_tables_also_further_down():
    table = StreamsBuilder().table("rows", **TEXT, materialized=Materialized("s", history_retention=5))
    with pytest.raises(TopologyError, match="versioned"):
        table.filter(lambda k, v: True).suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))


def test_a_join_cannot_wait_longer_than_the_tables_history():
    builder = StreamsBuilder()
    table = builder.table("rows", **TEXT, materialized=Materialized("s", history_retention=5))
    stream = builder.stream("in", **TEXT)
    stream.join(table, max, grace=5)
    with pytest.raises(ConfigError, match="history of 5 ms"):
        stream.join(table, max, grace=6)
