"""Faust's assignor, changed for new changelogs of global tables, for static members, and for workers of two versions.

Faust's own assignor fails while aiokafka's list of topics does not have the changelog of a global table. The assignor
also fails if a static member (KIP-345) comes back with another address.

A worker counts in the rows of a table that it has restored. So the worker that reads a partition of a topic must also
have the same partition of the changelogs of the tables. Faust places only those topics together to which the same
members subscribe. While a new version replaces an old one, the members may subscribe to other topics. Faust would then
part a topic from the changelog, and rows would begin anew on another worker. Suppose that a member and the leader have
different topics, and share one that a table may need. Then the member gets no topic that a table may need. The member
waits until a member of its version leads the group. The leader tells the member so.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from faust.types import TP

from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents
from streamapp.runners.worker.membership import FaustMembership

if TYPE_CHECKING:  # Faust's classes have no types

    class ClientMetadata:
        url: str
        assignment: Any

        def __init_subclass__(cls, **options: Any) -> None: ...
        def __init__(self, **values: Any) -> None: ...
        @classmethod
        def loads(cls, data: bytes) -> Any: ...
        def dumps(self) -> bytes: ...
        def asdict(self) -> dict[str, Any]: ...

    class PartitionAssignor:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

        app: Any
        _metadata: Any
        metadata: Any
        on_assignment: Any
        _get_copartitioned_groups: Any
        _global_table_standby_assignments: Any
        _perform_assignment: Any
        _protocol_assignments: Any
        _update_member_urls: Any
else:
    from faust.assignor.client_assignment import ClientMetadata
    from faust.assignor.partition_assignor import PartitionAssignor

__all__ = ["WAITS_REMEDY", "AgentAssignor", "MemberMetadata", "waits"]

logger: logging.Logger = logging.getLogger(__name__)

WAITS_REMEDY = (
    "After the last worker of that version has stopped, this worker takes over. To run different agents at the same "
    "time, give each kind of worker an App with an id of its own, or topics and tables of its own, none of them global"
)

_OUTDATED = "the assignment may be from before a restart; the worker asks for a new one"


def waits(leader: str) -> str:
    """The message of a worker whose agents wait for the version of the leader."""
    return (
        f"The agents of this worker wait, and get no topic that a table may need. The worker at {leader} leads the "
        "group, and its agents need other topics"
    )


class MemberMetadata(ClientMetadata, serializer="json", include_metadata=False, namespace="@StreamsMetadata"):
    """The user data of Faust's members, with ``agents`` and ``streams`` for the data of workers.

    ``agents`` is the digest of the topics that the member's agents need. Members of earlier releases have no digest,
    and count as members of the same version.

    ``streams`` of a subscription has ``moved``. This number begins with 0 at the member's start, and `_ask_anew` raises
    it, so that the subscription changes. The entry ``globals`` is true if the member's agents have global tables. The
    entry ``reads`` is a digest of the member's topics. With a topology, the digest also has their numbers of partitions
    and their roles. A worker with a topology also gives these entries of ``streams``:

    - ``rack``, the member's rack;
    - ``offsets``, the changelog offset of the member's state by task, as the sum over the task's stores;
    - ``warm``, the tasks whose copies had caught up at the member's last look;
    - ``names``, the `Plan.task_names` of the member;
    - ``roles``, the `Plan.topic_roles` of the member;
    - ``process``, the id in the member's state folder, which is a part of its transactional id.

    The leader is the member that divides the tasks among the members. ``streams`` of an assignment also has the entry
    ``reads``, as the member's subscription had it. With a topology, an assignment has these entries, too:

    - ``standby`` and ``warmup``, the tasks of which the member keeps a standby or a warm-up;
    - ``copies``, the addresses of the workers with a copy, by task;
    - ``names`` and ``roles``, as above, of the leader;
    - ``placed``, the topics whose partitions the leader has placed as tasks;
    - ``waits_for``, the address of the leader, if the member gets no topic that a table may need;
    - ``twin``, the address of another member with the same ``process``. The member with ``twin`` gets no tasks while
      the other member is in the group.

    During the rollout of a new version, the id of a task may mean another task in the other version. So a member
    ignores standbys and copies from a leader with other ``names``. The leader ignores the offsets of members with other
    ``names``, and gives these members no standbys and no warm-ups.

    If a topic of both versions has another role in the other version, the leader gives the member no tasks, and the
    member ends. Members of earlier releases lack ``names`` or ``roles``, and count as members of the same version.
    """

    agents: str = ""
    streams: dict[str, Any] = {}  # noqa: RUF012 (Faust's way to declare a default)


class AgentAssignor(PartitionAssignor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._moved = 0
        self._agents = ""
        """The digest of the topics that the agents of this worker need."""
        self._others: Set[str] = frozenset()
        """The members of another version, whose agents need other topics."""
        self.waits_for: str | None = None
        """The address of a leader of another version, for which the agents of this worker wait. None: they do not."""
        self._reads = ""
        """The digest of what this member reads."""
        self._doubted = False
        self.outdated: bool = False
        """True if the assignment may come from before a restart, so that the member has asked for another one."""

    @property
    def _metadata(self) -> MemberMetadata:
        return MemberMetadata(
            **super()._metadata.asdict(),
            agents=self._agents,
            streams={"moved": self._moved, "globals": self._has_globals, "reads": self._reads},
        )

    @property
    def _has_globals(self) -> bool:
        return any(table.is_global for table in self._table_manager.data.values())

    @classmethod
    def _get_client_metadata(cls, metadata: Any) -> MemberMetadata:
        return MemberMetadata.loads(metadata.user_data)  # type: ignore[no-any-return]

    def on_assignment(self, assignment: Any) -> None:
        metadata = MemberMetadata.loads(self._decompress(assignment.user_data))
        # A static member comes back without a rebalance (KIP-345), so the others still have its address from before
        # the restart.
        moved = metadata.url != str(self._url)
        if moved:
            metadata.url = str(self._url)
            assignment = type(assignment)(
                assignment.version, assignment.assignment, self._compress(metadata.dumps())
            )
        super().on_assignment(assignment)
        self._list_own_changelogs()
        waited_for, self.waits_for = self.waits_for, metadata.streams.get("waits_for")
        if self.waits_for not in (None, waited_for):
            logger.warning("%s. %s", waits(self.waits_for), WAITS_REMEDY)
        # A static member may get an assignment from before its restart, perhaps of its own earlier version.
        named = self.app.conf.consumer_group_instance_id is not None
        before, self._doubted = self._doubted, self._doubts(metadata)
        self.outdated = named and self._doubted and not before
        if self.outdated:
            logger.info("%s", _OUTDATED)
        if moved:
            logger.info("the address of this worker has changed; the worker tells the group")
        if moved or self.outdated:
            self._ask_anew()

    def _doubts(self, metadata: MemberMetadata) -> bool:
        """True if an assignment does not answer the last subscription, or if the leader does not tell, because it runs
        an earlier release."""
        return metadata.streams.get("reads") != self._reads

    def refuse(self) -> None:
        """Asks for another assignment in place of one that has topics to which this member does not subscribe."""
        logger.info("%s", _OUTDATED)
        self._ask_anew()

    def _list_own_changelogs(self) -> None:
        """Lists the changelogs of this worker's tables as changelogs, for pages that look for the worker of a key.

        A leader with other agents does not know these tables, and lists their changelogs among all other topics.
        """
        mine, others = self._table_manager.changelog_topics, self.external_topic_distribution
        for url, topics in self.changelog_distribution.items():
            found = self._topics_filtered(others.get(url, {}), mine)
            topics.update(found)
            self._tps_url.update({TP(topic, number): url for topic in found for number in found[topic]})

    def _ask_anew(self) -> None:
        """Asks the group for a new assignment.

        A broker starts no rebalance if a member other than the leader joins with an unchanged subscription. So each
        call raises the number ``moved`` in the subscription.
        """
        self._moved += 1
        self._rejoin()

    def _rejoin(self) -> None:
        FaustMembership(self.app).rejoin()

    def metadata(self, topics: set[str]) -> Any:
        regrouped = {
            topic for topic in topics if topic.endswith("-repartition") and not self._is_of_tasks(topic)
        }
        names = regrouped.union(topics_of_agents(self.app), changelogs_of_agents(self.app))
        self._agents = _digest(names)
        self._reads = _digest(self._read(topics))
        return super().metadata(topics)

    def _read(self, topics: set[str]) -> Iterable[str]:
        """The parts of `_reads`, in any order."""
        return topics

    def _is_of_tasks(self, topic: str) -> bool:
        """True if another assignor places the topic."""
        return False

    # The work of the leader.

    def _perform_assignment(self, cluster: Any, member_metadata: Mapping[str, Any]) -> Any:
        told = {member: self._get_client_metadata(each) for member, each in member_metadata.items()}
        self._others = {m for m, each in told.items() if each.agents not in ("", self._agents)}
        every = {topic for each in member_metadata.values() for topic in each.subscription}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in every}
        # A table takes changes only from topics with as many partitions as its changelog.
        of_tables = {counts[topic] for topic in every if topic.endswith("-changelog")}
        reduced = self._reduced(told, member_metadata, lambda topic: counts[topic] in of_tables)
        if reduced:
            logger.warning(
                "the agents of some workers need other topics than here: %s. These workers run another version, and "
                "get no topic that a table may need, until no worker of this version is left",
                ", ".join(sorted(told[member].url for member in reduced)),
            )
        answers = super()._perform_assignment(cluster, {**member_metadata, **reduced})
        for member, answer in answers.items():
            metadata = MemberMetadata.loads(self._decompress(answer.user_data))
            metadata.streams = {**metadata.streams, "reads": told[member].streams.get("reads")}
            if member in reduced:
                metadata.streams["waits_for"] = str(self._url)
            answers[member] = type(answer)(
                answer.version, answer.assignment, self._compress(metadata.dumps())
            )
        return answers

    def _reduced(
        self,
        told: Mapping[str, MemberMetadata],
        members: Mapping[str, Any],
        of_tables: Callable[[str], bool],
    ) -> dict[str, Any]:
        """The members that get no topic that a table may need, with their reduced subscriptions.

        A version gets these topics if neither the leader's version nor another version with such topics needs any of
        them. A version with global tables gets none, because only the leader's global tables are on all workers.
        """

        def needs(member: str) -> set[str]:
            return {
                topic
                for topic in members[member].subscription
                if not self._is_of_tasks(topic) and topic != self._leader_topic and of_tables(topic)
            }

        taken: set[str] = set().union(*(needs(member) for member in members if member not in self._others))
        reduced: dict[str, Any] = {}
        for version in sorted({told[member].agents for member in self._others}):
            those = [member for member in members if told[member].agents == version]
            needed: set[str] = set().union(*map(needs, those))
            if needed.isdisjoint(taken) and not any(told[m].streams.get("globals", True) for m in those):
                taken |= needed
                continue
            for member in those:
                each = members[member]
                if lost := {topic for topic in each.subscription if topic in needed}:
                    kept = [topic for topic in each.subscription if topic not in lost]
                    reduced[member] = type(each)(each.version, kept, each.user_data)
        return reduced

    @property
    def _leader_topic(self) -> str:
        """The topic by which Faust chooses the leader of an application. All members subscribe to the topic."""
        return str(self.app._leader_assignor._leader_topic_name)

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        created = {
            table.changelog_topic.get_topic_name(): table.partitions or self.app.conf.topic_partitions
            for table in self._table_manager.data.values()
            if table.is_global
        }
        same = {member: each for member, each in assignments.items() if member not in self._others}
        super()._global_table_standby_assignments(same, {**created, **partitions_by_topic})
        return assignments

    def _protocol_assignments(self, assignments: Any, *distributions: Any) -> Any:
        known = self._table_manager.changelog_topics
        for member in self._others:
            # Faust sends no standbys of tables that the leader does not have, but the member would expect them.
            standbys = assignments[member].standbys
            for topic in [topic for topic in standbys if topic not in known]:
                del standbys[topic]
        return super()._protocol_assignments(assignments, *distributions)


def _digest(names: Iterable[str]) -> str:
    return hashlib.blake2s("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()
