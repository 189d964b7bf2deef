"""The notes about stores in committed offsets, by which a version with other stores is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp import (
    AvroSerde,
    IntegerSerde,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    Serde,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    Topology,
)
from streamapp.engine.metadata import (
    RememberedTimes,
    changelog_notes,
    changelog_number,
    decode_metadata,
    encode_metadata,
    metadata_of,
)
from streamapp.engine.store_notes import (
    EDITION,
    by_task,
    changelog_numbers,
    check_notes,
    check_stores,
    noted_changelogs,
    notes_for,
    unnoted,
    without_notes,
)
from streamapp.engine.topic_notes import note_of_topics
from streamapp.errors import TopologyError
from streamapp.records import TopicPartition
from streamapp.topology.plan import Plan

TEXT = StringSerde()
INPUT = TopicPartition("in", 0)


def plan(build: Callable[[StreamsBuilder], object]) -> Plan:
    builder = StreamsBuilder()
    build(builder)
    return builder.build().plan(StreamsConfig("app"))


def windowed(windows: object, store: str = "counts", topic: str = "in") -> Plan:
    return plan(
        lambda builder: (
            builder.stream(topic, key_serde=TEXT, value_serde=TEXT)
            .group_by_key()
            .windowed_by(windows)
            .count(materialized=Materialized(store))
        )
    )


def committed(old: Plan, *topics: str) -> dict[TopicPartition, str]:
    return {
        TopicPartition(t, 0): RememberedTimes().encode(5, "A1", notes_for(old, t, lambda topic: 2))
        for t in topics
    }


COUNTS = dict.fromkeys(["in", "a", "b", "a-table", "b-table"], 2)
MINUTES = TimeWindows.of_size_with_no_grace(600_000)


@pytest.mark.parametrize(
    ("old", "new", "had", "reads"),
    [
        (
            MINUTES,
            TimeWindows.of_size_with_no_grace(300_000),
            "windows of 600000 ms",
            "windows of 300000 ms",
        ),
        (MINUTES, MINUTES.advance_by(60_000), "windows of 600000 ms", "windows of 600000 ms every 60000 ms"),
        (
            MINUTES,
            SlidingWindows.of_time_difference_with_no_grace(600_000),
            "windows of 600000 ms",
            "sliding windows of 600000 ms",
        ),
        (MINUTES, SessionWindows.of_inactivity_gap_with_no_grace(600_000), "windows of 600000 ms", "session"),
    ],
)
def test_windows_of_another_kind_are_refused(old: object, new: object, had: str, reads: str) -> None:
    """A worker without a state folder took the old rows for windows of its own version."""
    with pytest.raises(TopologyError) as refused:
        check_notes(windowed(new), committed(windowed(old), "in"))
    message = str(refused.value)
    assert f"app-counts-changelog has {had}, StringSerde/LongSerde, but the store counts of this" in message
    assert f"would read {reads}, StringSerde/LongSerde" in message
    assert "Give the store of this version another name" in message
    assert "persistent_name" not in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MINUTES, TimeWindows.of_size_and_grace(600_000, 5_000)),
        (
            SessionWindows.of_inactivity_gap_with_no_grace(600_000),
            SessionWindows.of_inactivity_gap_and_grace(300_000, 10),
        ),
    ],
)
def test_grace_and_the_gap_of_sessions_may_change(old: object, new: object) -> None:
    check_notes(windowed(new), committed(windowed(old), "in"))


def counted(topic: str, store: str | None, value: Serde[Any] = TEXT) -> Callable[[StreamsBuilder], object]:
    return lambda builder: (
        builder.stream(topic, key_serde=TEXT, value_serde=value)
        .group_by_key()
        .reduce(lambda old, new: new, materialized=Materialized(store))
    )


def test_a_changelog_of_agents_is_refused() -> None:
    """A table of agents has moved to a store of the same name, which cannot read rows in Faust's form."""
    notes = changelog_notes({"app-last-changelog": "C1"})
    old = {INPUT: metadata_of("A1", *notes)}
    moved = plan(counted("in", "last"))
    check_stores(plan(counted("in", "other")), old, COUNTS | {"app-last-changelog": 2})
    check_stores(moved, old, COUNTS)  # somebody has deleted the changelog
    with pytest.raises(
        TopologyError, match="app-last-changelog has the rows of a table of agents.*another name"
    ):
        check_stores(moved, old, COUNTS | {"app-last-changelog": 2})


def test_another_serde_is_refused_unless_its_class_has_the_old_name() -> None:
    class OldText(StringSerde):
        persistent_name = "StringSerde"

    old = committed(plan(counted("in", "last")), "in")
    check_notes(plan(counted("in", "last", OldText())), old)
    with pytest.raises(
        TopologyError, match="has values by key, StringSerde/StringSerde.*attribute persistent_name"
    ):
        check_notes(plan(counted("in", "last", IntegerSerde())), old)


def rekeyed(name: str | None) -> Plan:
    """An application with a repartition topic of this name, or with none."""

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
        if name is not None:
            grouped = stream.group_by(lambda key, value: value, key_serde=TEXT, value_serde=TEXT, name=name)
            grouped.count(materialized=Materialized("counts"))

    return plan(build)


def in_edition(edition: int, text: str) -> str:
    time, names = decode_metadata(text)
    return encode_metadata(time, names | {EDITION: edition})


def test_tables_behind_a_repartition_topic_to_which_a_version_did_not_write() -> None:
    with_it, without, between = rekeyed("r"), rekeyed(None), "app-r-repartition"
    first = committed(with_it, "in", between)
    check_stores(with_it, first, COUNTS)
    later = {INPUT: in_edition(1, committed(without, "in")[INPUT])}
    with pytest.raises(TopologyError, match="did not write to the repartition topic app-r-repartition"):
        check_stores(with_it, first | later, COUNTS)
    # An idle task still has the notes of the first version.
    idle = {TopicPartition("in", 1): first[INPUT]}
    with pytest.raises(TopologyError, match="did not write to the repartition topic app-r-repartition"):
        check_stores(with_it, first | later | idle, COUNTS)
    # The version that adds the topic begins in edition 2. The task of the input may not have committed yet.
    begun = {tp: in_edition(2, text) for tp, text in committed(with_it, between).items()}
    check_stores(with_it, later | begun, COUNTS)
    check_stores(with_it, later, COUNTS)


def test_an_input_that_a_version_does_not_read_has_old_notes() -> None:
    """The notes of an input that only the first and the third version read named a store that the second did not
    have."""
    both, one = many(2), many(1)
    notes = committed(both, "a") | {INPUT: in_edition(1, committed(one, "in")[INPUT])}
    assert unnoted(both, notes) == {"store-1"}


def keyed(schema: object, version: int | None = None) -> Plan:
    key = AvroSerde(schema, version=version)
    kept = Materialized("counts", key_serde=key)
    return plan(
        lambda builder: (
            builder.stream("in", key_serde=key, value_serde=TEXT).group_by_key().count(materialized=kept)
        )
    )


def test_keys_with_another_schema_are_refused() -> None:
    """Each table silently began anew beside its old rows, because the bytes of a key have the id of its schema."""
    fields = [{"name": "id", "type": "string"}]
    old = {"type": "record", "name": "Depot", "fields": fields}
    new = {**old, "fields": [*fields, {"name": "zone", "type": "string", "default": ""}]}
    check_notes(keyed(old), committed(keyed(old), "in"))
    with pytest.raises(TopologyError, match="so no key would find its old row"):
        check_notes(keyed(new), committed(keyed(old), "in"))
    check_notes(keyed(new, version=1), committed(keyed(old, version=1), "in"))
    of_earlier_release = encode_metadata(
        5, {"store counts: values by key, AvroSerde/LongSerde": 5, "all stores": 5}
    )
    check_notes(keyed(new), {INPUT: of_earlier_release})


def test_kinds_with_the_same_changelog_may_follow_each_other() -> None:
    def table(history: int | None) -> Plan:
        kept = Materialized("planes", history_retention=history)
        return plan(lambda builder: builder.table("in", key_serde=TEXT, value_serde=TEXT, materialized=kept))

    check_notes(table(60_000), committed(table(None), "in"))
    check_notes(table(None), committed(table(60_000), "in"))


def test_names_that_change_places_are_refused() -> None:
    """Generated names have numbers. After the swap, each table went on with the rows of the other."""

    def two(first: str, second: str) -> Plan:
        return plan(lambda builder: (counted(first, None)(builder), counted(second, None)(builder)))

    old, new = two("a", "b"), two("b", "a")
    check_stores(old, committed(old, "a", "b"), COUNTS)
    with pytest.raises(
        TopologyError, match="of records of a, and the store KSTREAM-REDUCE.* reads other topics"
    ):
        check_stores(new, committed(old, "a", "b"), COUNTS)


def test_joins_that_change_places_are_refused() -> None:
    """Generated names have numbers. After the swap, the records of one topic were joined as those of the other."""

    def joined(*others: str) -> Plan:
        def build(builder: StreamsBuilder) -> None:
            left = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
            windows = JoinWindows.of_time_difference_with_no_grace(60_000)
            for other in others:
                right = builder.stream(other, key_serde=TEXT, value_serde=TEXT)
                left.join(right, lambda one, two: one + two, windows)
                table = builder.table(f"{other}-table", key_serde=TEXT, value_serde=TEXT)
                left.join(table, lambda one, two: one + two)

        return plan(build)

    topics = ["in", "a", "b", "a-table", "b-table"]
    check_stores(joined("a", "b"), committed(joined("a", "b"), *topics), COUNTS)
    with pytest.raises(
        TopologyError, match="records of a, and the store KSTREAM-JOINOTHER.*reads other topics"
    ):
        check_stores(joined("b", "a"), committed(joined("a", "b"), *topics), COUNTS)


class Nothing(Processor):
    def process(self, record: Record) -> None: ...


def test_processors_that_share_a_store_may_change_places() -> None:
    def shared(*topics: str) -> Plan:
        topology = Topology()
        for topic in topics:
            topology.add_source(f"from-{topic}", topic, key_serde=TEXT, value_serde=TEXT)
            topology.add_processor(f"count-{topic}", Nothing, f"from-{topic}")
        store = Stores.key_value("counts", TEXT, TEXT)
        topology.add_state_store(store, *(f"count-{topic}" for topic in topics))
        return topology.plan(StreamsConfig("app"))

    check_stores(shared("b", "a"), committed(shared("a", "b"), "a", "b"), COUNTS)
    check_stores(shared("b"), committed(shared("a", "b"), "a", "b"), COUNTS)
    check_stores(shared("a", "b"), committed(shared("b"), "b"), COUNTS)


def test_a_store_of_which_the_last_commit_knows_nothing() -> None:
    old, new = windowed(MINUTES), windowed(MINUTES, "five")
    assert unnoted(new, committed(old, "in")) == {"five"}
    assert unnoted(old, committed(old, "in")) == frozenset()


def test_java_may_have_written_rows_of_a_store_after_the_notes() -> None:
    """Java copies the notes. A version with a store that Java had added was refused, with all its rows."""
    new, notes = many(2), committed(many(1), "in", "a")
    assert unnoted(new, notes) == {"store-1"}

    def java(tp: TopicPartition, partition_time: int) -> dict[TopicPartition, str]:
        """A later commit of Kafka Streams."""
        return {**notes, tp: encode_metadata(partition_time, decode_metadata(notes[tp])[1])}

    assert not unnoted(new, java(INPUT, 6))
    assert not unnoted(new, java(TopicPartition("a", 0), 6))
    assert unnoted(new, java(INPUT, 5)) == {"store-1"}


def test_notes_of_the_first_releases_count() -> None:
    """The numbers of their notes are 0."""
    note = encode_metadata(5, {"store four: values by key, StringSerde/StringSerde": 0, "all stores": 0})
    assert unnoted(many(1), {INPUT: note}) == {"store-0"}


def test_commits_without_notes_are_taken() -> None:
    new = windowed(MINUTES)
    for text in ("", encode_metadata(5, {"topic id A1": 0}), "backfill:{}"):
        check_stores(new, {INPUT: text}, COUNTS)
        assert not unnoted(new, {INPUT: text})


def many(count: int) -> Plan:
    """Stores whose records come from two topics."""

    def build(builder: StreamsBuilder) -> None:
        grouped = builder.stream(["in", "a"], key_serde=TEXT, value_serde=TEXT).group_by_key()
        for number in range(count):
            grouped.count(materialized=Materialized(f"store-{number}"))

    return plan(build)


def test_notes_that_do_not_fit_are_left_out_from_the_end() -> None:
    old = many(80)
    text = committed(old, "in")
    assert len(text[INPUT]) <= 2_000
    assert not unnoted(windowed(MINUTES, "new"), text)
    with pytest.raises(TopologyError, match="store-0-changelog has values by key"):
        check_notes(windowed(MINUTES, "store-0"), text)


def test_as_many_notes_as_possible_fit() -> None:
    notes = notes_for(many(80), "in", lambda topic: 2)
    for count in range(81):
        text = RememberedTimes().encode(5, "A1", [*notes[:count], "all stores"])
        assert len(text) <= 2_000
        names = decode_metadata(text)[1]
        if names.keys() >= {*notes[:count]}:
            assert "all stores" in names
        else:
            assert "some stores" in names
            longer = encode_metadata(5, names | {notes[len(names) - 2]: 0})
            assert len(longer) > 2_000


def test_a_version_whose_notes_do_not_fit_may_have_an_idle_input() -> None:
    """The offset of the idle input still has all notes of the version before. The restart was refused."""
    few, more = many(12), many(80)
    both = committed(few, "a") | committed(more, "in")
    assert not unnoted(more, both)
    assert unnoted(more, committed(few, "a")) == {f"store-{number}" for number in range(12, 80)}


def test_metadata_without_notes_keeps_times_and_is_that_of_a_task() -> None:
    text = committed(many(12), "in")[INPUT]
    short = without_notes(text)
    assert decode_metadata(short) == (5, {"topic id A1": 0, "some stores": 0})
    assert by_task(short)
    assert not unnoted(many(13), {INPUT: short})
    assert without_notes(short) == short
    assert without_notes("") == ""
    assert without_notes(encode_metadata(5, {note_of_topics(["a", "b"]): 5, "x": 7})) == encode_metadata(
        5, {"x": 7, "some stores": 0}
    )


def test_a_table_whose_topic_has_got_partitions_is_refused() -> None:
    """The table was restored from the old partitions, and did not find the rows whose keys belong to new ones."""
    builder = StreamsBuilder(StreamsConfig("app", topology_optimization="all"))
    builder.table("in", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("planes"))
    optimized = builder.build().plan()
    check_stores(optimized, committed(optimized, "in"), {"in": 2})
    with pytest.raises(
        TopologyError, match="topic in, which restores a table, had 2 partitions, and has 4 now"
    ):
        check_stores(optimized, committed(optimized, "in"), {"in": 4})
    check_stores(windowed(MINUTES), committed(windowed(MINUTES), "in"), {"in": 4})


def with_changelog(old: Plan, partition: int, topic_id: str, edition: int = 0) -> dict[TopicPartition, str]:
    """The commit of a task whose changelog had this id, by a version with this edition of the notes."""
    numbers = changelog_numbers(old, "in", {"app-counts-changelog": topic_id})
    times = RememberedTimes()
    if edition:
        times.remember(EDITION, lambda: edition)
    notes = notes_for(old, "in", lambda topic: 2)
    return {TopicPartition("in", partition): times.encode(5, "A1", notes, changelogs=numbers)}


def test_commits_name_the_ids_of_changelogs() -> None:
    old = windowed(MINUTES)
    commits = with_changelog(old, 0, "C1") | committed(old, "in") | with_changelog(old, 1, "C1")
    assert noted_changelogs(old, commits) == {
        "app-counts-changelog": {TopicPartition("in", 1): changelog_number("C1")}
    }
    assert noted_changelogs(old, committed(old, "in")) == {}
    check_stores(old, commits, COUNTS)


def test_a_partition_time_is_no_id_of_a_changelog() -> None:
    old, largest = windowed(MINUTES), 2**63 - 1
    text = RememberedTimes().encode(largest, "A1", notes_for(old, "in", lambda topic: 2))
    assert noted_changelogs(old, {INPUT: text}) == {}


def test_only_the_last_version_that_had_the_store_names_its_changelog() -> None:
    """A version without the store came between, so its changelog was deleted for good reason."""
    old = windowed(MINUTES)
    without = windowed(MINUTES, "others")
    times = RememberedTimes()
    times.remember(EDITION, lambda: 1)
    later = {TopicPartition("in", 1): times.encode(5, "A1", notes_for(without, "in", lambda topic: 2))}
    assert noted_changelogs(old, with_changelog(old, 0, "C1") | later) == {}
    again = with_changelog(old, 0, "C1") | with_changelog(old, 1, "C2", edition=2)
    assert noted_changelogs(old, again) == {
        "app-counts-changelog": {
            TopicPartition("in", 0): changelog_number("C1"),
            TopicPartition("in", 1): changelog_number("C2"),
        }
    }
