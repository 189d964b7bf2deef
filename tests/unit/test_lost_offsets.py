"""The refusal of offsets that are lost, or that another tool has set: which tables count, and what other workers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.engine.metadata import encode_metadata, metadata_of
from streamapp.engine.topic_notes import note_of_topics
from streamapp.errors import TopologyError
from streamapp.operations.offsets.subject import Subject
from streamapp.records import TopicPartition
from streamapp.runners import lost_offsets
from streamapp.runners.lost_offsets import OffsetCheck, fed_changelogs
from streamapp.topology.plan import Plan

TEXTS = {"key_serde": StringSerde(), "value_serde": StringSerde()}
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ROWS_A, ROWS_B = TopicPartition("app-of-a-changelog", 0), TopicPartition("app-of-b-changelog", 0)
COUNTS = {"a": 1, "b": 1, ROWS_A.topic: 1, ROWS_B.topic: 1}
TAKEN = encode_metadata(5, {})


def counting() -> Plan:
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        builder.stream(topic, **TEXTS).group_by_key().count(materialized=Materialized(f"of-{topic}"))
    return builder.build().plan(StreamsConfig("app"))


def check(
    monkeypatch: pytest.MonkeyPatch,
    later: Mapping[TopicPartition, tuple[int, str]],
    rows: set[TopicPartition],
    harmless: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """The check of two offsets of another tool. ``later`` are the offsets that the group has a moment later."""

    found = check_of(monkeypatch, later, rows)
    return found.check_outside({A: (3, ""), B: (4, "")}, COUNTS, harmless or {})


def check_of(
    monkeypatch: pytest.MonkeyPatch,
    later: Mapping[TopicPartition, tuple[int, str]],
    rows: set[TopicPartition],
) -> OffsetCheck:
    def with_records(
        settings: Any, admin: Any, starts: Mapping[TopicPartition, int], seconds: float
    ) -> Iterator[TopicPartition]:
        yield from (tp for tp in starts if tp in rows)

    monkeypatch.setattr(lost_offsets, "with_records", with_records)
    admin: Any = None
    return OffsetCheck(counting(), admin, {}, 1.0, lambda wanted: later)


def test_another_worker_takes_one_of_two_offsets_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TopologyError, match="the table of-b has rows.*: 4 of b-0"):
        check(monkeypatch, {A: (9, TAKEN), B: (4, "")}, {ROWS_A, ROWS_B})


def test_offsets_that_nobody_has_taken_yet_are_still_committed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, {A: (9, TAKEN), B: (4, "")}, {ROWS_A}) == {B: 4}
    assert check(monkeypatch, {A: (9, TAKEN)}, {ROWS_A, ROWS_B}, {B: 4}) == {B: 4}


def test_another_worker_commits_for_the_first_time_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only workers asked the group once more. Spark would have refused rows that another run had just committed."""
    none = {A: (-1, ""), B: (-1, "")}
    found = check_of(monkeypatch, {A: (9, TAKEN), B: (9, TAKEN)}, {ROWS_A})
    assert found.check(none, COUNTS) == {}
    with pytest.raises(
        TopologyError, match="the table of-a has rows, but .* no committed offsets of any input"
    ):
        check_of(monkeypatch, {}, {ROWS_A}).check(none, COUNTS)


def merged() -> Plan:
    """One table of two topics."""
    builder = StreamsBuilder()
    builder.stream(["a", "b"], **TEXTS).group_by_key().count(materialized=Materialized("of-a"))
    return builder.build().plan(StreamsConfig("app"))


A1, B1 = TopicPartition("a", 1), TopicPartition("b", 1)


def noting(topics: str, own: str) -> str:
    return metadata_of("A1", note_of_topics(topics, own))


def test_the_offset_of_one_partition_is_lost_beside_another_topic() -> None:
    """The offset of the other topic hid the loss."""
    committed = {A: (3, noting("ab", "ab")), A1: (3, noting("ab", "a")), B: (-1, ""), B1: (-1, "")}
    assert lost_offsets.lost_offsets(merged(), committed) == {B, B1}
    assert lost_offsets.names_of({B, B1}, committed) == ["b"]
    committed |= {B1: (4, noting("ab", "ab"))}
    assert lost_offsets.lost_offsets(merged(), committed) == {B}
    assert lost_offsets.names_of({B}, committed) == ["b:0"]
    committed |= {B: (4, ""), B1: (-1, "")}  # the task of partition 1 never had an offset there
    assert lost_offsets.lost_offsets(merged(), committed) == frozenset()


def test_offsets_that_are_set_before_the_version_that_reads_their_topic() -> None:
    """Workers refused the offset of a new input that an operator had set in advance."""
    outside = {B: 4}

    def ahead(*texts: tuple[TopicPartition, str]) -> bool:
        committed = {B: (4, "")} | {tp: (3, text) for tp, text in texts}
        return lost_offsets.set_ahead(merged(), outside, committed) == {B}

    assert ahead((A, noting("a", "a")))
    assert not ahead((A, noting("ab", "ab")))  # another tool has moved an offset of the group
    assert not ahead((A, noting("ab", "a")))
    assert not ahead((A1, noting("a", "a")))  # another task, which says nothing about partition 0
    assert not ahead(
        (A, metadata_of("A1", note_of_topics("a")))
    )  # an earlier version, whose note may lack topics
    copied = encode_metadata(6, {note_of_topics("a", "a"): 5})
    assert not ahead((A, copied))  # Kafka Streams copies the note, and may have read the topic
    many = [f"{number:03}" for number in range(101)]
    full = metadata_of("A1", note_of_topics(many, many))
    assert not ahead((A, full))  # the note has no room for more topics
    assert not ahead((A, TAKEN))
    assert not ahead((A, ""))


def test_a_table_that_a_stream_only_looks_up_has_no_records_of_the_stream() -> None:
    """Workers refused to enrich a stream once more."""
    builder = StreamsBuilder()
    table = builder.table("b", **TEXTS, materialized=Materialized("of-b"))
    joined = builder.stream("a", **TEXTS).join(table, lambda left, right: left)
    joined.group_by_key().count(materialized=Materialized("of-a"))
    plan = builder.build().plan(StreamsConfig("app"))
    assert set(fed_changelogs(plan, {"a"}, COUNTS)) == {ROWS_A}
    assert set(fed_changelogs(plan, {"b"}, COUNTS)) == {ROWS_B}


def test_topics_that_feed_no_table_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents and global tables have had offsets without metadata, and workers take these."""
    monkeypatch.setattr(Subject, "topics", COUNTS)
    client = {"bootstrap.servers": "127.0.0.1:1"}
    config = StreamsConfig("app")
    subject = Subject("app", client, counting(), config=config)
    assert [subject.feeds_tables(topic) for topic in ("a", "of-agents")] == [True, False]
    assert not Subject("app", client, config=config).feeds_tables("of-agents")
    assert Subject("app", client).feeds_tables("of-agents")
