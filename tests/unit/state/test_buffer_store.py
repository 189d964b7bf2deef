"""The internal stores, held against the bytes of a Kafka Streams application."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_harness import Life, RowsTaken

from streamapp.errors import SerializationError
from streamapp.records import Headers, RecordBatch, RecordContext, Windowed
from streamapp.serdes import LongSerde, StringSerde, TimeWindowedSerde
from streamapp.state.backend import WriteSet
from streamapp.state.formats import MAX_LONG, BufferedChange, LeftOrRightSerde

KEYS = st.sampled_from(["a", "b", "ab", ""])


def outer_join_life(log_each: bool = False) -> Life:
    return Life(log_each, kind="list", value_serde=LeftOrRightSerde(StringSerde(), LongSerde()))


def test_unmatched_records_come_by_time_right_side_first_then_key():
    life = outer_join_life()
    store = life.store
    store.append(5, True, "b", (True, "x"))
    store.append(5, True, "a", (True, "y"))
    store.append(5, True, "a", (True, "z"))
    life.commit()
    store.append(5, False, "c", (False, 7))
    store.append(1, True, "z", (True, "first"))
    expected = [
        (1, True, "z", (True, "first")),
        (5, False, "c", (False, 7)),
        (5, True, "a", (True, "y")),
        (5, True, "a", (True, "z")),
        (5, True, "b", (True, "x")),
    ]
    assert list(store.all()) == expected
    life.commit()
    assert list(life.restored().all()) == expected
    store.delete_if_present(5, True, "a")
    store.delete(1, True, "z")
    assert [key for _, _, key, _ in store.all()] == ["c", "b"]


def test_the_outer_join_changelog_holds_lists():
    life = outer_join_life(True)
    life.store.append(2, True, "k", (True, "x"), 9)
    life.store.append(2, True, "k", (True, "yz"), 9)
    life.store.delete_if_present(3, True, "k", 9)
    life.store.delete(2, True, "k", 9)
    key = bytes.fromhex("000000000000000201") + b"k"
    assert life.task.logged == [
        (key, bytes.fromhex("01000000010000000201") + b"x", 9, ()),
        (key, bytes.fromhex("01000000020000000201") + b"x" + bytes.fromhex("0000000301") + b"yz", 9, ()),
        (key, None, 9, ()),
    ]


def test_the_buffer_of_a_stream_table_join_has_kafka_streams_bytes():
    life = Life(True, kind="time_ordered_buffer", value_serde=StringSerde(), grace_ms=10)
    life.task.topic = "left"
    assert life.store.put("a", "L5", 5, ())
    life.task.offset = 1
    assert life.store.put("a", "L8", 8, ())
    life.task.offset = 2
    assert life.store.put("b", "L16", 16, ())
    out = []
    life.store.evict(lambda *row: out.append(row))
    assert out == [("a", "L5", RecordContext("left", 0, 0, 5))]
    assert [(k.hex(), v and v.hex(), t) for k, v, t, _ in life.task.logged] == [
        (
            "0000000000000000056100000001",
            "00000000000000050000000000000000000000046c6566740000000000000000ffffffffffffffff000000024c350000000000000000",
            None,
        ),
        (
            "0000000000000000086100000002",
            "00000000000000080000000000000001000000046c6566740000000000000000ffffffffffffffff000000024c380000000000000000",
            None,
        ),
        (
            "0000000000000000106200000003",
            "00000000000000100000000000000002000000046c6566740000000000000000ffffffffffffffff000000034c31360000000000000000",
            None,
        ),
        ("0000000000000000056100000001", None, None),
    ]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.integers(0, 60)),
            st.tuples(st.sampled_from(["evict", "commit", "reopen"])),
        ),
        max_size=30,
    )
)
def test_a_stream_table_join_buffer_hands_out_by_time_what_left_the_grace_period(steps):
    life = Life(kind="time_ordered_buffer", grace_ms=20)
    model: list[tuple[int, bytes, int, str]] = []
    observed = -1
    for at, (step, *args) in enumerate(steps):
        if step == "put":
            key, timestamp = args
            taken = timestamp >= observed - 20
            assert life.store.put(key, at, timestamp, ()) == taken
            if taken:
                observed = max(observed, timestamp)
                model.append((timestamp, key.encode(), at, key))
        elif step == "evict":
            out: list[tuple[str, int, int]] = []
            life.store.evict(lambda key, value, context: out.append((key, value, context.timestamp)))  # noqa: B023
            # Two keys of one time come by key bytes and sequence number together.
            due = sorted(row for row in model if row[0] <= observed - 20)
            assert sorted(out, key=lambda row: (row[2], row[0].encode(), row[1])) == [
                (key, value, timestamp) for timestamp, _, value, key in due
            ]
            assert [row[2] for row in out] == [row[0] for row in due]
            model = [row for row in model if row not in due]
        else:
            life.commit()
            if step == "reopen":
                life.reopen()
                life.store._observed = observed
    life.commit()
    restored = life.restored()
    restored._observed = MAX_LONG
    out = []
    restored.evict(lambda key, value, context: out.append((context.timestamp, key, value)))
    assert sorted(out) == sorted((timestamp, key, value) for timestamp, _, value, key in model)


def test_an_eviction_does_not_pass_over_the_rows_of_earlier_ones():
    life = Life(kind="time_ordered_buffer", grace_ms=10)
    out: list[int] = []
    with RowsTaken() as taken:
        for timestamp in range(1_000):
            life.store.put("a", timestamp, timestamp, ())
            life.store.evict(lambda key, value, context: out.append(value))
    assert out == list(range(990))
    assert taken.rows <= 2 * 990


def test_an_eviction_waits_for_the_next_row_that_is_due():
    life = Life(kind="time_ordered_buffer", grace_ms=10)
    out: list[int] = []
    with RowsTaken() as taken:
        for timestamp in (100, 105, *range(106, 115)):
            life.store.put("a", timestamp, timestamp, ())
            life.store.evict(lambda key, value, context: out.append(value))
    assert out == [100]
    assert taken.rows == 2


def test_what_a_failed_eviction_leaves_is_due_again():
    life = Life(kind="time_ordered_buffer", grace_ms=10)
    for timestamp in (1, 2, 3, 20):
        life.store.put("a", timestamp, timestamp, ())
    out: list[int] = []

    def fail_once(key: Any, value: int, context: Any) -> None:
        out.append(value)
        if out == [1, 2]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        life.store.evict(fail_once)
    life.store.evict(fail_once)
    assert out == [1, 2, 2, 3]


def test_a_scan_of_unmatched_records_does_not_pass_over_those_deleted_before():
    life = outer_join_life()
    with RowsTaken() as taken:
        for timestamp in range(1_000):
            life.store.append(timestamp, False, "a", (False, timestamp))
            if timestamp >= 10:
                first = next(life.store.all())
                assert first == (timestamp - 10, False, "a", (False, timestamp - 10))
                life.store.delete(*first[:3])
    assert taken.rows <= 2 * 990
    life.store.append(3, True, "late", (True, "x"))
    assert next(life.store.all()) == (3, True, "late", (True, "x"))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["append", "delete"]), st.integers(0, 5), st.booleans(), KEYS),
            st.tuples(st.sampled_from(["first", "all", "commit", "reopen"])),
        ),
        max_size=40,
    )
)
def test_unmatched_records_are_a_sorted_dict_of_lists(steps):
    life = outer_join_life()
    model: dict[tuple[int, bool, bytes], list[tuple[int, bool, str, Any]]] = {}
    for at, (step, *args) in enumerate(steps):
        if step in ("append", "delete"):
            timestamp, is_left, key = args
            place = (timestamp, is_left, key.encode())
            if step == "delete":
                life.store.delete(timestamp, is_left, key)
                model.pop(place, None)
            else:
                value = (is_left, str(at) if is_left else at)
                life.store.append(timestamp, is_left, key, value)
                model.setdefault(place, []).append((timestamp, is_left, key, value))
        elif step in ("first", "all"):
            expected = [row for _, rows in sorted(model.items()) for row in rows]
            if step == "first":
                assert next(life.store.all(), None) == next(iter(expected), None)
            else:
                assert list(life.store.all()) == expected
        else:
            life.go_on(step)


def suppress_life() -> Life:
    life = Life(kind="suppress_buffer", key_serde=TimeWindowedSerde(StringSerde(), 10))
    life.task.topic = "in"
    return life


def test_the_changelog_of_a_suppression_has_kafka_streams_bytes():
    life = suppress_life()
    window = Windowed("a", 0, 10)
    life.store.put(10, window, 1, None, 1, ())
    life.commit()
    life.task.offset = 1
    life.store.put(10, window, 2, 1, 2, ())
    life.commit()
    life.store.evict_while(lambda: True, lambda *_: None)
    life.commit()
    key = "610000000000000000"
    version = (("v", b"\3"),)
    assert [(k.hex(), v and v.hex(), t, h) for k, v, t, h in life.task.logged] == [
        (
            key,
            "0000000000000001"
            "0000000000000000"
            "00000002696e"
            "00000000"
            "00000000"
            "ffffffff"
            "ffffffff"
            "00000008"
            "0000000000000001"
            "000000000000000a",
            None,
            version,
        ),
        (
            key,
            "0000000000000002"
            "0000000000000001"
            "00000002696e"
            "00000000"
            "00000000"
            "ffffffff"
            "00000008"
            "0000000000000001"
            "00000008"
            "0000000000000002"
            "000000000000000a",
            None,
            version,
        ),
        (key, None, None, ()),
    ]


def test_dirty_keys_are_logged_in_the_order_of_a_java_hash_set():
    life = suppress_life()
    for start in (6, 9, 12, 15, 18):
        life.store.put(start + 10, Windowed("k1", start, start + 10), 1, None, 20, ())
    life.commit()
    assert [key[-1] for key, *_ in life.task.logged] == [9, 12, 15, 18, 6]


def test_a_suppressed_key_keeps_its_place_and_its_prior_value():
    life = suppress_life()
    store, a, b = life.store, Windowed("a", 0, 10), Windowed("b", 0, 10)
    store.put(10, a, 2, 1, 5, (("h", b"x"),))
    store.put(11, b, 1, None, 6, ())
    store.put(99, a, 3, 2, 7, ())
    assert store.num_records == 2
    assert store.min_timestamp == 10
    assert store.prior_value(a) == (1,)
    assert store.prior_value(b) == (None,)
    assert store.prior_value(Windowed("c", 0, 10)) is None
    # time 8, key 9, values, context 20 + topic 2
    assert store.buffer_size == (8 + 9 + 24 + 22) + (8 + 9 + 8 + 22)
    out = []
    store.evict_while(lambda: store.min_timestamp <= 10, lambda *row: out.append(row))
    assert out == [(a, 3, 2, RecordContext("in", 0, 0, 7))]
    store.evict_while(lambda: store.num_records > 0, lambda *row: out.append(row))
    assert (store.num_records, store.buffer_size, store.min_timestamp) == (0, 0, MAX_LONG)


def test_a_suppression_survives_restart_and_restore():
    life = suppress_life()
    for start in (0, 20, 10):
        life.store.put(start + 10, Windowed("a", start, start + 10), start, None, start, (("h", None),))
    life.commit()
    life.store.evict_while(lambda: life.store.min_timestamp <= 10, lambda *_: None)
    life.commit()
    restored = life.restored()
    life.reopen()
    for store in (life.store, restored):
        assert (store.num_records, store.min_timestamp) == (2, 20)
        out: list[int] = []
        store.evict_while(lambda: True, lambda key, new, old, context: out.append(new))  # noqa: B023
        assert out == [10, 20]
        assert store.buffer_size == 0


CONTEXT = "0000000000000007000000000000005100000002696e0000000300000001000000016800000001ff"
"""Timestamp 7, offset 81 of in-3, and a header h."""
ONE, TWO, SAME, NULL = "000000080000000000000001", "000000080000000000000002", "fffffffe", "ffffffff"
TIME = "000000000000000a"
LEGACY = "00000018" + ONE + TWO
SOURCE = RecordContext("in", 3, 81, 7, (("h", b"\xff"),))


def restored_changes(
    *records: tuple[str, bytes | None], headers: Headers = ()
) -> list[tuple[int | None, int | None, int | None, RecordContext, int]]:
    """Prior, old and new value, context and time of key "a" after each record: (value in hex, version)."""
    life, found = suppress_life(), []
    key = TimeWindowedSerde(StringSerde(), 10).serialize(Windowed("a", 0, 10))
    for value, version in records:
        said = headers if version is None else (*headers, ("v", version))
        write_set = WriteSet()
        life.store.restore(RecordBatch([key], [bytes.fromhex(value)], [5], [9], [said]), write_set)
        life.backend.write(write_set)
        life.reopen()  # the state on disk has the format of this version
        (prior,) = life.store.prior_value(Windowed("a", 0, 10))
        change, time = life.store._changes[key], life.store.min_timestamp
        found.append(
            (prior, life.store._value(change.old), life.store._value(change.new), change.context, time)
        )
    return found


@pytest.mark.parametrize(
    ("value", "version", "prior", "context"),
    [
        (TIME + ONE + TWO, None, 1, RecordContext(None, -1, -1, 5, (("x", b""),))),
        (TIME + CONTEXT + LEGACY, b"\1", 1, SOURCE),
        (CONTEXT + LEGACY + NULL + TIME, b"\2", None, SOURCE),
        (CONTEXT + LEGACY + TWO + TIME, b"\2", 2, SOURCE),
        (CONTEXT + NULL + ONE + TWO + TIME, b"\2", None, SOURCE),  # 2.4.0, 2.4.1 and 2.5.0: version 3 in fact
        (CONTEXT + ONE + SAME + TWO + TIME, b"\2", 1, SOURCE),
        (CONTEXT + ONE + SAME + TWO + TIME, b"\3", 1, SOURCE),
    ],
)
def test_the_changelogs_of_all_versions_of_kafka_streams_are_read(value, version, prior, context):
    assert restored_changes((value, version), headers=(("x", b""),)) == [(prior, 1, 2, context, 10)]


def test_a_record_of_version_2_that_could_be_one_of_either_version():
    """The prior value 0 looks like an empty old and an empty new value."""
    zero = "000000080000000000000000"
    value = CONTEXT + zero + ONE + TWO + TIME
    assert restored_changes((value, b"\2")) == [(0, 1, 2, SOURCE, 10)]


@pytest.mark.parametrize("version", [None, b"\1"])
def test_early_versions_keep_the_prior_value_of_a_buffered_key(version):
    context = "" if version is None else CONTEXT
    size = "" if version is None else "00000018"
    first, second = context + size + ONE + TWO, context + size + TWO + ONE
    assert [row[:3] for row in restored_changes((TIME + first, version), (TIME + second, version))] == [
        (1, 1, 2),
        (1, 2, 1),
    ]


def test_a_context_without_headers_is_read():
    """Early versions wrote the count -1."""
    context = CONTEXT[: CONTEXT.index("000000010000000168")] + NULL
    (row,) = restored_changes((TIME + context + LEGACY, b"\1"))
    assert row[3] == SOURCE._replace(headers=())


@pytest.mark.parametrize(
    ("value", "version", "message"),
    [
        (TIME + CONTEXT + LEGACY, b"\4", "version"),
        (TIME, b"\3", "expected 8 bytes"),
        (CONTEXT + LEGACY, b"\2", "neither"),
        (TIME + "fffffff0", None, "-16"),
        (TIME + ONE, None, "expected 4 bytes"),
    ],
)
def test_a_record_that_no_version_has_written_is_refused(value, version, message):
    with pytest.raises(SerializationError, match=message):
        restored_changes((value, version))


@given(
    st.tuples(*[st.one_of(st.none(), st.binary(max_size=4))] * 3),
    st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=3),
    st.integers(0, MAX_LONG),
)
def test_a_buffered_change_reads_back(values, headers, time):
    change = BufferedChange(*values, RecordContext("tópic", 2, 1, time, tuple(headers)))
    assert BufferedChange.unpack(change.pack(time)) == (change, time)


def test_a_changelog_record_of_kafka_streams_4_4_with_its_further_header_is_restored():
    """From the case random_wide/w1_0221: with dsl_store_format="headers", 4.4.0 adds the headers of the old value."""
    data = bytes.fromhex(
        "00000000000000860000000000000000000000036e756d0000000000000002000000016800000001330000000179000000017a"
        "000000080000000000000000fffffffe0000000800000000000000010000000000000090"
    )
    key = bytes.fromhex("610000000000000086")
    further = ("v", b"\3"), ("vh.old", b"\0" + b"\xff" * 8)
    life = suppress_life()
    life.store.restore(RecordBatch([key], [data], [7], [0], [further]), WriteSet())
    found: list[tuple[Any, ...]] = []
    life.store.evict_while(lambda: not found, lambda *row: found.append(row))
    window, new, old, context = found[0]
    assert (window.key, window.start, new, old) == ("a", 134, 1, 0)
    assert (context.topic, context.offset, context.timestamp) == ("num", 0, 134)
    assert context.headers == (("h", b"3"), ("y", b"z"))
