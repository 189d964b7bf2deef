"""Names decide where state and repartitioned records are found again, so they must not move."""

from __future__ import annotations

import pytest

from streamapp import (
    Materialized,
    Retry,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyError,
)
from streamapp.windows import JoinWindows

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


def names_of(builder):
    return list(builder.build().nodes)


def test_generated_names_count_up_in_the_order_of_calls():
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).filter(lambda key, value: True).map_values(str).peek(print).to("out", **TEXT)
    assert names_of(builder) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-FILTER-0000000001",
        "KSTREAM-MAPVALUES-0000000002",
        "KSTREAM-PEEK-0000000003",
        "KSTREAM-SINK-0000000004",
    ]


def test_naming_one_operator_does_not_rename_the_others():
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).filter(lambda key, value: True, name="kept").map_values(str).to(
        "out", **TEXT
    )
    assert names_of(builder)[1:3] == ["kept", "KSTREAM-MAPVALUES-0000000002"]


def test_counts_use_up_a_number_for_an_unnamed_materialized():
    unnamed, absent = StreamsBuilder(), StreamsBuilder()
    unnamed.stream("in", **TEXT).group_by_key().count(materialized=Materialized(key_serde=StringSerde()))
    absent.stream("in", **TEXT).group_by_key().count()
    assert list(unnamed.build().stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002"]
    assert list(absent.build().stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000001"]


def test_the_grouping_names_the_repartition_topic_and_shares_it():
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by(lambda k, v: v, key_serde=StringSerde(), name="by-value")
    grouped.count(name="count")
    grouped.reduce(max, name="max")
    names = names_of(builder)
    assert names.count("by-value-repartition-source") == 1
    assert names.index("by-value-repartition-filter") < names.index("count") < names.index("max")


def test_joins_share_the_repartition_topic_of_a_rekeyed_stream():
    builder = StreamsBuilder()
    rekeyed = builder.stream("in", **TEXT).select_key(lambda k, v: v)
    for topic in ("one", "two"):
        rekeyed.join(builder.table(topic, **TEXT), "{}{}".format, key_serde=StringSerde())
    topology = builder.build()
    assert [n for n in topology.nodes if n.startswith("KSTREAM-SINK")] == ["KSTREAM-SINK-0000000005"]


def test_a_named_stream_join_names_all_its_parts():
    builder = StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    left.outer_join(right, "{}{}".format, windows, stream_joined=StreamJoined("join", "store"))
    topology = builder.build()
    assert [n for n in topology.nodes if not n.startswith("KSTREAM-SOURCE")] == [
        "join-this-windowed",
        "join-other-windowed",
        "join-outer-this-join",
        "join-outer-other-join",
        "join-merge",
    ]
    assert list(topology.stores) == [
        "store-outer-this-join-store",
        "store-outer-other-join-store",
        "store-outer-shared-join-store",
    ]


def test_branches_are_named_after_the_split():
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT)
    branches = (
        stream.split("by-").branch(lambda k, v: v == "a", "a").branch(lambda k, v: v == "b").default_branch()
    )
    assert list(branches) == ["by-a", "by-2", "by-0"]


@pytest.mark.parametrize("name", ["bad name!", "", "..", "x" * 250])
def test_illegal_names_are_refused_where_they_are_given(name):
    stream = StreamsBuilder().stream("in", **TEXT)
    with pytest.raises(TopologyError):
        stream.filter(lambda key, value: True, name=name)
    with pytest.raises(TopologyError):
        Materialized(name)


def test_all_internal_resources_can_be_required_to_have_given_names():
    config = StreamsConfig(ensure_explicit_internal_resource_naming=True)
    builder = StreamsBuilder(config)
    grouped = builder.stream("in", **TEXT).group_by_key()
    grouped.count(materialized=Materialized("named"))
    builder.build()
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(5)).count()
    with pytest.raises(TopologyError, match=r"KSTREAM-AGGREGATE-STATE-STORE-\d+-changelog"):
        builder.build()


@pytest.mark.parametrize(
    ("on_error", "found"),
    [
        (Retry.by_key(), ["store KSTREAM-MAPVALUES-0000000001-parked", "0000000001-parked-changelog"]),
        (Retry.in_place(), ["store KSTREAM-MAPVALUES-0000000001-parked", "0000000001-parked-changelog"]),
        (
            Retry.topics(5_000),
            [
                "0000000001-retry-1-waiting",
                "topic KSTREAM-MAPVALUES-0000000001-retry-1, ",
                "0000000001-retry-back",
            ],
        ),
    ],
)
def test_stores_and_topics_of_a_retry_can_be_required_to_have_given_names(
    on_error: Retry, found: list[str]
) -> None:
    config = StreamsConfig(ensure_explicit_internal_resource_naming=True, dead_letter_queue_topic="dead")

    def described(name: str | None, join: bool) -> StreamsBuilder:
        builder = StreamsBuilder(config)
        stream = builder.stream("in", **TEXT)
        if join:
            table = builder.table("table", **TEXT, materialized=Materialized("table"))
            stream.join(
                table, lambda one, other: one, name=name, on_error=on_error, value_serde=TEXT["value_serde"]
            )
        else:
            stream.map_values(str, name=name, on_error=on_error)
        return builder

    with pytest.raises(TopologyError) as caught:
        described(None, join=False).build()
    assert all(each in str(caught.value) for each in found)
    described("look-up", join=False).build()
    with pytest.raises(TopologyError, match=r"KSTREAM-JOIN-\d+-(parked|retry)"):
        described(None, join=True).build()
    described("look-up", join=True).build()


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_gets_suffixes_is_legal_without_them(name):
    """As in Kafka Streams; only the names with their suffixes were checked."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", **TEXT).group_by_key().cogroup(lambda key, value, total: total + value)
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    with pytest.raises(TopologyError, match="name must not be"):
        grouped.aggregate(str, name=name, materialized=Materialized(value_serde=StringSerde()))
    with pytest.raises(TopologyError, match="name must not be"):
        left.join(right, lambda one, other: one, foreign_key=lambda value: value, name=name)
