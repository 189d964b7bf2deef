from __future__ import annotations

from bisect import insort
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from streamapp.state import sorted_entries
from streamapp.state.sorted_entries import SortedEntries

NUMBERS = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS),
        st.tuples(st.just("update"), st.lists(NUMBERS, max_size=30)),
        st.tuples(st.just("replace"), st.lists(NUMBERS, max_size=10), st.sets(NUMBERS, max_size=10)),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(
            st.just("open"), st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS), st.booleans()
        ),
        st.tuples(st.just("take"), st.integers(1, 8)),
        st.tuples(st.just("clear")),
    ),
    max_size=60,
)


@given(STEPS)
def test_entries_are_a_sorted_list(steps):
    many, sorted_entries._MANY = sorted_entries._MANY, 4
    try:
        entries, model = SortedEntries(), []
        scans = []  # open iterations, each with the entries that follow
        for step, *args in steps:
            if step == "add":
                entries.add(args[0])
                insort(model, args[0])
            elif step == "update":
                entries.update(args[0])
                model = sorted(model + args[0])
            elif step == "replace":
                removed = {each for each in args[1] if model.count(each) == 1}
                entries.update(args[0], removed)
                model = sorted([each for each in model if each not in removed] + args[0])
            elif step == "remove" and args[0] in model:
                entries.remove(args[0])
                model.remove(args[0])
            elif step == "clear":
                entries.clear()
                model = []
            elif step == "open":
                start, end, reverse = args
                expected = [
                    each for each in model if (start is None or start <= each) and (end is None or each < end)
                ]
                if reverse:
                    expected.reverse()
                assert list(entries.between(start, end, reverse)) == expected
                if expected:
                    scans.append((entries.between(start, end, reverse), iter(expected)))
                    assert next(scans[-1][0]) == next(scans[-1][1])
            elif step == "take":
                for scan, expected in scans:
                    assert list(islice(scan, args[0])) == list(islice(expected, args[0]))
            assert list(entries.between(None, None)) == model
            assert len(entries) == len(model)
            assert not model or entries.first == model[0]
    finally:
        sorted_entries._MANY = many
