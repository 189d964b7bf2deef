"""History in files: read where Kafka does not have it any more, as one with what Kafka has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamapp.errors import ConfigError
from streamapp.records import RecordBatch, TopicPartition
from streamapp.runners.spark.archive import ParquetSource
from streamapp.runners.spark.backfill_files import HistoryPart, archives
from streamapp.runners.spark.batch_source import KafkaReader

from . import travels
from .cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def archive(cluster: Cluster, topic: str, folder: Path, end: int) -> None:
    """Writes the records of each partition before an offset into files, two a partition."""
    for partition in range(travels.PARTITIONS):
        reader = KafkaReader({"bootstrap.servers": cluster.servers}, TopicPartition(topic, partition), 0, end)
        rows: list[tuple[bytes, bytes, int, int]] = []
        while (batch := reader.read()) is not None:
            rows += zip(batch.keys, batch.values, batch.timestamps, batch.offsets, strict=True)  # type: ignore[arg-type]
        reader.close()
        path = folder / f"partition={partition}"
        path.mkdir(parents=True)
        for number, part in enumerate((rows[: end // 2], rows[end // 2 :])):
            columns = dict(zip(("key", "value", "timestamp", "offset"), zip(*part, strict=True), strict=True))
            pq.write_table(
                pa.table({name: list(values) for name, values in columns.items()}), path / f"{number}.parquet"
            )


def test_files_and_topic_are_read_as_one(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("flights")
    cluster.send([event for event in travels.events(flights=150) if event.topic == "flights"])
    archive(cluster, topic, tmp_path / "flights", 20)
    parts, spans = archives({topic: str(tmp_path / "flights")}, {topic: travels.PARTITIONS})
    tp = TopicPartition(topic, 1)
    assert spans[tp] == (0, 20)
    client = {"bootstrap.servers": cluster.servers}

    def read(start: int, end: int) -> list[int]:
        reader = HistoryPart(parts[tp], client, start, end).open(tp)
        found: list[RecordBatch] = []
        while (batch := reader.read()) is not None:
            found.append(batch)
        reader.close()
        return [offset for batch in found for offset in batch.offsets]

    assert read(0, 30) == list(range(30))
    assert read(5, 15) == list(range(5, 15))
    assert read(22, 30) == list(range(22, 30))
    assert ParquetSource(str(tmp_path / "flights")).parts(topic)[tp].size == 20


def test_a_backfill_begins_in_files_and_goes_on_in_kafka(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("flights")
    cluster.send(travels.events(flights=150))
    archive(cluster, topic, tmp_path / "flights", 20)
    expected = cluster.batch_tables()
    cluster.delete_before(topic, 15)  # the archive has what is gone, and a little more
    assert cluster.backfill("filed", files={topic: str(tmp_path / "flights")}).run() is not None
    assert cluster.live_tables("filed") == expected


def test_a_second_backfill_looks_at_files_only_from_its_own_beginning_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic("flights")
    events = travels.events(flights=150)
    cluster.send(events)
    archive(cluster, topic, tmp_path / "flights", 20)
    files = {topic: str(tmp_path / "flights")}
    parts = [TopicPartition(topic, number) for number in range(travels.PARTITIONS)]
    times = {
        tp: [e.time for e in events if (e.topic, e.partition) == ("flights", tp.partition)] for tp in parts
    }

    first = cluster.backfill("twice", until=dict.fromkeys(parts, 10), files=files)
    assert {tp: first.first_times[tp] for tp in parts} == {tp: times[tp][0] for tp in parts}
    assert first.run() is not None
    second = cluster.backfill("twice", until=dict.fromkeys(parts, 25), files=files)
    assert {tp: second.first_times[tp] for tp in parts} == {tp: times[tp][10] for tp in parts}
    assert second.run() is not None
    # Retention goes on. The files do not reach the topic any more, and the group needs none of the lost records.
    cluster.delete_before(topic, 23)
    third = cluster.backfill("twice", files=files)
    assert {tp: third.first_times[tp] for tp in parts} == {tp: times[tp][25] for tp in parts}


def test_files_that_leave_out_records_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("flights")
    cluster.send(travels.events(flights=150))
    archive(cluster, topic, tmp_path / "flights", 20)
    for partition in range(travels.PARTITIONS):
        (tmp_path / "flights" / f"partition={partition}" / "0.parquet").unlink()
    with pytest.raises(ConfigError, match=r"-0 only from offset 10 on, but Kafka keeps it from 0 on"):
        cluster.backfill("headless", files={topic: str(tmp_path / "flights")})
    cluster.delete_before(topic, 22)
    with pytest.raises(ConfigError, match=r"-0 up to offset 20, but Kafka keeps it from 22 on"):
        cluster.backfill("headless", files={topic: str(tmp_path / "flights")})


def test_files_of_an_earlier_topic_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Records behind the end of the topic would be left out, because no worker could go on behind them."""
    other = Cluster(cluster.servers, tmp_path / "other", cluster.spark)
    other.send(travels.events(flights=150))
    archive(other, other.topic("flights"), tmp_path / "flights", 20)
    cluster.send(travels.events(flights=30))
    topic = cluster.topic("flights")
    with pytest.raises(
        ConfigError, match=rf"the files have {topic}-\d up to offset 20, but the topic ends at \d+\. So"
    ):
        cluster.backfill("anew", files={topic: str(tmp_path / "flights")})


def test_a_cut_among_records_that_only_files_have_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("flights")
    events = travels.events(flights=150)
    cluster.send(events)
    archive(cluster, topic, tmp_path / "flights", 20)
    cluster.delete_before(topic, 15)
    files = {topic: str(tmp_path / "flights")}
    said = r"-0 at offset 10, but Kafka does not have this record any more, .* an offset from 15 on"
    with pytest.raises(ConfigError, match=said):
        cluster.backfill("early", until={TopicPartition(topic, 0): 10}, files=files)
    times = [e.time for e in events if (e.topic, e.partition) == ("flights", 0)]
    with pytest.raises(
        ConfigError, match=r"until ends \S+-flights-\d at offset \d+, but Kafka does not have"
    ):
        cluster.backfill("early", until=times[10], files=files)
    cut = cluster.backfill("early", until={TopicPartition(topic, 0): 15}, files=files).survey.ranges
    assert cut[TopicPartition(topic, 0)] == (0, 15)
    with pytest.raises(ConfigError, match=r"files are given for \S+, but a backfill reads only"):
        cluster.backfill("early", files={cluster.topic(travels.OUTPUTS[0]): str(tmp_path / "flights")})


def test_a_second_run_needs_the_files_of_the_interrupted_one(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("flights")
    cluster.send(travels.events(flights=150))
    archive(cluster, topic, tmp_path / "flights", 20)
    cluster.delete_before(topic, 15)
    files = {topic: str(tmp_path / "flights")}
    cluster.interrupted("again", files)
    said = (
        rf"reads {topic}-0 from offset 0 on, but Kafka keeps it from 15 on, and no files have all records between. "
        "Give the same --files as before"
    )
    with pytest.raises(ConfigError, match=said):
        cluster.backfill("again")
    assert cluster.backfill("again", files=files).survey.note is not None
    cluster.delete_before(topic, 22)  # retention goes on, and the files do not reach the topic any more
    with pytest.raises(ConfigError, match="Kafka keeps it from 22 on"):
        cluster.backfill("again", files=files)
