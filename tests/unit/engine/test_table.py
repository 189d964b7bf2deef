from __future__ import annotations

import pytest

from streamapp import BufferConfig, StreamsBuilder, Suppressed, TopologyTestDriver
from streamapp.engine.operators.change import ChangeSerde
from streamapp.engine.operators.table import (
    TableAggregate,
    TableFilter,
    TableMapValues,
    TableReduce,
    TableRepartitionMap,
    TableSource,
)
from streamapp.engine.operators.table_join import TableJoin, TableJoinMerger
from streamapp.engine.operators.views import FilterView, JoinView, MapView, SessionView, StoreView, WindowView
from streamapp.errors import SerializationError, StreamsError
from streamapp.records import Windowed
from streamapp.serdes import StringSerde
from streamapp.state.versioned import NOT_PUT
from tests.unit.engine.operator_harness import FakeStore, Harness


def change(new, old=None, latest=True):
    return (new, old, latest)


class VersionedFake(FakeStore):
    versioned = True
    valid_to: int | None = None

    def put(self, key, value, timestamp):
        return self.valid_to


# -------------------------------------------------------------------- sources


def test_a_source_drops_records_without_key_and_counts_them():
    for store in (None, "s"):
        harness = Harness(TableSource(store), s=FakeStore())
        assert harness.send((None, 1, 0)) == []
        assert harness.task.dropped == 1


def test_a_source_sends_old_values_only_when_asked():
    assert Harness(TableSource("s"), s=FakeStore(a=(1, 0))).send(("a", 2, 5)) == [("a", change(2), 5)]
    assert Harness(TableSource("s", send_old=True), s=FakeStore(a=(1, 0))).send(("a", 2, 5)) == [
        ("a", change(2, 1), 5)
    ]


def test_an_update_with_an_older_timestamp_still_replaces_the_row():
    store = FakeStore(a=(1, 10))
    assert Harness(TableSource("s"), s=store).send(("a", 2, 3)) == [("a", change(2), 3)]
    assert store.rows == {"a": (2, 3)}


@pytest.mark.parametrize(
    ("valid_to", "sent"), [(None, [change(2)]), (20, [change(2, latest=False)]), (NOT_PUT, [])]
)
def test_a_versioned_source_says_which_updates_are_the_latest(valid_to, sent):
    store = VersionedFake()
    store.valid_to = valid_to
    assert [value for _, value, _ in Harness(TableSource("s"), s=store).send(("a", 2, 5))] == sent


def test_a_cached_table_forwards_when_its_store_is_flushed():
    store = FakeStore()
    store.cached = True
    harness = Harness(TableSource("s"), s=store)
    assert harness.send(("a", 2, 5)) == []
    store.listener("a", 2, 1, 5, ())
    assert harness.forwarded == [("a", change(2), 5)]


# -------------------------------------------------------------------- filter, map_values


def is_even(key, value):
    return value % 2 == 0


def test_a_filter_deletes_rows_that_stop_matching():
    assert Harness(TableFilter(is_even)).send(("a", change(2), 0), ("a", change(3), 1)) == [
        ("a", change(2), 0),
        ("a", change(None), 1),
    ]


def test_a_filter_that_knows_old_values_says_nothing_about_rows_that_never_matched():
    harness = Harness(TableFilter(is_even, send_old=True))
    assert harness.send(("a", change(3, 1), 0), ("a", change(5, 2), 1)) == [("a", change(None, 2), 1)]


def test_a_filter_of_a_versioned_table_keeps_every_deletion():
    harness = Harness(TableFilter(is_even, send_old=True, versioned=True))
    assert harness.send(("a", change(3, 1, False), 0)) == [("a", change(None, None, False), 0)]


def test_a_materialized_filter_takes_old_values_from_its_store():
    store = FakeStore(a=(4, 0))
    harness = Harness(TableFilter(is_even, store="s", send_old=True), s=store)
    assert harness.send(("a", change(3, 999), 1)) == [("a", change(None, 4), 1)]
    assert store.rows == {}


def test_filter_not_never_asks_about_deletions():
    harness = Harness(TableFilter(is_even, negate=True))
    assert harness.send(("a", change(None), 0)) == [("a", change(None), 0)]


def test_map_values_maps_both_values_but_no_deletion():
    harness = Harness(TableMapValues(str, send_old=True))
    assert harness.send(("a", change(2, 1), 0), ("a", change(None, 2), 1)) == [
        ("a", change("2", "1"), 0),
        ("a", change(None, "2"), 1),
    ]


# -------------------------------------------------------------------- grouping


def by_value(key, value):
    return (value[0], value)


def test_a_row_that_moves_is_taken_out_first():
    harness = Harness(TableRepartitionMap(by_value))
    assert harness.send(("k", change("b2", "a1"), 3)) == [
        ("a", change(None, "a1"), 3),
        ("b", change("b2"), 3),
    ]


def test_a_row_that_stays_in_its_group_is_one_record():
    assert Harness(TableRepartitionMap(by_value)).send(("k", change("a2", "a1"), 3)) == [
        ("a", change("a2", "a1"), 3)
    ]


def test_rows_without_group_or_value_do_not_take_part():
    harness = Harness(TableRepartitionMap(lambda k, v: (None, v) if v == "x" else (k, None)))
    assert harness.send(("k", change("x", "y"), 3)) == []


def test_outdated_updates_of_a_versioned_table_do_not_reach_groups():
    harness = Harness(TableRepartitionMap(by_value, versioned=True))
    assert harness.send(("k", change("a1", None, False), 3)) == []


def test_a_grouped_row_needs_a_key():
    with pytest.raises(StreamsError, match="without key"):
        Harness(TableRepartitionMap(by_value)).send((None, change("a"), 0))


def test_aggregate_subtracts_then_adds_and_takes_the_largest_timestamp():
    store = FakeStore(g=(10, 8))
    operator = TableAggregate("s", lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, send_old=True)
    assert Harness(operator, s=store).send(("g", change(5, 3), 2)) == [("g", change(12, 10), 8)]
    assert store.rows == {"g": (12, 8)}


def test_aggregate_does_not_subtract_from_what_is_not_there():
    operator = TableAggregate("s", lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v)
    assert Harness(operator, s=FakeStore()).send(("g", change(5, 3), 2)) == [("g", change(5), 2)]


def test_reduce_starts_with_the_first_value():
    operator = TableReduce("s", lambda a, v: a + v, lambda a, v: a - v)
    store = FakeStore()
    harness = Harness(operator, s=store)
    assert harness.send(("g", change(5), 2), ("g", change(7), 1), ("g", change(None, 5), 3)) == [
        ("g", change(5), 2),
        ("g", change(12), 2),
        ("g", change(7), 3),
    ]


@pytest.mark.parametrize(
    "value", [("n", "o", True), ("n", None, True), (None, "o", True), ("n" * 200, "o", True)]
)
def test_changes_survive_the_repartition_topic(value):
    serde = ChangeSerde(StringSerde())
    assert serde.deserialize(serde.serialize(value)) == value


def test_change_bytes_are_those_of_kafka_streams():
    serde = ChangeSerde(StringSerde())
    assert serde.serialize(("n", None, True)) == b"n\x01"
    assert serde.serialize((None, "o", True)) == b"o\x00"
    assert serde.serialize(("n" * 64, "o", True)) == b"\x80\x01" + b"n" * 64 + b"o\x02"
    assert serde.deserialize(b"n\x00\x04") == ("n", None, False)
    with pytest.raises(SerializationError, match="both are None"):
        serde.serialize((None, None, True))


# -------------------------------------------------------------------- joins


def pair(left, right):
    return f"{left}{right}"


@pytest.mark.parametrize(
    ("alone", "other_alone", "with_match", "without_match"),
    [
        (False, False, [change("nx", "ox")], []),
        (True, False, [change("nx", "ox")], [change("nNone", "oNone")]),
        (False, True, [change("nx", "ox")], []),
        (True, True, [change("nx", "ox")], [change("nNone", "oNone")]),
    ],
)
def test_each_kind_of_join_with_and_without_match(alone, other_alone, with_match, without_match):
    operator = TableJoin(StoreView("other"), pair, alone, other_alone, send_old=True)
    harness = Harness(operator, other=FakeStore(hit=("x", 9)))
    assert harness.send(("hit", change("n", "o"), 5)) == [("hit", value, 9) for value in with_match]
    assert harness.send(("miss", change("n", "o"), 5)) == [("miss", value, 5) for value in without_match]


def test_a_deletion_without_match_says_nothing():
    operator = TableJoin(StoreView("other"), pair, alone=True, other_alone=True)
    assert Harness(operator, other=FakeStore()).send(("a", change(None), 1)) == []


def test_the_other_sides_rows_stay_when_this_sides_row_is_deleted():
    operator = TableJoin(StoreView("other"), pair, alone=True, other_alone=True, send_old=True)
    harness = Harness(operator, other=FakeStore(a=("x", 0)))
    assert harness.send(("a", change(None, "o"), 1)) == [("a", change("Nonex", "ox"), 1)]


def test_joins_drop_null_keys_and_outdated_updates():
    harness = Harness(TableJoin(StoreView("other"), pair, versioned=True), other=FakeStore(a=("x", 0)))
    assert harness.send((None, change("n"), 1), ("a", change("n", None, False), 1)) == []
    assert harness.task.dropped == 2


def test_the_merger_hides_old_values_that_nobody_asked_for():
    assert Harness(TableJoinMerger()).send(("a", change(1, 0), 2)) == [("a", change(1), 2)]
    store = FakeStore()
    assert Harness(TableJoinMerger("s", send_old=True), s=store).send(("a", change(1, 0), 2)) == [
        ("a", change(1, 0), 2)
    ]
    assert store.rows == {"a": (1, 2)}


# -------------------------------------------------------------------- views


def test_derived_views_compute_rows_when_they_are_read():
    harness = Harness(TableSource(None), s=FakeStore(a=(4, 7), b=(3, 8)))
    evens = FilterView(StoreView("s"), is_even, False)
    labels = MapView(evens, lambda k, v: f"{k}{v}", True)
    read = labels.bind(harness)
    assert (read("a"), read("b"), read("c")) == (("a4", 7), None, None)
    assert labels.store_names == ("s",)
    assert labels.bind_as_of(harness)("a", 5) == ("a4", 7)


@pytest.mark.parametrize(
    ("left_alone", "right_alone", "rows"),
    [
        (False, False, {"both": ("lr", 5)}),
        (True, False, {"both": ("lr", 5), "left": ("lNone", 1)}),
        (True, True, {"both": ("lr", 5), "left": ("lNone", 1), "right": ("Noner", 5)}),
    ],
)
def test_join_views(left_alone, right_alone, rows):
    harness = Harness(
        TableSource(None),
        one=FakeStore(both=("l", 1), left=("l", 1)),
        two=FakeStore(both=("r", 5), right=("r", 5)),
    )
    read = JoinView(StoreView("one"), StoreView("two"), pair, left_alone, right_alone).bind(harness)
    found = {key: read(key) for key in ("both", "left", "right", "none")}
    assert {key: row for key, row in found.items() if row is not None} == rows


def test_window_and_session_views_take_windowed_keys():
    class Windows:
        def get(self, key, start, end=None):
            return (1, 5) if (key, start, end) == ("k", 10, None) else "value" if end == 30 else None

    harness = Harness(TableSource(None), w=Windows())
    assert WindowView("w").bind(harness)(Windowed("k", 10, 20)) == (1, 5)
    assert SessionView("w").bind(harness)(Windowed("k", 10, 30)) == ("value", 30)
    assert SessionView("w").bind(harness)(Windowed("k", 10, 31)) is None


# -------------------------------------------------------------------- suppressions


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"max_records": 1}, r"2 of 1 record and \d+ bytes\. "),
        ({"max_bytes": 1}, r"1 record and \d+ of 1 byte\. "),
        ({"max_records": 1, "max_bytes": 10_000}, r"2 of 1 record and \d+ of 10,000 bytes\. "),
    ],
)
def test_a_full_buffer_names_the_bounds_that_are_set(bounds, said):
    text = StringSerde()
    builder = StreamsBuilder()
    buffer = BufferConfig.bounded(**bounds, when_full="shut_down")
    table = builder.table("in", key_serde=text, value_serde=text)
    table.suppress(Suppressed.until_time_limit(1_000, buffer, name="hold")).to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    with pytest.raises(StreamsError, match=f"the buffer of hold is full: it holds {said}"):
        for key in (b"a", b"b"):
            driver.pipe_raw("in", key, b"v", 0)
