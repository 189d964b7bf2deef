"""`TopicsOfConsumer`: notices topics that were deleted and created anew, whose offsets then mean other records."""

from __future__ import annotations

from collections.abc import Mapping, Set

from streamapp.broker.requests import LastingAdmin
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import committed_in_others, created_anew, ids_of
from streamapp.runners.topic_ids import TopicIds

__all__ = ["TopicsOfConsumer"]

_SECONDS = 60.0


class TopicsOfConsumer:
    """The ids of the topics that one consumer reads. Only the thread that polls calls this object.

    Commits name the id that the topic had when this consumer first got partitions of the topic.
    """

    def __init__(self, options: ConsumeOptions, admin: LastingAdmin) -> None:
        self._options, self._admin = options, admin
        self._ids: dict[str, str] = {}
        self._watch: TopicIds | None = None

    def ids_at_assignment(
        self,
        topics: Set[str],
        in_kafka: Mapping[TopicPartition, tuple[int, str]],
        in_database: Mapping[TopicPartition, tuple[int, str]],
    ) -> Mapping[str, str]:
        """The ids of topics by name, as far as brokers know ids. ``topics`` are those of newly assigned partitions.

        ``in_kafka`` and ``in_database`` are the offsets at which the consumer goes on, with their metadata. Raises
        `BrokerError` if an offset belongs to an earlier topic of the same name.
        """
        others = committed_in_others(self._admin, {**in_kafka, **in_database}, _SECONDS)
        if others:
            source = min(others)
            ways_out = self._ways_out(source.topic, in_database=source in in_database)
            raise BrokerError(f"{created_anew(source.topic, self._options.name)}. {ways_out}")
        self._ids |= ids_of(self._admin, topics - self._ids.keys(), _SECONDS)
        if self._watch is None:
            self._watch = TopicIds(self._admin, self._ids, self._ids)
        self._watch.watch(topics)
        return self._ids

    def check_ids(self) -> None:
        """Raises `BrokerError` if a topic was created anew while this consumer runs. Never waits for brokers.

        For a topic that is deleted and does not come back, the consumer waits.
        """
        lost = None if self._watch is None else self._watch.lost()
        if lost is not None and lost.anew:
            raise BrokerError(
                f"the topic {lost.topic} was deleted and created anew while {self._options.name} read it. The consumer "
                "may have passed over records of the new topic, because it went on at the offsets of the old topic. If "
                "the committed offsets belong to the old topic, the next start is refused, with the ways to go on"
            )

    def _ways_out(self, topic: str, *, in_database: bool) -> str:
        group, sink = self._options.name, self._options.offsets
        if in_database and sink is not None:
            run = "run in the database"
            anew, keep = (sink.statement(group, topic, begin_anew=each) for each in (True, False))
        else:
            run = "run"
            reset = f"streamapp offsets reset --group {group} --topic {topic}"
            anew, keep = f"{reset} --to-earliest --execute", f"{reset} --shift-by 0 --execute"
        return (
            f"Stop all copies of the consumer. To begin with the first record of the new topic, {run} `{anew}`. "
            f"If a tool has copied topics and offsets from another cluster, the offsets are right: {run} `{keep}`"
        )
