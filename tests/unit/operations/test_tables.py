"""Which tables new offsets contradict, by the topology."""

from __future__ import annotations

import re

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.operations.acls import acls_of_topology
from streamapp.operations.offsets.subject import Subject
from streamapp.operations.offsets.tables import contradictions
from streamapp.topology.plan import Plan

TEXT = StringSerde()


def plan(**settings: str) -> Plan:
    """flights -> by carrier (repartition, table), again by count (table); planes -> table; gates -> nothing."""
    config = StreamsConfig("app", default_key_serde=TEXT, default_value_serde=TEXT, **settings)  # type: ignore[arg-type]
    builder = StreamsBuilder(config)
    carriers = (
        builder.stream("flights")
        .select_key(lambda _, value: value)
        .group_by_key()
        .count(materialized=Materialized("carriers"))
    )
    carriers.to_stream().map_values(str).select_key(lambda _, value: value).group_by_key().count(
        materialized=Materialized("counts")
    )
    builder.table("planes", materialized=Materialized("planes"))
    builder.stream("gates").to("copies")
    return builder.build().plan()


def subject(found: Plan | None) -> Subject:
    topics = [
        *plan().source_topics,
        *(topic.name for topic in plan().internal_topics),
        "other-carriers-changelog",
    ]
    made = Subject("app", {"bootstrap.servers": "127.0.0.1:1"}, found)
    made.__dict__["topics"] = dict.fromkeys(topics, 1)
    return made


def named(found: Plan | None, back: set[str], forward: set[str]) -> dict[str, tuple[str, ...]]:
    return {each.store: each.directions for each in contradictions(subject(found), back, forward)}


def test_tables_behind_a_repartition_topic_are_reached() -> None:
    assert named(plan(), {"flights"}, set()) == {"carriers": ("back",), "counts": ("back",)}
    assert named(plan(), set(), {"planes"}) == {"planes": ("forward",)}
    assert named(plan(), {"flights"}, {"planes"}) == {
        "carriers": ("back",),
        "counts": ("back",),
        "planes": ("forward",),
    }
    assert named(plan(), {"gates"}, {"gates"}) == {}


def test_a_table_that_is_its_own_input_does_not_contradict() -> None:
    optimised = plan(topology_optimization="all")
    assert named(optimised, {"planes"}, set()) == {}
    assert "carriers" in named(optimised, {"flights"}, set())


def test_without_the_topology_all_changelogs_of_the_name_are_named() -> None:
    assert named(None, {"gates"}, set()) == dict.fromkeys(("carriers", "counts", "planes"), ("back",))
    assert named(None, set(), set()) == {}


def test_the_repartition_topic_of_the_middle_reaches_what_comes_after_only() -> None:
    assert named(plan(), {"app-counts-repartition"}, set()) == {"counts": ("back",)}


def test_rights_of_sources_by_pattern_are_those_of_the_topics_that_match() -> None:
    builder = StreamsBuilder(StreamsConfig("app", default_key_serde=TEXT, default_value_serde=TEXT))
    builder.stream(re.compile("in-.*")).to("out")
    rights = acls_of_topology(builder.build().plan(), ["in-1", "in-2", "other"])
    assert {(acl.name, acl.operation) for acl in rights if acl.resource == "topic"} == {
        ("in-1", "Read"),
        ("in-2", "Read"),
        ("out", "Write"),
    }


def test_a_pattern_reads_no_topic_of_the_brokers() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(".*"), key_serde=TEXT, value_serde=TEXT).to("copies")
    made = subject(builder.build().plan(StreamsConfig("app")))
    made.__dict__["topics"] = {"flights": 1, "__consumer_offsets": 50}
    assert made.inputs({}) == ("flights",)
