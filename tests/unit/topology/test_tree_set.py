"""The sorted set of descriptions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamapp.topology.tree_set import TreeSet


@given(st.lists(st.integers(0, 50), max_size=40))
def test_it_is_a_sorted_set(numbers: list[int]) -> None:
    tree: TreeSet[int] = TreeSet(lambda a, b: a - b)
    for number in numbers:
        tree.add(number)
    assert list(tree) == sorted(set(numbers))


def test_an_order_that_changes_afterwards_is_followed_along_the_tree() -> None:
    """What java.util.TreeSet gives for the same steps."""
    size = {"a": 1, "b": 1, "c": 1, "d": 1}
    tree: TreeSet[str] = TreeSet(lambda a, b: 0 if a == b else (size[b] - size[a] or (-1 if a < b else 1)))
    for name in "abc":
        tree.add(name)
    size["c"], size["d"] = 5, 3
    tree.add("d")
    assert list(tree) == ["d", "a", "b", "c"]
