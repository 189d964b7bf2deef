"""Faust's assignor, changed for global tables whose changelog is new, and for workers of two versions.

Faust's own assignor fails while aiokafka's list of topics does not have the new changelog.

A worker counts in the rows of a table that it has restored. So the worker that reads a partition of a topic must also
have the same partition of the changelogs of the tables. Faust places only those topics together to which the same
members subscribe. While a new version replaces an old one, the members may subscribe to other topics. Faust would then
part a topic from the changelog, and rows would begin anew on another worker. So only members with the same topics as
the leader get topics that tables may need. The others wait until a member of their version leads the group.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from faust.assignor.client_assignment import ClientMetadata

from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents

if TYPE_CHECKING:

    class PartitionAssignor:
        """Faust's has no types."""

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

        _metadata: Any
        metadata: Any
        on_assignment: Any
        _get_copartitioned_groups: Any
        _global_table_standby_assignments: Any
        _perform_assignment: Any
        _protocol_assignments: Any
        _update_member_urls: Any
else:
    from faust.assignor.partition_assignor import PartitionAssignor

__all__ = ["AgentAssignor", "AgentMetadata"]

logger: logging.Logger = logging.getLogger(__name__)


class AgentMetadata(  # type: ignore[call-arg]
    ClientMetadata,  # type: ignore[misc]
    serializer="json",
    include_metadata=False,
    namespace="@AgentMetadata",
):
    """The user data of Faust's members, with ``agents``: the digest of the topics that the member's agents need.

    Members of earlier releases have no digest, and count as members of the same version.
    """

    agents: str = ""


class AgentAssignor(PartitionAssignor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._agents = ""
        """The digest of the topics that the agents of this worker need."""
        self._others: Set[str] = frozenset()
        """The members of another version, whose agents need other topics."""

    @property
    def _metadata(self) -> Any:
        return AgentMetadata(**super()._metadata.asdict(), agents=self._agents)

    @classmethod
    def _get_client_metadata(cls, metadata: Any) -> Any:
        return AgentMetadata.loads(metadata.user_data)

    def metadata(self, topics: set[str]) -> Any:
        regrouped = {topic for topic in topics - self._placed_as_tasks if topic.endswith("-repartition")}
        names = regrouped.union(topics_of_agents(self.app), changelogs_of_agents(self.app))
        self._agents = hashlib.blake2s("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()
        return super().metadata(topics)

    @property
    def _placed_as_tasks(self) -> Set[str]:
        """The topics that another assignor places."""
        return frozenset()

    # The work of the leader.

    def _perform_assignment(self, cluster: Any, member_metadata: Mapping[str, Any]) -> Any:
        told = {member: self._get_client_metadata(each) for member, each in member_metadata.items()}
        self._others = {m for m, each in told.items() if each.agents not in ("", self._agents)}
        if self._others:
            logger.warning(
                "the agents of some workers need other topics than here: %s. These workers run another version, and "
                "get no topic that a table may need, until no worker of this version is left",
                ", ".join(sorted(told[member].url for member in self._others)),
            )
        every = {topic for each in member_metadata.values() for topic in each.subscription}
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in every}
        # A table takes changes only from topics with as many partitions as its changelog.
        of_tables = {counts[topic] for topic in every if topic.endswith("-changelog")}
        reduced = {
            member: type(each)(
                each.version,
                [t for t in each.subscription if t in self._placed_as_tasks or counts[t] not in of_tables],
                each.user_data,
            )
            for member, each in member_metadata.items()
            if member in self._others
        }
        return super()._perform_assignment(cluster, {**member_metadata, **reduced})

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        created = {
            table.changelog_topic.get_topic_name(): table.partitions or self.app.conf.topic_partitions
            for table in self._table_manager.data.values()
            if table.is_global
        }
        same = {member: each for member, each in assignments.items() if member not in self._others}
        super()._global_table_standby_assignments(same, {**created, **partitions_by_topic})
        return assignments
