"""The partition of a windowed key; see ``docs/decisions/windowed-keys-stay-together.md``."""

from __future__ import annotations

from typing import Any

from streamapp import StreamsBuilder, TopicPartition, Windowed
from streamapp._base.partitioning import partition_for
from streamapp.records import RecordBatch
from streamapp.serdes import TimeWindowedSerde
from tests.unit.engine.support import TEXT, Sent, task_of

HOURS = TimeWindowedSerde(TEXT, 10)
SERDES: dict[str, Any] = {"key_serde": HOURS, "value_serde": TEXT}
KEYS = [HOURS.serialize(Windowed("JFK", start, start + 10)) for start in range(0, 100, 10)]


def partitions(topic: str, **options: Any) -> list[int | None]:
    """The partitions that a repartition topic, and the topic of a `to`, get for windows of one key."""
    builder = StreamsBuilder()
    stream = builder.stream("in", **SERDES)
    stream.to("out", **SERDES)
    stream.repartition(name="again", **SERDES, **options).foreach(lambda key, value: None)
    task, sent = task_of(builder, collector=Sent(partitions=8))
    values, times = [b"v"] * len(KEYS), [1] * len(KEYS)
    task.enqueue(TopicPartition("in", 0), RecordBatch(KEYS, values, times, range(len(KEYS))))
    task.process()
    found = [record.partition for record in sent.records if record.topic == topic]
    assert len(found) == len(KEYS)
    return found


def test_all_windows_of_a_key_are_in_one_partition() -> None:
    together = [partition_for(b"JFK", 8)] * len(KEYS)
    assert partitions("out") == together
    assert partitions("app-again-repartition") == together


def test_a_partitioner_without_a_choice_leaves_a_windowed_key_to_the_default_partitioner() -> None:
    """An application that takes over from Kafka Streams writes its repartition topics in this way."""
    chosen = partitions("app-again-repartition", partitioner=lambda topic, key, value, count: None)
    assert chosen == [None] * len(KEYS)
