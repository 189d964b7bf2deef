"""`ClusterTopics`: lists, describes and deletes topics for ``streamapp topic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamapp._base.counted import counted
from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.consumer_groups import GroupLook, look_at_group, read_committed_offsets
from streamapp.broker.requests import LastingAdmin
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition

__all__ = ["ClusterTopics", "PartitionLook", "Reading"]

_OF_KAFKA = "__"
_INTERNAL = ("-changelog", "-repartition", "-__assignor-__leader")
"""The ends of the names of topics that an application creates for itself; the application's name is before them."""


class PartitionLook(NamedTuple):
    """One partition of a topic. ``first`` is the offset of its first record, ``end`` that of the next record. Without a
    leader (negative), no broker tells the offsets, and both are None."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int | None
    end: int | None


class Reading(NamedTuple):
    """A consumer group with offsets or partitions of a topic."""

    group: str
    members: int
    """The members that have partitions of the topic now."""


class ClusterTopics:
    """The topics of one cluster. All methods raise `BrokerError` if a request fails."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = KafkaAdmin(settings)
        self._settings = {**settings.librdkafka(), "client.id": "streamapp", "log_level": 0}
        self._client = LastingAdmin(self._settings)
        self._servers = settings.bootstrap_servers

    def names(self) -> dict[str, tuple[int, int]]:
        """Topic -> its number of partitions and of replicas, with Kafka's own topics."""
        return {
            name: (
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions.values()), default=0),
            )
            for name, topic in sorted(self._admin.topics().items())
        }

    def partitions(self, topic: str) -> list[PartitionLook]:
        """The partitions of a topic. Raises `StreamsError` if there is no such topic."""
        found = self._admin.topics().get(topic)
        if found is None:
            self._admin.check_shown(topic)
            raise StreamsError(
                f"there is no topic {topic} at {self._servers}: `streamapp topic list` shows the topics"
            )
        every = [TopicPartition(topic, number) for number in sorted(found.partitions)]
        led = [tp for tp in every if found.partitions[tp.partition].leader >= 0]
        firsts, ends = self._admin.log_start_offsets(led), self._admin.log_end_offsets(led)
        return [
            PartitionLook(
                number, each.leader, tuple(each.replicas), tuple(each.isrs), firsts.get(tp), ends.get(tp)
            )
            for tp in every
            for number, each in ((tp.partition, found.partitions[tp.partition]),)
        ]

    def settings(self, topic: str) -> dict[str, str]:
        """The settings that the topic itself has. Brokers decide the others."""
        return {name: str(value) for name, value in sorted(self._admin.own_config(topic).items())}

    def readings(self, topic: str) -> list[Reading]:
        """The consumer groups that read the topic now, or have committed offsets of the topic."""
        count = self._admin.partition_counts([topic]).get(topic, 0)
        every = [TopicPartition(topic, number) for number in range(count)]
        found = []
        for group in self._admin.groups():
            members = _members(look_at_group(self._client, group), topic)
            if members or read_committed_offsets(self._settings, group, every, stable=False):
                found.append(Reading(group, members))
        return found

    def check_deletable(self, topic: str) -> None:
        """Raises `StreamsError` for a topic of Kafka, and for an internal topic of an application that runs now."""
        if topic.startswith(_OF_KAFKA):
            raise StreamsError(f"{topic} is a topic of Kafka itself, and cannot be deleted here")
        if not topic.endswith(_INTERNAL):
            return
        for group in self._admin.groups():
            if topic.startswith(f"{group}-") and not (look := look_at_group(self._client, group)).at_rest:
                raise StreamsError(
                    f"{topic} is an internal topic of the application {group}, which runs now "
                    f"({counted(len(look.members), 'member')} in its group), and would lose records. Stop the "
                    "application first. `streamapp reset` then deletes its internal topics together with its offsets"
                )

    def delete(self, topics: Sequence[str]) -> None:
        """Deletes topics with all their records."""
        self._admin.delete_topics(topics)


def _members(look: GroupLook, topic: str) -> int:
    return sum(any(tp.topic == topic for tp in member.partitions) for member in look.members)
