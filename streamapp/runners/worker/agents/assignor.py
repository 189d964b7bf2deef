"""Faust's assignor, changed for global tables whose changelog is new, and for static members (KIP-345).

Faust's own assignor fails while aiokafka's list of topics does not have the new changelog. The assignor also fails if a
static member comes back with another address.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

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
        def __getattr__(self, name: str) -> Any: ...

        app: Any
        _metadata: Any
        on_assignment: Any
        _get_copartitioned_groups: Any
        _global_table_standby_assignments: Any
        _protocol_assignments: Any
        _update_member_urls: Any
else:
    from faust.assignor.client_assignment import ClientMetadata
    from faust.assignor.partition_assignor import PartitionAssignor

__all__ = ["AgentAssignor", "MemberMetadata"]

logger: logging.Logger = logging.getLogger(__name__)


class MemberMetadata(ClientMetadata, serializer="json", include_metadata=False, namespace="@StreamsMetadata"):
    """The user data of Faust's members, with ``streams`` for the data of workers.

    In a subscription ``streams`` has ``moved``, and for a worker with a topology also the others:

    - ``rack``, the member's rack;
    - ``offsets``, the changelog offset of the member's state by task, as the sum over the task's stores;
    - ``warm``, the tasks whose copies had caught up at the member's last look;
    - ``moved``, the number of times that the member has asked for an assignment with its present data;
    - ``names``, the `Plan.task_names` of the member;
    - ``roles``, the `Plan.topic_roles` of the member.

    In an assignment ``streams`` has the ``standby`` and ``warmup`` tasks of the member. ``copies`` has, by task, the
    addresses of the workers with a copy. ``names`` and ``roles`` are those of the leader.

    During the rollout of a new version, the id of a task may mean another task in the other version. So members take no
    standbys, offsets and copies from members with other ``names``, and the leader gives such members no standbys.
    If a topic of both versions has another role in the other version, the member ends, and gets no tasks of the leader.
    Members of earlier releases have no ``names`` or no ``roles``.
    """

    streams: dict[str, Any] = {}  # noqa: RUF012 (Faust's way to declare a default)


class AgentAssignor(PartitionAssignor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._moved = 0

    @property
    def _metadata(self) -> MemberMetadata:
        return MemberMetadata(**super()._metadata.asdict(), streams={"moved": self._moved})

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
        if moved:
            logger.info("the address of this worker has changed; the worker tells the group")
            self._ask_anew()

    def _ask_anew(self) -> None:
        """Asks the group for a new assignment.

        A broker starts no rebalance for an unchanged subscription. The number ``moved`` changes the subscription.
        """
        self._moved += 1
        self._rejoin()

    def _rejoin(self) -> None:
        FaustMembership(self.app).rejoin()

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Any) -> Any:
        created = {
            table.changelog_topic.get_topic_name(): table.partitions or self.app.conf.topic_partitions
            for table in self._table_manager.data.values()
            if table.is_global
        }
        return super()._global_table_standby_assignments(assignments, {**created, **partitions_by_topic})
