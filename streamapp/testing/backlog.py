"""The records that an application still has to process, computed from its committed offsets."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException

from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.requests import committed
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.topology import Plan

__all__ = ["Backlog"]


class Backlog:
    """Compares the ends of an application's input topics with the offsets that its group has committed.

    Repartition topics between sub-topologies count as input, too, and so do the topics that a pattern finds. Topics of
    global tables do not count.

        with Backlog(plan, KafkaSettings.from_env()) as backlog:
            done, total = backlog.progress()
            finished = backlog.empty()

    A backlog does not join the group, so it causes no rebalance. Raises `BrokerError` if Kafka does not answer.
    """

    def __init__(self, plan: Plan, kafka: KafkaSettings, *, timeout: float = 30.0) -> None:
        self._admin, self._timeout = KafkaAdmin(kafka, timeout=timeout), timeout
        self._plan = plan
        self._named = {topic for sub in plan.subtopologies for topic in sub.source_topics}
        self._partitions: list[TopicPartition] = []
        """The partitions are kept between calls, because the request for the cluster's metadata takes the most time."""
        self._consumer = Consumer(
            {
                **kafka.librdkafka(),
                "group.id": plan.application_id,
                **TO_THE_END,
                "isolation.level": "read_committed",
                "log_level": 3,
            }
        )

    def __enter__(self) -> Backlog:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def progress(self) -> tuple[int, int]:
        """(committed offsets, end offsets), each summed over all partitions.

        Markers of transactions have offsets, too, and the group may not have committed them. So the two sums may differ
        even if all records are processed. `empty` tells if all records are processed.
        """
        ends = self._ends()
        return sum(self._committed(ends).values()), sum(ends.values())

    def empty(self) -> bool:
        """True if every record is processed and committed, and no transaction is open.

        Without any input, for example before a topic matches the only pattern, the answer is False.
        """
        ends = self._ends()
        stable = self._admin.log_end_offsets(ends, read_committed=True)
        if not ends or stable != ends:
            return False
        done = self._committed(ends)
        behind = [tp for tp, end in ends.items() if done[tp] < end]
        # The ends are read twice. A record that moved between two topics during the first read changes an end of the
        # second read.
        if self._has_records({tp: done[tp] for tp in behind}) or self._ends() != ends:
            return False
        # Some topics may not have existed at the first look-up, so the partitions are looked up again.
        known, self._partitions = self._partitions, self._look_up()
        return self._partitions == known

    def _ends(self) -> dict[TopicPartition, int]:
        self._partitions = self._partitions or self._look_up()
        return self._admin.log_end_offsets(self._partitions) if self._partitions else {}

    def _look_up(self) -> list[TopicPartition]:
        """All partitions of the inputs. Without one of the named topics, the list is empty: workers have not yet
        created the internal topics."""
        topics = self._admin.topics()
        if not self._named <= topics.keys():
            return []
        inputs = self._named.union(filter(self._plan.pattern_of, topics))
        return [
            TopicPartition(topic, number) for topic in sorted(inputs) for number in topics[topic].partitions
        ]

    def _committed(self, partitions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        try:
            found = committed(self._consumer, partitions, seconds=self._timeout)
        except KafkaException as error:
            raise BrokerError(
                f"the committed offsets of the application cannot be read: {error.args[0].str()}"
            ) from error
        return {TopicPartition(tp.topic, tp.partition): max(0, tp.offset) for tp in found}

    def _has_records(self, starts: dict[TopicPartition, int]) -> bool:
        """True if a record, and not only markers of transactions, comes at or after these offsets."""
        try:
            return next(read_to_end(self._consumer, starts, self._timeout), None) is not None
        finally:
            self._consumer.unassign()
