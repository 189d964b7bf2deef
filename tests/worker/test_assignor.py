from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamapp.runners.worker.assignor import TaskId, assign_tasks

task_lists = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(
    lambda counts: [TaskId(sub, p) for sub, count in enumerate(counts) for p in range(count)]
)
groups = st.sets(st.sampled_from("abcdef"), min_size=1)


def test_the_third_worker_of_four_partitions_gets_one() -> None:
    tasks = [TaskId(0, p) for p in range(4)]
    two = assign_tasks(tasks, "ab", {})
    assert sorted(map(len, two.values())) == [2, 2]
    three = assign_tasks(tasks, "abc", two)
    assert sorted(map(len, three.values())) == [1, 1, 2]


def test_single_partition_sub_topologies_are_spread() -> None:
    tasks = [TaskId(sub, 0) for sub in range(6)]
    assert {len(mine) for mine in assign_tasks(tasks, "abc", {}).values()} == {2}


@given(task_lists, groups, groups)
def test_balanced_complete_and_sticky(tasks: list[TaskId], before: set[str], after: set[str]) -> None:
    previous = assign_tasks(tasks, before, {})
    assigned = assign_tasks(tasks, after, previous)
    assert sorted(task for mine in assigned.values() for task in mine) == sorted(tasks)  # each exactly once
    sizes = [len(mine) for mine in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    for sub in {task.subtopology for task in tasks}:
        shares = [sum(task.subtopology == sub for task in mine) for mine in assigned.values()]
        assert max(shares) - min(shares) <= 1
    if before == after:
        assert assigned == previous


@given(task_lists, groups, st.sampled_from("abcdef"))
def test_a_member_that_stays_loses_tasks_only_to_balance(
    tasks: list[TaskId], members: set[str], leaver: str
) -> None:
    rest = members - {leaver}
    if not rest:
        return
    previous = assign_tasks(tasks, members, {})
    assigned = assign_tasks(tasks, rest, previous)
    for member in rest:
        moved = len(previous[member] - assigned[member])
        assert moved <= len({task.subtopology for task in tasks})


def test_two_claims_on_one_task_are_settled() -> None:
    claims = {"a": [TaskId(0, 0)], "b": [TaskId(0, 0), TaskId(0, 1)]}
    assigned = assign_tasks([TaskId(0, 0), TaskId(0, 1)], "ab", claims)
    assert assigned == {"a": {TaskId(0, 0)}, "b": {TaskId(0, 1)}}


def test_nobody_gets_nothing() -> None:
    assert assign_tasks([TaskId(0, 0)], [], {}) == {}
