"""Pure functions that place tasks: they choose the worker that runs each task, and the workers with copies of its
state.

The ideas are those of Kafka Streams (KIP-441):

- Tasks are balanced, and otherwise stay where they are.
- If a worker has caught up with the changelogs of a task, the task moves only to such a worker.
- Standbys are spread over workers and racks.

By default, Kafka Streams looks only every ten minutes if a task can move (``probing.rebalance.interval.ms``). Here a
worker asks for its tasks as soon as it has caught up with all tasks that it warms up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple

__all__ = ["Candidate", "Placement", "TaskId", "assign_tasks", "place"]


class TaskId(NamedTuple):
    """The name of a task, as in Kafka Streams: ``0_3`` is partition 3 of sub-topology 0."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The id that ``str`` has written as ``text``.

        >>> TaskId.parse("0_3")
        TaskId(subtopology=0, partition=3)
        """
        subtopology, _, partition = text.partition("_")
        return cls(int(subtopology), int(partition))


@dataclass(frozen=True)
class Candidate:
    """A member of the group, as the leader of the group sees the member.

    ``active`` are the tasks that the member runs. ``lags`` has, by task, how many changelog offsets the member's state
    is behind; 0 for a task that the member runs. The member would have to restore a task without an entry from the
    beginning. ``copies`` is False for a member of another version of the topology: there, the id of a task may mean
    another task. Such a member gets no standbys and no warm-ups.
    """

    active: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    rack: str | None = None
    copies: bool = True


@dataclass
class Placement:
    """Tasks by member: tasks that the member runs, keeps a copy of, or warms up to run them later."""

    active: dict[str, set[TaskId]]
    standby: dict[str, set[TaskId]]
    warmup: dict[str, set[TaskId]]

    def copies(self, task: TaskId) -> list[str]:
        """The members with a copy of the task's state, without the member that runs the task."""
        return [m for m in self.standby if task in self.standby[m] or task in self.warmup[m]]


def place(
    tasks: Iterable[TaskId],
    changelog_ends: Mapping[TaskId, int],
    members: Mapping[str, Candidate],
    *,
    standby_replicas: int = 0,
    acceptable_lag: int = 10_000,
    max_warmups: int = 2,
) -> Placement:
    """Gives each task to one member, and each task with state up to ``standby_replicas`` standbys on other members.

    ``changelog_ends`` has the changelog length of each task with state. A member has caught up with a task when its lag
    is at most ``acceptable_lag``. `assign_tasks` chooses the member that should run a task.

    If the chosen member has not caught up, and other members have, one of the others runs the task for now. The chosen
    member then warms the task up. At most ``max_warmups`` tasks of the application are warmed up at a time.

    >>> a, b = Candidate(frozenset({TaskId(0, 0), TaskId(0, 1)}), {TaskId(0, 0): 0, TaskId(0, 1): 0}), Candidate()
    >>> new = place([TaskId(0, 0), TaskId(0, 1)], {TaskId(0, 0): 50_000, TaskId(0, 1): 50_000}, {"a": a, "b": b})
    >>> len(new.active["a"]), len(new.warmup["b"])
    (2, 1)
    """
    tasks = sorted(tasks)

    def lag(member: str, task: TaskId) -> int:
        return members[member].lags.get(task, changelog_ends.get(task, 0))

    caught_up = {
        task: [m for m in sorted(members) if lag(m, task) <= acceptable_lag] for task in changelog_ends
    }
    previous = {name: member.active for name, member in members.items()}
    ideal = assign_tasks(tasks, members, previous, {name: member.lags for name, member in members.items()})
    placement = Placement(
        {name: set() for name in ideal}, {name: set() for name in ideal}, {name: set() for name in ideal}
    )
    moves = []
    for name, mine in ideal.items():
        for task in mine:
            ready = caught_up.get(task, [])
            if not ready or name in ready:
                placement.active[name].add(task)
            else:
                moves.append((task, name))
    for task, name in sorted(moves):
        owner = min(
            caught_up[task],
            key=lambda m: (task not in members[m].active, len(placement.active[m]), m),
        )
        placement.active[owner].add(task)
        if members[name].copies and sum(map(len, placement.warmup.values())) < max_warmups:
            placement.warmup[name].add(task)
    _add_standbys(placement, changelog_ends, members, standby_replicas)
    return placement


def _add_standbys(
    placement: Placement, stateful: Collection[TaskId], members: Mapping[str, Candidate], replicas: int
) -> None:
    """Adds standbys of each task on members that neither run the task nor warm it up.

    Members on other racks come first, then members below their fair share of standbys, then members with an old copy.
    If there are too few members, a task gets fewer standbys.
    """
    copies = min(replicas, len(members) - 1)
    fair = -(-len(stateful) * copies // max(1, len(members)))
    for task in sorted(stateful):
        holders = [m for m in members if task in placement.active[m] or task in placement.warmup[m]]
        for _ in range(copies):
            racks = {members[m].rack for m in holders} - {None}
            free = [m for m in sorted(members) if m not in holders and members[m].copies]
            if not free:
                break
            best = min(
                free,
                key=lambda m: (
                    members[m].rack in racks,
                    len(placement.standby[m]) >= fair,
                    task not in members[m].lags,
                    members[m].lags.get(task, 0),
                    len(placement.standby[m]) + len(placement.active[m]),
                ),
            )
            placement.standby[best].add(task)
            holders.append(best)


def assign_tasks(
    tasks: Iterable[TaskId],
    members: Iterable[str],
    previous: Mapping[str, Iterable[TaskId]],
    lags: Mapping[str, Mapping[TaskId, int]] | None = None,
) -> dict[str, set[TaskId]]:
    """Gives each task to one member.

    The numbers of tasks of two members differ by at most one, over all tasks and within each sub-topology. Within this
    limit a task stays where it was, or else goes to the member with the least lag (``lags``: member -> task ->
    offsets). The outcome depends only on the arguments, so all leaders decide alike.

    >>> assign_tasks([TaskId(0, p) for p in range(4)], ["a", "b", "c"], {"a": [TaskId(0, 0)]})["b"]
    {TaskId(subtopology=0, partition=2)}
    """
    lags = lags or {}
    assigned: dict[str, set[TaskId]] = {member: set() for member in sorted(members)}
    if not assigned:
        return assigned
    by_subtopology: dict[int, list[TaskId]] = {}
    for task in sorted(tasks):
        by_subtopology.setdefault(task.subtopology, []).append(task)
    for group in by_subtopology.values():
        # Two members may claim the same task after one of them was away for a while. The first claim counts.
        owner: dict[TaskId, str] = {}
        for member in assigned:
            for task in previous.get(member, ()):
                owner.setdefault(task, member)

        def elsewhere(task: TaskId, member: str) -> float:
            """The lag of the best copy that another member has."""
            return min((lags[m][task] for m in lags if m != member and task in lags[m]), default=inf)

        # A member with too many tasks gives away the tasks with the best copies elsewhere.
        held = {
            member: sorted(
                (task for task in group if owner.get(task) == member),
                key=lambda task: (-elsewhere(task, member), task),
            )
            for member in assigned
        }
        floor, extra = divmod(len(group), len(assigned))
        # One task more goes to members with the fewest tasks so far, then to members that hold the most tasks.
        order = sorted(assigned, key=lambda member: (len(assigned[member]), -len(held[member]), member))
        quota = {member: floor + (index < extra) for index, member in enumerate(order)}
        kept = {member: held[member][: quota[member]] for member in assigned}
        room = {member: quota[member] - len(kept[member]) for member in assigned}
        free = set(group).difference(*kept.values())
        warm = sorted(
            (behind, task, member)
            for member in lags.keys() & assigned.keys()
            for task, behind in lags[member].items()
            if room[member] and task in free
        )
        for _, task, member in warm:
            if room[member] and task in free:
                kept[member].append(task)
                room[member] -= 1
                free.remove(task)
        rest = iter(sorted(free))
        for member in assigned:
            assigned[member].update(kept[member], islice(rest, room[member]))
    return assigned
