from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamapp.runners.worker.placement import Candidate, Placement, TaskId, assign_tasks, place

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


LONG = 100_000


def running(*tasks: TaskId, rack: str | None = None, lags: dict[TaskId, int] | None = None) -> Candidate:
    return Candidate(frozenset(tasks), {**dict.fromkeys(tasks, 0), **(lags or {})}, rack)


def after(placement: Placement, members: dict[str, Candidate], warm: bool = True) -> dict[str, Candidate]:
    """The members once they have what they were given, copies up to date if ``warm``."""
    lag = 0 if warm else LONG
    return {
        name: Candidate(
            frozenset(placement.active[name]),
            {
                **dict.fromkeys(placement.standby[name] | placement.warmup[name], lag),
                **dict.fromkeys(placement.active[name], 0),
            },
            members[name].rack,
        )
        for name in members
    }


FOUR = [TaskId(0, p) for p in range(4)]
ENDS = dict.fromkeys(FOUR, LONG)


def test_a_task_with_state_waits_for_its_new_owner_to_be_warm() -> None:
    members = {"a": running(*FOUR), "b": Candidate()}
    first = place(FOUR, ENDS, members)
    assert first.active == {"a": set(FOUR), "b": set()}
    assert len(first.warmup["b"]) == 2
    cold = place(FOUR, ENDS, after(first, members, warm=False))
    assert (cold.active, cold.warmup) == (first.active, first.warmup)
    moved = place(FOUR, ENDS, after(first, members))
    assert moved.active["b"] == first.warmup["b"]
    assert moved.warmup == {"a": set(), "b": set()}


def test_what_is_warm_moves_whatever_was_planned_before() -> None:
    behind = {FOUR[0]: LONG, FOUR[1]: 60_000, FOUR[2]: 5, FOUR[3]: 9}
    members = {"a": running(*FOUR), "b": Candidate(lags=behind)}
    assert place(FOUR, ENDS, members).active == {"a": set(FOUR[:2]), "b": set(FOUR[2:])}


def test_only_so_many_are_warmed_up_at_a_time() -> None:
    tasks = [TaskId(0, p) for p in range(12)]
    ends = dict.fromkeys(tasks, LONG)
    members = {"a": running(*tasks), "b": Candidate()}
    rounds = 0
    while True:
        placement = place(tasks, ends, members)
        warming = sum(map(len, placement.warmup.values()))
        assert warming <= 2
        members = after(placement, members)
        if not warming:
            break
        rounds += 1
    assert rounds == 3
    assert sorted(len(member.active) for member in members.values()) == [6, 6]


def test_short_changelogs_and_tasks_without_state_move_at_once() -> None:
    members = {"a": running(*FOUR), "b": Candidate()}
    for ends in (dict.fromkeys(FOUR, 10), {}):
        placement = place(FOUR, ends, members)
        assert [len(mine) for mine in placement.active.values()] == [2, 2]
        assert not any(placement.warmup.values())


def test_a_standby_takes_over() -> None:
    members = {"b": running(FOUR[0], lags={FOUR[2]: 5}), "c": running(FOUR[1], lags={FOUR[3]: 5})}
    placement = place(FOUR, ENDS, members, standby_replicas=1)
    assert placement.active == {"b": {FOUR[0], FOUR[2]}, "c": {FOUR[1], FOUR[3]}}


def test_the_warm_one_runs_a_task_even_if_it_then_has_too_many() -> None:
    members = {"b": running(*FOUR[:2], lags=dict.fromkeys(FOUR[2:], 5)), "c": Candidate()}
    placement = place(FOUR, ENDS, members, standby_replicas=1)
    assert placement.active["b"] == set(FOUR)
    assert len(placement.warmup["c"]) == 2


@given(
    task_lists,
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, "x", "y", "z"]), min_size=1),
    st.integers(0, 3),
)
def test_copies_are_complete_spread_and_stay(
    tasks: list[TaskId], racks: dict[str, str | None], replicas: int
) -> None:
    members = {name: Candidate(rack=rack) for name, rack in racks.items()}
    ends = dict.fromkeys(tasks, LONG)
    placement = place(tasks, ends, members, standby_replicas=replicas)
    for task in tasks:
        owner = next(m for m, mine in placement.active.items() if task in mine)
        copies = placement.copies(task)
        assert len(copies) == min(replicas, len(members) - 1)
        assert owner not in copies
        if replicas == 1 and copies and racks[owner] is not None:
            elsewhere = [rack for rack in racks.values() if rack != racks[owner]]
            assert not elsewhere or racks[copies[0]] != racks[owner]
    again = place(tasks, ends, after(placement, members), standby_replicas=replicas)
    assert again.active == placement.active
    if len(set(racks.values())) == 1:
        sizes = [len(mine) for mine in placement.standby.values()]
        assert max(sizes) <= -(-len(tasks) * min(replicas, len(members) - 1) // len(members)) + 1


@given(task_lists, groups, groups)
def test_every_task_runs_once_whatever_is_warm(
    tasks: list[TaskId], before: set[str], later: set[str]
) -> None:
    ends = dict.fromkeys(tasks[::2], LONG)
    members = {name: Candidate() for name in before}
    first = after(place(tasks, ends, members, standby_replicas=1), members)
    members = {name: first.get(name, Candidate()) for name in later}
    for _ in range(len(tasks) + 1):  # each round warms up at least one
        placement = place(tasks, ends, members, standby_replicas=1)
        assert sorted(task for mine in placement.active.values() for task in mine) == sorted(tasks)
        members = after(placement, members)
    assert not any(placement.warmup.values())
    sizes = [len(mine) for mine in placement.active.values()]
    assert max(sizes) - min(sizes) <= 1
