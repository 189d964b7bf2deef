"""What a worker commits beside the offsets, as other clients of the group read it."""

from __future__ import annotations

import asyncio

from aiokafka.admin import AIOKafkaAdminClient

from streamapp.broker.leader_epochs import ReadEnd
from streamapp.engine.metadata import TOPIC_ID, changelog_number, encode_metadata, with_epoch
from streamapp.engine.topic_notes import note_of_topics
from streamapp.records import TopicPartition

from .conftest import PARTITIONS, Cluster


def test_a_worker_that_stops_leaves_metadata_that_ends_where_it_says(cluster: Cluster) -> None:
    cluster.feed(1_000)
    worker = cluster.start()
    cluster.counted()
    assert worker.terminate() == 0
    committed = asyncio.run(_committed(cluster))
    assert sum(offset for _, offset, _ in committed) == 1_000
    # Kafka Streams refuses all of it for a single character more.
    times = [1_700_000_000_000 + number for number in range(1_000)]
    topic = f"{TOPIC_ID}{cluster.topic_id(cluster.source)}"
    of_topics = note_of_topics([cluster.source], [cluster.source])
    changelog = changelog_number(cluster.topic_id(f"{cluster.id}-counts-changelog"))
    store = {"store counts: values by key, StringSerde/LongSerde": changelog}
    known = {
        encode_metadata(time, {topic: 0} | store | dict.fromkeys(("all stores", of_topics), time))
        for time in times
    }
    for tp, offset, text in committed:
        assert text in {with_epoch(each, tp, offset, ReadEnd(offset, 0)) for each in known}


async def _committed(cluster: Cluster) -> list[tuple[TopicPartition, int, str]]:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        async with asyncio.timeout(60):
            # The client takes an error of the answer, such as a coordinator that still loads the group, for no offsets.
            while len(found := await admin.list_consumer_group_offsets(cluster.id)) < PARTITIONS:
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
    return [(TopicPartition(*tp), position.offset, position.metadata) for tp, position in found.items()]
