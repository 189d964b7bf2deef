"""Which worker runs which task: balanced over all workers, moving as little as possible.

A task is a sub-topology and a partition number; it needs that partition of each of the sub-topology's source
topics, so they travel together. Faust's assignor groups topics by their partition count instead and balances
each group on its own. Topics of plain agents and changelogs of plain Faust tables are still placed by Faust.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor

from streamapp.records import TopicPartition

__all__ = ["StreamsAssignor", "TaskId", "assign_tasks"]


class TaskId(NamedTuple):
    """Names a task as Kafka Streams does: ``0_3`` is partition 3 of sub-topology 0."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


def assign_tasks(
    tasks: Iterable[TaskId], members: Iterable[str], previous: Mapping[str, Iterable[TaskId]]
) -> dict[str, set[TaskId]]:
    """Gives each task to one member.

    Two members differ by at most one task, over all and within each sub-topology. A task stays where it was
    as far as that allows. The outcome depends on nothing but the arguments, so every leader decides alike.

    >>> assign_tasks([TaskId(0, p) for p in range(4)], ["a", "b", "c"], {"a": [TaskId(0, 0)]})["b"]
    {TaskId(subtopology=0, partition=2)}
    """
    assigned: dict[str, set[TaskId]] = {member: set() for member in sorted(members)}
    if not assigned:
        return assigned
    by_subtopology: dict[int, list[TaskId]] = {}
    for task in sorted(tasks):
        by_subtopology.setdefault(task.subtopology, []).append(task)
    for group in by_subtopology.values():
        # Two members may claim one task, when one of them was away for a while: the first claim counts.
        owner: dict[TaskId, str] = {}
        for member in assigned:
            for task in previous.get(member, ()):
                owner.setdefault(task, member)
        held = {member: [task for task in group if owner.get(task) == member] for member in assigned}
        floor, extra = divmod(len(group), len(assigned))
        # The members that get one task more: those with the fewest tasks so far, then those that lose one
        # otherwise.
        order = sorted(assigned, key=lambda member: (len(assigned[member]), -len(held[member]), member))
        quota = {member: floor + (index < extra) for index, member in enumerate(order)}
        kept = {member: held[member][: quota[member]] for member in assigned}
        free = sorted(set(group).difference(*kept.values()), reverse=True)
        for member in assigned:
            take = quota[member] - len(kept[member])
            assigned[member].update(kept[member], (free.pop() for _ in range(take)))
    return assigned


class StreamsAssignor(PartitionAssignor):  # type: ignore[misc]
    """Faust's assignor, with the source topics of the topology taken out of its hands."""

    _partition_counts: dict[str, int]
    _clients: dict[str, ClientMetadata]
    _subscriptions: Mapping[str, list[str]]

    @property
    def _source_topics(self) -> dict[int, tuple[str, ...]]:
        return self.app.streams.source_topics  # type: ignore[no-any-return]

    def _get_copartitioned_groups(self, topics: set[str], cluster: Any, subscriptions: Any) -> Any:
        ours = {topic for names in self._source_topics.values() for topic in names}
        self._partition_counts = {
            topic: len(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics & ours)
        }
        self._subscriptions = subscriptions
        return super()._get_copartitioned_groups(topics - ours, cluster, subscriptions)

    def _update_member_urls(self, clients_metadata: Any) -> None:
        super()._update_member_urls(clients_metadata)
        self._clients = clients_metadata

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        # The last step before Faust tells the members: here the tasks' partitions join its own.
        result = super()._global_table_standby_assignments(assignments, partitions_by_topic)
        counts = self._partition_counts
        topics = {
            subtopology: [topic for topic in names if counts.get(topic)]
            for subtopology, names in self._source_topics.items()
        }
        # While a new version is rolled out, only members that know all of its topics can run its tasks.
        members = [m for m, subscribed in self._subscriptions.items() if counts.keys() <= set(subscribed)]
        previous = {
            member: {
                TaskId(subtopology, partition)
                for subtopology, names in topics.items()
                for topic in names
                for partition in self._clients[member].assignment.actives.get(topic, ())
            }
            for member in members
        }
        tasks = [
            TaskId(subtopology, partition)
            for subtopology, names in topics.items()
            for partition in range(max((counts[topic] for topic in names), default=0))
        ]
        for member, mine in assign_tasks(tasks, members, previous).items():
            for task in sorted(mine):
                for topic in topics[task.subtopology]:
                    if task.partition < counts[topic]:
                        result[member].actives.setdefault(topic, []).append(task.partition)
        return result

    def url_of(self, partition: TopicPartition) -> str | None:
        """Where the worker that a source partition is assigned to can be reached."""
        url: str | None = self._external_tps_url.get(partition)
        return url
