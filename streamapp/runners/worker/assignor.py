"""Faust's partition assignor, with the tasks of the topology placed by `place`.

A task is one sub-topology on one partition number. The task reads this partition of each source topic of the
sub-topology, so one member must get all these partitions. Faust's own assignor does not know tasks: it groups topics by
partition count, and balances each group on its own. Faust's assignor still places the topics of agents, and the
changelogs of the agents' tables.

A member's subscription has the changelog offsets of the member's state. The member that leads the group compares these
offsets with the ends of the changelogs. The assignment tells each member its standbys, and tells all members the
workers of all standbys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamapp.records import TopicPartition
from streamapp.runners.worker.agents.assignor import AgentAssignor, MemberMetadata
from streamapp.runners.worker.placement import Candidate, Placement, TaskId, place

__all__ = ["RUNNING", "StreamsAssignor"]

logger: logging.Logger = logging.getLogger(__name__)

RUNNING = -2
"""The offset that a member reports for a task that it runs, as in Kafka Streams' subscriptions."""


class StreamsAssignor(AgentAssignor):
    """Faust's assignor for the topics of agents, and `place` for the source topics of the topology."""

    _partition_counts: dict[str, int]
    _clients: dict[str, MemberMetadata]
    _subscriptions: Mapping[str, list[str]]
    _placement: Placement
    _placed: list[str]
    _twins: Mapping[str, str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.standbys: dict[TaskId, bool] = {}
        """The tasks of which this member keeps a copy. True: a warm-up, which becomes the running task."""
        self._copies: dict[TaskId, tuple[str, ...]] = {}
        self.placed: frozenset[str] = frozenset()
        """The topics that the last assignment has placed as tasks. A leader of an earlier release does not tell those
        of its patterns."""
        self.conflict: str | None = None
        """A topic that the tasks of the group's leader read for other stores or repartition topics than the tasks here.
        """
        self.twin: str | None = None
        """The address of another worker with the process id of this one, because a state folder was copied."""
        self.subscribed: frozenset[str] = frozenset()
        """The topics to which this member has subscribed at its last join."""

    # The subscription and the assignment of a member.

    def metadata(self, topics: set[str]) -> Any:
        self.subscribed = frozenset(topics)
        return super().metadata(topics)

    @property
    def _metadata(self) -> MemberMetadata:
        runtime = self.app.streams
        offsets = {str(task): offset for task, offset in runtime.task_offsets().items()}
        mine = super()._metadata
        warm = sorted(map(str, runtime.warm_tasks()))
        mine.streams |= {"rack": runtime.config.client_rack, "offsets": offsets, "warm": warm}
        mine.streams |= {"names": self._names, "roles": self._roles, "process": runtime.process_id}
        return mine

    @property
    def _names(self) -> str:
        return self.app.streams.plan.task_names  # type: ignore[no-any-return]

    @property
    def _roles(self) -> Mapping[str, str]:
        return self.app.streams.plan.topic_roles  # type: ignore[no-any-return]

    def _read(self, topics: set[str]) -> Iterable[str]:
        """The topics of the member, with the number of partitions and the role of each topic of the topology."""
        yield from topics
        yield self._names
        yield from (f"{topic} {role}" for topic, role in self._roles.items())
        yield from (f"{topic} {count}" for topic, count in self.app.streams.source_partitions().items())

    def on_assignment(self, assignment: Any) -> None:
        metadata = MemberMetadata.loads(self._decompress(assignment.user_data))
        told = metadata.streams or {}
        self.placed = frozenset(told.get("placed", told.get("roles", ())))
        self.conflict, self.twin = _conflict(self._roles, metadata), told.get("twin")
        super().on_assignment(assignment)
        streams = _understood(metadata, self._names)
        self.standbys = {TaskId.parse(task): False for task in streams.get("standby", ())}
        self.standbys.update((TaskId.parse(task), True) for task in streams.get("warmup", ()))
        self._copies = {TaskId.parse(task): tuple(urls) for task, urls in streams.get("copies", {}).items()}

    def _doubts(self, metadata: MemberMetadata) -> bool:
        return super()._doubts(metadata) or (self.conflict or self.twin) is not None

    @property
    def unread(self) -> frozenset[str]:
        """The topics that tasks of the group's leader read, and this worker does not. The leader runs another version,
        and gives tasks only to workers that read all of its topics."""
        return self.placed - self.subscribed

    def _rejoin(self) -> None:
        self.app.streams.rejoin()

    def url_of(self, partition: TopicPartition) -> str | None:
        """The address of the worker that has a source partition. None: no worker has the partition."""
        url: str | None = self._external_tps_url.get(partition)
        return url

    def copies_of(self, task: TaskId) -> tuple[str, ...]:
        """The addresses of the workers that keep a copy of a task's state."""
        return self._copies.get(task, ())

    # The work of the leader.

    @property
    def _source_topics(self) -> dict[int, tuple[str, ...]]:
        return self.app.streams.source_topics  # type: ignore[no-any-return]

    def _is_of_tasks(self, topic: str) -> bool:
        return self.app.streams.may_read(topic)  # type: ignore[no-any-return]

    def _get_copartitioned_groups(self, topics: set[str], cluster: Any, subscriptions: Any) -> Any:
        ours = set(filter(self._is_of_tasks, topics))
        self._partition_counts = {
            topic: len(cluster.partitions_for_topic(topic) or ())
            for topic in sorted(ours)
            if self.app.streams.is_source(topic)
        }
        self._subscriptions = subscriptions
        return super()._get_copartitioned_groups(topics - ours, cluster, subscriptions)

    def _update_member_urls(self, clients_metadata: Any) -> None:
        super()._update_member_urls(clients_metadata)
        self._clients = clients_metadata

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        # Faust calls this method last before it sends the assignment, so the partitions of the tasks are added here.
        result = super()._global_table_standby_assignments(assignments, partitions_by_topic)
        self._twins = _twins(self._clients)
        fit = [
            m
            for m in self._subscriptions
            if m not in self._twins and _conflict(self._roles, self._clients[m]) is None
        ]
        counts = {
            topic: count for topic, count in self._partition_counts.items() if not self._awaited(topic, fit)
        }
        self._placed = sorted(topic for topic, count in counts.items() if count)
        topics = {
            subtopology: [topic for topic in names if counts.get(topic)]
            for subtopology, names in self._source_topics.items()
        }
        # During the rollout of a new version, only members that subscribe to all of its topics can run its tasks.
        members = [m for m in fit if counts.keys() <= set(self._subscriptions[m])]
        tasks = [
            TaskId(subtopology, partition)
            for subtopology, names in topics.items()
            for partition in range(max((counts[topic] for topic in names), default=0))
        ]
        config = self.app.streams.config
        ends = self.app.streams.changelog_ends(tasks)
        self._placement = place(
            tasks,
            ends,
            {
                member: _candidate(
                    self._clients[member], self._names, topics, ends, config.acceptable_recovery_lag
                )
                for member in members
            },
            standby_replicas=config.num_standby_replicas,
            acceptable_lag=config.acceptable_recovery_lag,
            max_warmups=config.max_warmup_replicas,
        )
        for member, mine in self._placement.active.items():
            for task in sorted(mine):
                for topic in topics[task.subtopology]:
                    if task.partition < counts[topic]:
                        result[member].actives.setdefault(topic, []).append(task.partition)
        return result

    def _awaited(self, topic: str, members: Sequence[str]) -> bool:
        """True if a member has the pattern that matches the topic, but has not yet found the topic.

        The member subscribes to the topic soon. Until then, the topic does not decide which member has a task.
        """
        pattern = self.app.streams.plan.pattern_of(topic)
        return pattern is not None and any(
            pattern in (self._clients[m].streams or {}).get("roles", {})
            and topic not in self._subscriptions[m]
            for m in members
        )

    def _protocol_assignments(self, assignments: Any, *distributions: Any) -> Any:
        placement, urls = self._placement, self._member_urls
        with_copies = {
            task for kind in (placement.standby, placement.warmup) for t in kind.values() for task in t
        }
        copies = {str(task): [urls[m] for m in placement.copies(task)] for task in sorted(with_copies)}
        result = super()._protocol_assignments(assignments, *distributions)
        for member, told in result.items():
            metadata = MemberMetadata.loads(self._decompress(told.user_data))
            metadata.streams = {
                "standby": sorted(map(str, placement.standby.get(member, ()))),
                "warmup": sorted(map(str, placement.warmup.get(member, ()))),
                "copies": copies,
                "names": self._names,
                "roles": self._roles,
                "placed": self._placed,
                "twin": self._twins.get(member),
            }
            result[member] = type(told)(told.version, told.assignment, self._compress(metadata.dumps()))
        return result


def _same_tasks(metadata: MemberMetadata, names: str) -> bool:
    """True if the ids of tasks mean the same tasks for another worker as here."""
    return (metadata.streams or {}).get("names", names) == names  # type: ignore[no-any-return]


def _conflict(roles: Mapping[str, str], metadata: MemberMetadata) -> str | None:
    """A topic that has another role for another worker than here. None: the two workers may share all topics."""
    others = (metadata.streams or {}).get("roles", {})
    return min(
        (topic for topic in roles.keys() & others.keys() if roles[topic] != others[topic]), default=None
    )


def _twins(members: Mapping[str, MemberMetadata]) -> dict[str, str]:
    """The members that get no tasks, each with the address of the member with the same process id that may have tasks.

    The member that already has tasks keeps them. Members of earlier releases have no process id.
    """
    stays: dict[str, str] = {}
    found = {}
    for member in sorted(members, key=lambda each: (not members[each].assignment.actives, each)):
        process = (members[member].streams or {}).get("process")
        if process is not None and stays.setdefault(process, member) != member:
            found[member] = members[stays[process]].url
    return found


def _understood(metadata: MemberMetadata, names: str) -> Mapping[str, Any]:
    """The data of another worker; none if the ids of tasks in the data have another meaning than here."""
    return metadata.streams or {} if _same_tasks(metadata, names) else {}


def _candidate(
    client: MemberMetadata,
    names: str,
    topics: Mapping[int, list[str]],
    ends: Mapping[TaskId, int],
    acceptable_lag: int,
) -> Candidate:
    said = _understood(client, names)
    active = {
        TaskId(subtopology, partition)
        for subtopology, sources in topics.items()
        for topic in sources
        for partition in client.assignment.actives.get(topic, ())
    }
    offsets = {TaskId.parse(task): offset for task, offset in said.get("offsets", {}).items()}
    lags = {
        task: 0 if offset == RUNNING else max(0, ends[task] - offset)
        for task, offset in offsets.items()
        if task in ends
    }
    # A rebalance begins with a commit, and no copy has the commit's changes yet. A warm copy still counts as warm, or
    # many changes would put off the task's move for ever.
    for task in map(TaskId.parse, said.get("warm", ())):
        if task in lags:
            lags[task] = min(lags[task], acceptable_lag)
    rack = (client.streams or {}).get("rack")
    return Candidate(frozenset(active), lags, rack, _same_tasks(client, names))
