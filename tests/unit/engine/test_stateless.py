from __future__ import annotations

from streamapp.engine.operators.stateless import (
    Branch,
    DropNullKeys,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    SelectKey,
    ToStream,
)
from tests.unit.engine.operator_harness import Harness


def is_large(key, value):
    return value is not None and value > 2


def test_filter_keeps_what_matches_and_filter_not_the_rest():
    records = [("a", 1, 0), ("b", 3, 1), (None, None, 2)]
    assert Harness(Filter(is_large)).send(*records) == [("b", 3, 1)]
    assert Harness(Filter(is_large, negate=True)).send(*records) == [("a", 1, 0), (None, None, 2)]


def test_map_values_sees_none_and_may_see_the_key():
    assert Harness(MapValues(str)).send(("a", 1, 7), ("a", None, 8)) == [("a", "1", 7), ("a", "None", 8)]
    assert Harness(MapValues(lambda k, v: (k, v), with_key=True)).send(("a", 1, 7)) == [("a", ("a", 1), 7)]


def test_map_and_select_key_change_the_key():
    assert Harness(Map(lambda k, v: (v, k))).send(("a", 1, 7)) == [(1, "a", 7)]
    assert Harness(SelectKey(lambda k, v: k * v)).send(("a", 2, 7)) == [("aa", 2, 7)]


def test_flat_maps_may_give_nothing():
    assert Harness(FlatMapValues(str.split)).send(("k", "a b", 1), ("k", "", 2)) == [
        ("k", "a", 1),
        ("k", "b", 1),
    ]
    assert Harness(FlatMapValues(lambda k, v: [k, v], with_key=True)).send(("k", "v", 1)) == [
        ("k", "k", 1),
        ("k", "v", 1),
    ]
    assert Harness(FlatMap(lambda k, v: [(c, k) for c in v])).send(("k", "xy", 1)) == [
        ("x", "k", 1),
        ("y", "k", 1),
    ]


def test_peek_forwards_and_foreach_does_not():
    seen = []
    assert Harness(Peek(lambda k, v: seen.append((k, v)))).send(("a", 1, 0)) == [("a", 1, 0)]
    assert Harness(ForEach(lambda k, v: seen.append((k, v)))).send(("b", 2, 0)) == []
    assert seen == [("a", 1), ("b", 2)]


def test_pass_through_adds_no_call():
    harness = Harness(PassThrough())
    assert harness.process == harness.forward


def test_drop_null_keys_does_not_count_as_dropped():
    harness = Harness(DropNullKeys())
    assert harness.send((None, 1, 0), ("a", None, 1)) == [("a", None, 1)]
    assert harness.task.dropped == 0
    assert harness.task.reasons == ("null_key",)


def test_a_record_goes_to_the_first_branch_that_takes_it():
    branch = Branch((is_large, lambda k, v: v == 3), ("large", "three", "rest"))
    harness = Harness(branch)
    harness.send(("a", 3, 0), ("b", 1, 1))
    assert harness.children == {"large": [("a", 3, 0)], "three": [], "rest": [("b", 1, 1)]}


def test_without_default_branch_the_rest_is_dropped():
    harness = Harness(Branch((is_large,), ("large",)))
    harness.send(("b", 1, 1))
    assert harness.children == {"large": []}


def test_to_stream_gives_new_values():
    assert Harness(ToStream()).send(("a", (None, 1, True), 5)) == [("a", None, 5)]


def test_headers_stay_with_the_record():
    headers = (("h", b"1"),)
    for operator in (Filter(lambda k, v: True), MapValues(str), Map(lambda k, v: (k, v)), FlatMapValues(str)):
        harness = Harness(operator)
        harness.process("a", "x", 1, headers)
        assert harness.headers == [headers]
