from __future__ import annotations

from bisect import insort

from hypothesis import given
from hypothesis import strategies as st

from streamapp.state import sorted_entries
from streamapp.state.sorted_entries import SortedEntries

NUMBERS = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS),
        st.tuples(st.just("update"), st.lists(NUMBERS, max_size=30)),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(st.just("clear")),
        st.tuples(st.just("between"), st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS)),
    ),
    max_size=60,
)


@given(STEPS)
def test_entries_are_a_sorted_list(steps):
    many, sorted_entries._MANY = sorted_entries._MANY, 4
    try:
        entries, model = SortedEntries(), []
        for step, *args in steps:
            if step == "add":
                entries.add(args[0])
                insort(model, args[0])
            elif step == "update":
                entries.update(args[0])
                model = sorted(model + args[0])
            elif step == "remove" and args[0] in model:
                entries.remove(args[0])
                model.remove(args[0])
            elif step == "clear":
                entries.clear()
                model = []
            elif step == "between":
                start, end = args
                expected = [
                    each for each in model if (start is None or start <= each) and (end is None or each < end)
                ]
                assert list(entries.between(start, end)) == expected
            assert list(entries.between(None, None)) == model
            assert len(entries) == len(model)
            assert not model or entries.first == model[0]
    finally:
        sorted_entries._MANY = many
