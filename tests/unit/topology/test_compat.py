"""What a deployment of a changed topology needs, change by change."""

from __future__ import annotations

import json

import msgspec
import pytest

from streamapp import (
    AvroSerde,
    BufferConfig,
    ConfigError,
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    LongSerde,
    Materialized,
    Need,
    Retry,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    compare_topologies,
)
from streamapp.state.backend import STATE_FORMAT
from streamapp.topology.snapshot import snapshot

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}


def plan(describe, **config):
    builder = StreamsBuilder(StreamsConfig("app", **config))
    describe(builder)
    return builder.build().plan()


def counts(name="counts", topic="in", **kept):
    return lambda b: b.stream(topic, **TEXT).group_by_key().count(materialized=Materialized(name, **kept))


def tried_again(retry):
    return lambda b: (
        b.stream("in", **TEXT).map_values(str.upper, on_error=retry, name="look-up").to("out", **TEXT)
    )


def windows(size, advance=None):
    def describe(builder):
        hopping = TimeWindows.of_size_and_grace(size, 100 - size).advance_by(advance or size)
        windowed = builder.stream("in", **TEXT).group_by_key().windowed_by(hopping)
        windowed.count(materialized=Materialized("w"))

    return describe


def final(size, buffer):
    def describe(builder):
        windowed = builder.stream("in", **TEXT).group_by_key()
        windowed = windowed.windowed_by(TimeWindows.of_size_with_no_grace(size))
        table = windowed.count(materialized=Materialized(f"of-{size}"))
        table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), name=buffer))

    return describe


def joined(*others, within=10):
    def describe(builder):
        stream = builder.stream("in", **TEXT)
        for other in others:
            near = JoinWindows.of_time_difference_with_no_grace(within)
            stream.join(builder.stream(other, **TEXT), lambda one, two: one + two, near)

    return describe


def sessions(emit):
    def describe(builder):
        windowed = (
            builder.stream("in", **TEXT)
            .group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
        )
        windowed.emit_strategy(emit).count(materialized=Materialized("s"))

    return describe


def rekeyed(name, partitions=None, value_serde=TEXT["value_serde"]):
    def describe(builder):
        stream = builder.stream("in", **TEXT).select_key(lambda k, v: v)
        stream.repartition(
            key_serde=StringSerde(), value_serde=value_serde, name=name, partitions=partitions
        ).to("out")

    return describe


def counted_by_value(store):
    """A table behind a repartition topic."""
    return lambda b: (
        b.stream("in", **TEXT)
        .group_by(lambda k, v: v, **TEXT, name="r")
        .count(materialized=Materialized(store))
    )


def copied(*topics):
    return lambda b: b.stream(list(topics), **TEXT).to("o")


class Depot(msgspec.Struct, frozen=True):
    id: str


class ZonedDepot(Depot, frozen=True):
    zone: str = ""


DEPOT = {"type": "record", "name": "Depot", "fields": [{"name": "id", "type": "string"}]}


def keyed(serde):
    kept = Materialized("counts", key_serde=serde)
    return lambda b: (
        b.stream("in", key_serde=serde, value_serde=StringSerde()).group_by_key().count(materialized=kept)
    )


def looked_up(*others):
    """A table, and operators that read its rows."""

    def describe(builder):
        table = builder.table("t", **TEXT, materialized=Materialized("t"))
        builder.stream("in", **TEXT).to("out")
        if "stream" in others:
            builder.stream("more", **TEXT).join(table, lambda one, two: one).to("joined", **TEXT)
        if "table" in others:
            right = builder.table("r", **TEXT, materialized=Materialized("r"))
            table.join(right, lambda one, two: one, foreign_key=lambda value: value, name="fk")

    return describe


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (looked_up(), looked_up("stream")),
        (looked_up("table"), looked_up()),
        (looked_up(), looked_up("table")),
    ],
)
def test_operators_that_only_read_a_store_may_come_and_go(old, new):
    """The finding asked for a reset: the name of the store belonged to something else. Workers took the rows."""
    (found,) = (f for f in compare_topologies(plan(old), plan(new)).findings if f.subject == "store t")
    assert (found.need, found.why) == (Need.NOTHING, "unchanged")


def both(*parts):
    def describe(builder):
        for part in parts:
            part(builder)

    return describe


def compare(old, new):
    """The need, and the finding of the largest need."""
    result = compare_topologies(plan(old), plan(new))
    return result.need, str(result.findings[0])


def test_the_same_topology_needs_nothing():
    need, text = compare(counts(), counts())
    assert (need, text) == (Need.NOTHING, "nothing    store counts: unchanged")


def test_functions_are_not_compared():
    def summing(step):
        def describe(builder):
            grouped = builder.stream("in", **TEXT).group_by_key()
            grouped.aggregate(
                int, lambda k, v, a: a + step, materialized=Materialized("s", value_serde=LongSerde())
            )

        return describe

    assert compare(summing(1), summing(2))[0] is Need.NOTHING


@pytest.mark.parametrize(
    ("old", "new", "need", "words"),
    [
        (counts(), counts("tallies"), Need.MIGRATION, 'Keep the name: Materialized("counts")'),
        (counts(), counts(topic="other"), Need.RESET, "the name belongs to something else now"),
        (
            lambda b: b.table("in", **TEXT, materialized=Materialized("s")),
            lambda b: b.table(
                "in", key_serde=StringSerde(), value_serde=JsonSerde(), materialized=Materialized("s")
            ),
            Need.RESET,
            "its values were written by StringSerde and would be read by JsonSerde",
        ),
        (windows(10), windows(20), Need.RESET, "its windows change from 10 to 20 ms"),
        (
            final(10, "f"),
            final(20, "f"),
            Need.RESET,
            "store f-store: its rows change from suppress buffer, TimeWin",
        ),
        (final(10, "f"), final(20, "g"), Need.MIGRATION, "store g-store: new, and its inputs"),
        (
            windows(10),
            windows(10, advance=5),
            Need.RESET,
            "from windows of 10 ms, StringSerde/LongSerde to windows of 10 ms every 5 ms, StringSerde/LongSerde",
        ),
        (joined("a", within=10), joined("a", within=20), Need.MIGRATION, "workers refuse the state folder"),
        (joined("a", "b"), joined("b", "a"), Need.RESET, "the name belongs to something else now"),
        (counts(), counts(history_retention=50), Need.MIGRATION, "the changelog serves both"),
        (
            counts(),
            counts(history_retention=50),
            Need.MIGRATION,
            "First set min.compaction.lag.ms=9223372036854775807 for the changelog",
        ),
        (
            sessions(EmitStrategy.ON_WINDOW_UPDATE),
            sessions(EmitStrategy.ON_WINDOW_CLOSE),
            Need.MIGRATION,
            "an index by time only with final results",
        ),
        (counts(), counts(logging=False), Need.MIGRATION, "no changelog any more"),
        (counts(logging=False), counts(), Need.RESET, "would lack the rows of before"),
        (counts(), both(counts(), counts("more")), Need.MIGRATION, "begins empty at the committed offsets"),
        (
            copied("in"),
            both(copied("in"), counted_by_value("of-values")),
            Need.MIGRATION,
            "store of-values: new, and its inputs have been read before",
        ),
        (rekeyed("by-value"), rekeyed("other"), Need.MIGRATION, "wait until its lag is 0"),
        (
            tried_again(Retry.by_key(then="skip")),
            tried_again("skip"),
            Need.MIGRATION,
            "store look-up-parked: removed: nobody tries the records again that wait in it",
        ),
        (
            tried_again(Retry.topics(5, 10, then="skip")),
            tried_again(Retry.topics(5, then="skip")),
            Need.MIGRATION,
            "store look-up-retry-2-waiting: removed: nobody tries the records again",
        ),
        (rekeyed("r", 4), rekeyed("r", 8), Need.RESET, "partitions change from 4 to 8"),
        (
            keyed(AvroSerde(DEPOT)),
            keyed(AvroSerde({**DEPOT, "doc": "new"})),
            Need.RESET,
            "store counts: the schema of its keys changes",
        ),
        (
            keyed(JsonSerde(Depot)),
            keyed(JsonSerde(ZonedDepot)),
            Need.MIGRATION,
            "store counts: the type of its keys changes: a key with other bytes",
        ),
        (
            rekeyed("r"),
            rekeyed("r", value_serde=JsonSerde()),
            Need.MIGRATION,
            "repartition topic app-r-repartition: its records were written by StringSerde/StringSerde and would be "
            "read by StringSerde/JsonSerde",
        ),
    ],
)
def test_what_a_change_needs(old, new, need, words):
    found, text = compare(old, new)
    assert found is need
    assert any(words in str(f) for f in compare_topologies(plan(old), plan(new)).findings), text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            counts(),
            lambda b: b.stream("in", **TEXT).to("out"),
            "removed; its changelog app-counts-changelog is left over",
        ),
        (
            lambda b: b.stream("in", **TEXT).to("out"),
            lambda b: b.stream("in", **TEXT).to("elsewhere"),
            "output topic elsewhere: new; create it before the deployment",
        ),
        (
            lambda b: b.stream("a", **TEXT).to("o"),
            lambda b: b.stream(["a", "b"], **TEXT).to("o"),
            "source topic b: new",
        ),
        (
            lambda b: b.global_table("g", **TEXT, materialized=Materialized("one")),
            lambda b: b.global_table("g", **TEXT, materialized=Materialized("two")),
            "global store two: new",
        ),
    ],
)
def test_changes_without_consequences(old, new, words):
    findings = compare_topologies(plan(old), plan(new)).findings
    changed = [f for f in findings if f.subject != "local state"]
    assert all(f.need is Need.NOTHING for f in changed)
    assert words is None or any(words in str(f) for f in changed)


@pytest.mark.parametrize(
    ("old", "new", "need", "words"),
    [
        (copied("a", "b"), copied("a"), Need.MIGRATION, "source topic b: not read any more: records"),
        (copied("a", "b"), copied("a"), Need.MIGRATION, "Wait until its lag is 0, then deploy"),
        (
            copied("a"),
            copied("b"),
            Need.MIGRATION,
            "source topic b: read in the place of a: the group has no",
        ),
        (counts(topic=["a", "b"]), counts(topic="a"), Need.MIGRATION, "its records stay in counts"),
        (
            counts(topic="a"),
            counts(topic=["a", "b"]),
            Need.NOTHING,
            "store counts: it reads b too now, from auto",
        ),
    ],
)
def test_topics_that_come_and_go_are_told_with_their_offsets_and_rows(old, new, need, words):
    """The findings said only "new" and "not read any more", and the need was "nothing"."""
    result = compare_topologies(plan(old), plan(new))
    assert (result.need, words in str(result)) == (need, True), str(result)


def test_agents_are_compared():
    described = snapshot(plan(copied("a")))
    table = {"changelog": "app-t-changelog", "partitions": None, "value_type": None, "window": None}

    def compared(old, new):
        return compare_topologies(described | {"agents": old}, described | {"agents": new})

    before = {"topics": ["x"], "tables": {"t": table}}
    assert compared(before, before).need is Need.NOTHING
    more = compared(before, {"topics": ["x", "y"], "tables": {"t": table, "u": table}})
    assert more.need is Need.MIGRATION
    assert "agents' table u: new, and the agents go on at their committed offsets" in str(more)
    assert "agents' topic y: new; the group has no offsets of it" in str(more)
    less = compared(before, {"topics": [], "tables": {}})
    assert "agents' topic x: not read any more" in str(less)
    assert "agents' table t: removed; its changelog app-t-changelog is left over" in str(less)
    other = compared(
        before, {"topics": ["x"], "tables": {"t": table | {"window": "TumblingWindow size 60 s"}}}
    )
    assert other.need is Need.RESET
    assert "its window changes from None to TumblingWindow size 60 s" in str(other)
    assert compare_topologies(described, described | {"agents": before}).need is Need.NOTHING


def test_generated_names_that_move_to_another_operator_are_found_out():
    def counted(topic):
        return lambda b: b.stream(topic, **TEXT).group_by_key().count()

    swapped = compare_topologies(
        plan(both(counted("a"), counted("b"))), plan(both(counted("b"), counted("a")))
    )
    assert swapped.need is Need.RESET
    assert "Name the stores of both" in str(swapped)


def test_a_key_that_goes_through_a_new_repartition_topic_may_change_its_partition():
    def through(builder):
        grouped = builder.stream("in", **TEXT).group_by(lambda k, v: v, **TEXT, name="by-value")
        grouped.count(materialized=Materialized("counts"))

    assert compare(counts(), through)[0] is Need.RESET


def test_a_source_topic_that_was_the_changelog_cannot_be_replaced_by_an_empty_one():
    def table(b):
        b.table("in", **TEXT, materialized=Materialized("s"))

    optimised = plan(table, topology_optimization="reuse.ktable.source.topics")
    assert compare_topologies(optimised, plan(table)).need is Need.RESET
    assert compare_topologies(plan(table), optimised).need is Need.NOTHING


def test_one_store_for_a_self_join_keeps_the_rows_of_the_first_of_two():
    """The comparison asked for a reset, although the join went on with the rows of its changelog."""

    def joined(b):
        stream = b.stream("in", **TEXT)
        stream.join(stream, str.__add__, JoinWindows.of_time_difference_with_no_grace(100)).to("out", **TEXT)

    two, one = plan(joined), plan(joined, topology_optimization="single.store.self.join")
    (stays,) = one.subtopologies[0].stores
    for old, new in ((two, one), (one, two)):
        (found,) = (f for f in compare_topologies(old, new).findings if f.subject == f"store {stays.name}")
        assert found.need is Need.NOTHING


def test_another_application_begins_anew():
    builder = StreamsBuilder(StreamsConfig("other"))
    counts()(builder)
    result = compare_topologies(plan(counts()), builder.build())
    assert [f.need for f in result.findings] == [Need.RESET]


def test_state_folders_of_another_plan_are_named():
    findings = compare_topologies(plan(counts()), plan(both(counts(), counts("more")))).findings
    assert any(f.subject == "local state" and "delete their state folders" in f.remedy for f in findings)


def test_a_state_folder_of_another_format_is_named():
    kept = {**snapshot(plan(counts())), "state_format": 0}
    (finding,) = [f for f in compare_topologies(kept, plan(counts())).findings if f.subject == "local state"]
    assert f"its format is 0, not {STATE_FORMAT}" in finding.why
    assert "delete their state folders" in finding.remedy
    assert compare_topologies(plan(counts()), kept).need is Need.MIGRATION


def test_a_snapshot_without_a_format_is_of_format_1():
    kept = snapshot(plan(sessions(EmitStrategy.ON_WINDOW_CLOSE)))
    del kept["state_format"], kept["stores"]["s"]["time_index"]
    findings = compare_topologies(kept, plan(sessions(EmitStrategy.ON_WINDOW_CLOSE))).findings
    assert [(f.subject, f.need.name) for f in findings] == [
        ("local state", "MIGRATION"),
        ("store s", "NOTHING"),
    ]


@pytest.mark.parametrize(
    "describe", [counts(store_type="in_memory"), lambda b: b.stream("in", **TEXT).to("out")]
)
def test_a_format_does_not_matter_without_state_on_disk(describe):
    kept = {**snapshot(plan(describe)), "state_format": 0}
    assert compare_topologies(kept, plan(describe)).need is Need.NOTHING


def test_a_snapshot_survives_json():
    kept = json.loads(json.dumps(snapshot(plan(windows(10)))))
    assert compare_topologies(kept, plan(windows(10))).need is Need.NOTHING
    assert compare_topologies(kept, plan(windows(20))).need is Need.RESET


@pytest.mark.parametrize("nonsense", [{}, {"format": 99}, "text", None])
def test_what_is_no_description_is_refused(nonsense):
    with pytest.raises(ConfigError, match="streamapp describe"):
        compare_topologies(nonsense, plan(counts()))
