"""Plans: names, partition counts, co-partitioning, fingerprints; and what cannot be built."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle

from streamapp import (
    ConfigError,
    CopartitionError,
    JoinWindows,
    LongSerde,
    Materialized,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyError,
)
from tests.unit.engine.support import TEXT, TEXTS


def regrouped(partitions: int | None = None) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXTS).select_key(lambda k, v: v)
    if partitions is not None:
        stream = stream.repartition(partitions=partitions, name="given", **TEXTS)
    stream.group_by_key(name="by-value", **TEXTS).count(
        materialized=Materialized("counts", key_serde=TEXT, value_serde=LongSerde())
    )
    return builder


def joined() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("left", **TEXTS).join(
        builder.stream("right", **TEXTS), lambda a, b: a + b, JoinWindows.of_time_difference_with_no_grace(5)
    ).to("out", **TEXTS)
    return builder


class TestPartitionCounts:
    def test_a_repartition_topic_has_as_many_as_its_source_and_a_changelog_as_its_tasks(self) -> None:
        plan = regrouped().build().plan(StreamsConfig("app"))
        assert plan.partition_counts({"in": 3}) == {"app-by-value-repartition": 3, "app-counts-changelog": 3}

    def test_a_given_count_wins(self) -> None:
        plan = regrouped(partitions=7).build().plan(StreamsConfig("app"))
        assert plan.partition_counts({"in": 3}) == {"app-given-repartition": 7, "app-counts-changelog": 7}

    def test_joined_topics_with_different_counts_are_refused_with_both(self) -> None:
        plan = joined().build().plan()
        with pytest.raises(
            CopartitionError, match=r"left has 3, right has 4\. Create them alike, or put repartition"
        ):
            plan.partition_counts({"left": 3, "right": 4})

    def test_the_topics_of_a_foreign_key_join_feed_each_other(self) -> None:
        builder = StreamsBuilder()
        planes, owners = builder.table("planes", **TEXTS), builder.table("owners", **TEXTS)
        owned = planes.join(owners, lambda plane, owner: plane + owner, foreign_key=lambda plane: plane)
        owned.to_stream().select_key(lambda k, v: v).repartition(name="by-name", **TEXTS).to("out", **TEXTS)
        counts = builder.build().plan(StreamsConfig("app")).partition_counts({"planes": 3, "owners": 5})
        registration = next(count for name, count in counts.items() if "REGISTRATION" in name)
        response = next(count for name, count in counts.items() if "RESPONSE" in name)
        assert (registration, response, counts["app-by-name-repartition"]) == (5, 3, 3)

    def test_a_repartition_topic_that_exists_keeps_its_count_unless_a_join_fixes_it(self) -> None:
        """Kafka Streams gives a repartition topic behind a join with other counts 4 or 8 partitions, by hashes."""
        builder = StreamsBuilder()
        flights = builder.stream("flights", **TEXTS).select_key(lambda k, v: v)
        joined = flights.join(builder.table("planes", **TEXTS), lambda a, b: a + b, name="join", **TEXTS)
        joined.select_key(lambda k, v: v).group_by_key(name="group", **TEXTS).count(
            materialized=Materialized("c")
        )
        plan = builder.build().plan(StreamsConfig("app"))
        topics = ("app-join-repartition", "app-group-repartition", "app-c-changelog")
        sources = {"flights": 8, "planes": 4}
        found = plan.partition_counts(sources)
        assert [found[topic] for topic in topics] == [4, 4, 4]
        found = plan.partition_counts({**sources, "app-join-repartition": 8, "app-group-repartition": 8})
        assert [found[topic] for topic in topics] == [4, 8, 8]

    def test_missing_source_topics_are_all_named(self) -> None:
        with pytest.raises(TopologyError, match="source topics left, right do not exist"):
            joined().build().plan().partition_counts({})


class TestPlan:
    def test_subtopologies_with_their_topics_and_stores(self) -> None:
        plan = regrouped().build().plan(StreamsConfig("app"))
        first, second = plan.subtopologies
        assert (first.source_topics, first.sink_topics) == (("in",), ("app-by-value-repartition",))
        assert second.source_topics == ("app-by-value-repartition",)
        assert [s.name for s in second.stores] == ["counts"]
        assert second.changelog_topics["counts"].name == "app-counts-changelog"
        assert plan.source_topics == ("in",)
        assert plan.store_subtopology["counts"] is second

    def test_a_plan_survives_cloudpickle(self) -> None:
        plan = cloudpickle.loads(cloudpickle.dumps(regrouped().build().plan(StreamsConfig("app"))))
        assert plan.subtopologies[0].name == "in"

    def test_the_fingerprint_changes_with_the_state_and_not_with_the_functions(self) -> None:
        def plan_of(store: str, text: str) -> str:
            builder = StreamsBuilder()
            stream = builder.stream("in", **TEXTS).map_values(lambda v: v + text)
            stream.group_by_key(**TEXTS).count(
                materialized=Materialized(store, key_serde=TEXT, value_serde=LongSerde())
            )
            return builder.build().plan().fingerprint

        assert plan_of("counts", "a") == plan_of("counts", "b")
        assert plan_of("counts", "a") != plan_of("renamed", "a")

    def test_windowed_changelogs_are_not_deleted_by_the_wall_clock(self) -> None:
        plan = joined().build().plan(StreamsConfig("app"))
        assert len(plan.internal_topics) == 2
        for topic in plan.internal_topics:
            assert topic.config["retention.ms"] == "-1"

    def test_internal_topics_have_the_settings_that_kafka_streams_gives_them(self) -> None:
        topics = regrouped().build().plan(StreamsConfig("app")).internal_topics
        assert {topic.kind: topic.config for topic in topics} == {
            "repartition": {
                "cleanup.policy": "delete",
                "message.timestamp.type": "CreateTime",
                "retention.ms": "-1",
                "segment.bytes": "52428800",
            },
            "changelog": {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
        }


class TestRefusals:
    def test_an_empty_topology(self) -> None:
        with pytest.raises(TopologyError, match="it has no source"):
            Topology().plan()

    def test_a_doubled_name(self) -> None:
        topology = Topology().add_source("a", "t", **TEXTS)
        with pytest.raises(TopologyError, match="processor a is already added"):
            topology.add_source("a", "u", **TEXTS)

    def test_a_topic_that_is_read_twice(self) -> None:
        topology = Topology().add_source("a", "t", **TEXTS)
        with pytest.raises(TopologyError, match="topic t has already been registered by source a"):
            topology.add_source("b", "t", **TEXTS)
        with pytest.raises(TopologyError, match=r"pattern t\.\* will match topic t"):
            topology.add_source("b", pattern=re.compile("t.*"), **TEXTS)

    def test_unknown_parents_and_sinks_as_parents(self) -> None:
        topology = Topology().add_source("a", "t", **TEXTS).add_sink("s", "u", "a", **TEXTS)
        with pytest.raises(TopologyError, match="parent node nowhere of x is unknown"):
            topology.add_sink("x", "u", "nowhere", **TEXTS)
        with pytest.raises(TopologyError, match="sink s cannot be used as a parent"):
            topology.add_sink("x", "u", "s", **TEXTS)
        with pytest.raises(TopologyError, match="x has no parent"):
            topology.add_sink("x", "u", **TEXTS)

    def test_two_stores_of_one_name(self) -> None:
        topology = Topology().add_state_store(Stores.key_value("s", TEXT, TEXT))
        with pytest.raises(
            TopologyError, match="a different state store has already been added with the name s"
        ):
            topology.add_state_store(Stores.key_value("s", TEXT, LongSerde()))

    def test_a_topic_name_that_kafka_would_refuse(self) -> None:
        with pytest.raises(TopologyError, match='topic "bad name" is illegal'):
            Topology().add_source("a", "bad name", **TEXTS)


def test_each_source_has_its_offset_reset_policy() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", **TEXTS, offset_reset=timedelta(hours=1)).select_key(lambda k, v: v).repartition(
        name="by-value", **TEXTS
    ).foreach(print)
    builder.stream(re.compile("shop-.*"), **TEXTS, offset_reset="none").foreach(print)
    builder.table("gates", **TEXTS, offset_reset="earliest")
    builder.stream("flights", **TEXTS).foreach(print)
    plan = builder.build().plan(StreamsConfig("app", auto_offset_reset="latest"))
    topics = ["orders", "shop-1", "gates", "flights", "app-by-value-repartition"]
    assert [plan.offset_reset(topic) for topic in topics] == [
        timedelta(hours=1),
        "none",
        "earliest",
        "latest",
        "earliest",
    ]


def test_the_policy_of_a_pattern_is_none_of_repartition_topics() -> None:
    """The task of the repartition topic began at its end, and left out records that the application had written."""
    builder = StreamsBuilder()
    builder.stream(re.compile("app-.*"), **TEXTS, offset_reset="latest").foreach(print)
    builder.stream("orders", **TEXTS).select_key(lambda k, v: v).repartition(
        name="by-value", **TEXTS
    ).foreach(print)
    plan = builder.build().plan(StreamsConfig("app"))
    assert plan.offset_reset("app-by-value-repartition") == "earliest"
    assert plan.offset_reset("app-orders") == "latest"


@pytest.mark.parametrize("reset", ["newest", -1, 1.5])
def test_an_offset_reset_policy_that_is_none_is_refused_in_the_call(reset: Any) -> None:
    with pytest.raises(ConfigError, match=r"\(topic in\): offset_reset"):
        StreamsBuilder().stream("in", **TEXTS, offset_reset=reset)
    with pytest.raises(ConfigError, match=r"\(topic in\): offset_reset"):
        StreamsBuilder().table("in", **TEXTS, offset_reset=reset)
    with pytest.raises(ConfigError, match="source s: offset_reset"):
        Topology().add_source("s", "in", **TEXTS, offset_reset=reset)


def test_a_pattern_matches_no_topic_of_brokers() -> None:
    """The topic of transactions comes with the first transaction of a cluster, while workers run."""
    topology = Topology()
    topology.add_source("all", pattern=re.compile(".*"), **TEXTS)
    plan = topology.plan(StreamsConfig("app"))
    topics = ["in", "__transaction_state", "__consumer_offsets", "__mine"]
    assert [topic for topic in topics if plan.pattern_of(topic)] == ["in", "__mine"]
