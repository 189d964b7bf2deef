"""The remaining work of an application, seen from outside by the commits of its group."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.broker.requests import committed
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition
from streamapp.topology import Plan

__all__ = ["Backlog"]


class Backlog:
    """The input topics of a plan, internal ones included, and how far the application's group has committed them.

        with Backlog(plan, KafkaSettings.from_env()) as backlog:
            done, total = backlog.progress()
            finished = backlog.empty()

    The backlog joins no group, so the workers do not notice. Raises `BrokerError` if Kafka does not answer.
    """

    def __init__(self, plan: Plan, kafka: KafkaSettings, *, timeout: float = 30.0) -> None:
        self._admin, self._timeout = KafkaAdmin(kafka, timeout=timeout), timeout
        self._topics = sorted({topic for sub in plan.subtopologies for topic in sub.source_topics})
        self._partitions: list[TopicPartition] = []
        """Kept from look to look: a cluster's metadata costs more than the rest."""
        self._consumer = Consumer(
            {
                **kafka.librdkafka(),
                "group.id": plan.application_id,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 3,
            }
        )

    def __enter__(self) -> Backlog:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def progress(self) -> tuple[int, int]:
        """(offsets committed, offsets there are) over all partitions; the total grows while work goes on.

        The two need not become equal: markers of transactions have offsets too, and are not committed.
        """
        ends = self._ends()
        return sum(self._committed(ends).values()), sum(ends.values())

    def empty(self) -> bool:
        """True if every record is processed and committed, and no transaction is open."""
        ends = self._ends()
        stable = self._admin.log_end_offsets(ends, read_committed=True)
        if not ends or stable != ends:
            return False
        done = self._committed(ends)
        behind = [tp for tp, end in ends.items() if done[tp] < end]
        # What an earlier topic still had would have appeared in a later one meanwhile, and moved its end.
        if self._has_records({tp: done[tp] for tp in behind}) or self._ends() != ends:
            return False
        # Topics were perhaps still being made when they were looked up.
        known, self._partitions = self._partitions, self._look_up()
        return self._partitions == known

    def _ends(self) -> dict[TopicPartition, int]:
        self._partitions = self._partitions or self._look_up()
        return self._admin.log_end_offsets(self._partitions) if self._partitions else {}

    def _look_up(self) -> list[TopicPartition]:
        """All partitions of the topics; none as long as the workers have not made the internal topics."""
        counts = self._admin.partition_counts(self._topics)
        if len(counts) < len(self._topics):
            return []
        return [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]

    def _committed(self, partitions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        try:
            found = committed(self._consumer, partitions, seconds=self._timeout)
        except KafkaException as error:
            raise BrokerError(
                f"what the application has committed is not known: {error.args[0].str()}"
            ) from error
        return {TopicPartition(tp.topic, tp.partition): max(0, tp.offset) for tp in found}

    def _has_records(self, starts: dict[TopicPartition, int]) -> bool:
        """True if a record lies behind these offsets, and not only markers of transactions."""
        self._consumer.assign([KafkaPartition(*tp, offset) for tp, offset in starts.items()])
        try:
            waiting = set(starts)
            while waiting:
                message = self._consumer.poll(self._timeout)
                if message is None:
                    raise BrokerError(f"Kafka does not say what lies at {starts} within {self._timeout:g} s")
                error = message.error()
                if error is None:
                    return True
                if error.code() != KafkaError._PARTITION_EOF:
                    raise BrokerError(f"the inputs cannot be read: {error.str()}")
                waiting.discard(TopicPartition(message.topic(), message.partition()))
            return False
        finally:
            self._consumer.unassign()
