"""Kafka's own tools see no lag of an application that has read everything, whatever lies behind the last record."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ..processes import until
from .conftest import PARTITIONS, Cluster


def lags(cluster: Cluster) -> dict[str, int]:
    """Partition -> lag, as ``kafka-consumer-groups --describe`` shows: from the commit to the end of the log."""
    asked = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(cluster.id)])
    committed = asked[cluster.id].result(30).topic_partitions
    ends = cluster.admin.list_offsets(
        {TopicPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in committed}
    )
    at = {f"{tp.topic}-{tp.partition}": future.result(30).offset for tp, future in ends.items()}
    return {name: at[name] - tp.offset for tp in committed for name in [f"{tp.topic}-{tp.partition}"]}


def transaction(cluster: Cluster, topic: str, records: int, *, commit: bool) -> None:
    """Records in every partition of a topic, in one transaction."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{cluster.id}-source"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"v", f"k{number}", number % PARTITIONS, timestamp=1_700_000_000_000 + number)
    producer.flush()
    if commit:
        producer.commit_transaction()
        cluster.produced += records
    else:
        producer.abort_transaction()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_no_lag_is_left_behind_committed_and_aborted_transactions_and_what_retention_removed(
    cluster: Cluster, guarantee: str
) -> None:
    found: dict[str, int] = {}

    def settled() -> bool:
        found.clear()
        found.update(lags(cluster))
        return len(found) == 2 * PARTITIONS and set(found.values()) == {0}

    def settles() -> None:
        until(settled, 90, lambda: f"{found}\n{cluster.story()}")

    planes = f"{cluster.source}-planes"
    cluster.create(planes, partitions=2)
    for number in range(50):
        cluster.producer.produce(planes, f"airport{number % 25}", f"k{number}")
    cluster.producer.flush()
    env = {"app": "rekeyed_app", "GUARANTEE": guarantee}
    transaction(cluster, cluster.source, 40, commit=True)
    worker = cluster.start(**env)
    cluster.counted()
    settles()
    transaction(cluster, cluster.source, 12, commit=False)
    settles()
    assert worker.terminate() == 0

    transaction(cluster, cluster.source, 20, commit=True)
    everything = [TopicPartition(cluster.source, p, -1) for p in range(PARTITIONS)]
    for future in cluster.admin.delete_records(everything).values():
        future.result()
    worker = cluster.start(**env)
    settles()
    assert worker.terminate() == 0
