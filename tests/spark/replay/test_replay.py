"""A table or an output computed again, beside the application that runs, and compared with it."""

from __future__ import annotations

import struct
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamapp import BytesSerde, Materialized, StreamsBuilder, Topology
from streamapp.broker import KafkaAdmin
from streamapp.engine.runner_ports import Position
from streamapp.errors import ConfigError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.spark.handover_group import Group
from streamapp.runners.spark.replay import Replay, _row_time
from streamapp.runners.spark.replay_write import TopicWriter
from streamapp.state.row_shape import SESSIONS, VERSIONS, WINDOWS, RowShape

from ..backfill import travels
from ..backfill.cluster import Cluster
from ..backfill.support import read

pytestmark = [pytest.mark.spark, pytest.mark.broker]

YEAR = travels.events(flights=300)


def corrected(cluster: Cluster) -> Topology:
    """The application, but it counts carrier A as B."""
    builder = StreamsBuilder(cluster.config("replayed"))
    given = {"key_serde": travels.TEXT, "value_serde": travels.TEXT}
    flights = builder.stream(cluster.topic("flights"), **given)  # type: ignore[arg-type]
    named = flights.map_values(lambda carrier: carrier.replace("A", "B"))
    counts = named.group_by(lambda tail, carrier: carrier, **given)  # type: ignore[arg-type]
    counts.count(materialized=travels.table("carriers"))
    return builder.build()


def test_what_is_replayed_is_compared_and_written_beside_the_application(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    cluster.send(YEAR[:-50])
    assert cluster.backfill("replayed").run() is not None
    cluster.send(YEAR[-50:])  # the application has not processed these: they are not replayed either
    config = cluster.config("replayed")

    with Replay(cluster.topology(), config, "daily", spark=cluster.spark) as daily:
        found = daily.diff()
        assert found.none
        assert found.equal == len(cluster.live_tables("replayed")["daily"])
        daily.write_parquet(str(tmp_path / "daily"))
        assert cluster.spark.read.parquet(str(tmp_path / "daily")).count() == found.equal
        with pytest.raises(ConfigError, match="daily exists: name a new folder.*_SUCCESS"):
            daily.write_parquet(str(tmp_path / "daily"))
        assert daily.write_topic(cluster.topic("daily-again")) == found.equal
        with pytest.raises(ConfigError, match="exists: name a new one"):
            daily.write_topic(cluster.topic("daily-again"))
    records = read(cluster.servers, cluster.topic("daily-again"))
    rows = cluster.live_tables("replayed")["daily"]
    assert sorted(records) == sorted(
        (row.key.encode() + struct.pack(">q", row.start), struct.pack(">q", row.value), row.timestamp)
        for row in rows
    )

    seen = cluster.topic("seen")
    with Replay(cluster.topology(), config, seen, spark=cluster.spark) as output:
        assert output.diff().none
        assert output.write_topic(cluster.topic("seen-again")) > 0
    assert read(cluster.servers, cluster.topic("seen-again")) == read(cluster.servers, seen)

    with Replay(corrected(cluster), config, "carriers", spark=cluster.spark) as carriers:
        found = carriers.diff()
        assert (found.different, found.only_live, found.only_replayed) == (1, 1, 0)
        assert [example[0] for example in found.examples] == ["A", "B"]

    with (
        Replay(cluster.topology(), config, seen, spark=cluster.spark) as output,
        Replay(cluster.topology(), config, "daily", spark=cluster.spark) as daily,
    ):
        assert cluster.backfill("replayed").run() is not None  # the application goes on
        assert output.diff().none
        assert daily.diff().none

    cluster.send([travels.Event("seen", "stray", "text", YEAR[-1].time)])
    with Replay(cluster.topology(), config, seen, spark=cluster.spark) as output:
        found = output.diff()
        assert (found.only_live, found.examples) == (1, (("stray", YEAR[-1].time, None, "text"),))


def test_a_table_without_timestamps_becomes_a_topic_that_can_be_read(cluster: Cluster) -> None:
    """Records with the timestamp -1 would end each worker that reads them."""
    cluster.send(YEAR)
    builder = StreamsBuilder(cluster.config("plain"))
    source = builder.stream(cluster.topic(YEAR[0].topic), key_serde=BytesSerde(), value_serde=BytesSerde())
    source.group_by_key().count(materialized=Materialized("plain", timestamped=False))
    began = int(time.time() * 1000)
    with Replay(builder.build(), cluster.config("plain"), "plain", spark=cluster.spark) as plain:
        assert plain.write_topic(cluster.topic("plain-again")) > 0
    assert min(at for _, _, at in read(cluster.servers, cluster.topic("plain-again"))) >= began


def test_what_is_under_way_inside_the_application_is_counted(cluster: Cluster) -> None:
    cluster.send(YEAR)
    assert cluster.backfill("under-way").run() is not None
    config, topology = cluster.config("under-way"), cluster.topology()
    with Replay(topology, config, "daily", spark=cluster.spark) as daily:
        assert daily.diff().under_way == 0
    cluster.send([travels.Event("under-way-daily-repartition", "A", "N1", YEAR[-1].time)] * 3)
    with Replay(topology, config, "daily", spark=cluster.spark) as daily:
        assert daily.diff().under_way == 3


def test_an_application_that_never_stands_still_cannot_be_compared(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.send(YEAR)
    assert cluster.backfill("moving").run() is not None
    read_settled, commits = Group.read_settled, count()

    def read_moving(group: Group, partitions: Any) -> dict[TopicPartition, Position]:
        found = read_settled(group, partitions)
        tp, entry = next(iter(found.items()))
        return found | {tp: entry._replace(metadata=f"commit {next(commits)}")}

    monkeypatch.setattr(Group, "read_settled", read_moving)
    monkeypatch.setattr("streamapp.runners.spark.replay.ATTEMPTS", 2)
    with (
        Replay(cluster.topology(), cluster.config("moving"), "daily", spark=cluster.spark) as daily,
        pytest.raises(StreamsError, match="moving has committed again .* streamapp pause"),
    ):
        daily.diff()


def test_what_the_topology_does_not_have_is_named(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="there is no table or output 'nothing'; there are.*carriers"):
        Replay(cluster.topology(), cluster.config("replayed"), "nothing", spark=cluster.spark)


def test_a_store_that_an_operator_has_for_itself_is_no_table(cluster: Cluster) -> None:
    topology, config = cluster.topology(), cluster.config("replayed")
    stores = [spec for sub in topology.plan(config).subtopologies for spec in sub.stores if spec.internal]
    assert {spec.kind.persistent_name for spec in stores} == {"window", "list", "suppress_buffer"}
    for spec in stores:
        with pytest.raises(ConfigError, match=f"there is no table or output '{spec.name}'"):
            Replay(topology, config, spec.name, spark=cluster.spark)


def test_a_repartition_topic_is_no_output(cluster: Cluster) -> None:
    topology, config = cluster.topology(), cluster.config("replayed")
    internal = next(
        topic.name for topic in topology.plan(config).internal_topics if topic.name.endswith("repartition")
    )
    with pytest.raises(ConfigError, match="there is no table or output") as refused:
        Replay(topology, config, internal, spark=cluster.spark)
    assert "repartition" not in str(refused.value).partition("there are")[2]


@pytest.mark.parametrize(("shape", "time"), [(VERSIONS, 10), (WINDOWS, 20), (SESSIONS, 20)])
def test_the_time_of_a_row_without_a_timestamp(spark: SparkSession, shape: RowShape, time: int) -> None:
    spec: Any = SimpleNamespace(kind=SimpleNamespace(shape=shape))
    rows = spark.createDataFrame([(None, 10, 20)], "timestamp bigint, start bigint, end bigint")
    assert rows.select(_row_time(spec)).collect()[0][0] == time


def test_an_application_that_has_not_run_has_no_output_to_compare_with(cluster: Cluster) -> None:
    builder = StreamsBuilder(cluster.config("unborn"))
    given = {"key_serde": travels.TEXT, "value_serde": travels.TEXT}
    builder.stream(cluster.topic("flights"), **given).to(cluster.topic("unborn"), **given)  # type: ignore[arg-type]
    with (
        Replay(
            builder.build(), cluster.config("unborn"), cluster.topic("unborn"), spark=cluster.spark
        ) as output,
        pytest.raises(ConfigError, match="there is no topic .*unborn to compare with"),
    ):
        output.diff()


def test_a_place_that_exists_is_refused_before_anything_is_computed(cluster: Cluster, tmp_path: Path) -> None:
    with Replay(cluster.topology(), cluster.config("early"), "daily", spark=cluster.spark) as daily:
        with pytest.raises(ConfigError, match="exists: name a new folder"):
            daily.write_parquet(str(tmp_path))
        with pytest.raises(ConfigError, match="exists: name a new one, or delete it first"):
            daily.write_topic(cluster.topic("seen"))
        assert daily._result is None


def test_a_task_that_runs_again_after_its_commit_writes_nothing(cluster: Cluster) -> None:
    """An executor may end between the commit of a task and its answer to the driver."""
    topic = cluster.topic("again")
    KafkaAdmin(cluster.settings).ensure_topics([(topic, 2, {})])
    rows = pa.RecordBatch.from_pylist(
        [{"key": b"k", "value": b"%d" % n, "partition": 1, "timestamp": n, "headers": None} for n in (5, 6)]
    )
    writer = TopicWriter({"bootstrap.servers": cluster.servers}, topic)
    assert [writer.write(1, iter([rows])) for _ in range(2)] == [2, 2]
    assert [value for _, value, _ in read(cluster.servers, topic)] == [b"5", b"6"]


def test_a_replay_names_inputs_whose_first_records_are_gone(cluster: Cluster) -> None:
    """The application has their results, so `diff` shows differences that are no errors."""
    cluster.send(YEAR)
    topic, config = cluster.topic("flights"), cluster.config("begun")
    cluster.delete_before(topic, 7)
    expected = {TopicPartition(topic, number): 7 for number in range(travels.PARTITIONS)}
    with Replay(cluster.topology(), config, "daily", spark=cluster.spark) as daily:
        assert daily.late == expected
    with Replay(cluster.topology(), config, "daily", since=1, spark=cluster.spark) as daily:
        assert daily.late == {}
