"""The accounts of a source and a topic, compared on Spark: the same numbers and the same gap as on one machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka
from streamapp.cli import main
from streamapp.operations import spark_reconciliation
from streamapp.records import TopicPartition

from ..processes import until
from ..producer.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def topics(kafka: LocalKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topics:
    @contextmanager
    def session(name: str, master: str, conf: dict[str, str]) -> Iterator[SparkSession]:
        yield spark  # the session of all tests stays

    monkeypatch.setattr("streamapp.cli.reconcile.session", session)
    monkeypatch.setenv("STREAMAPP_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    return Topics(kafka.bootstrap_servers)


def send(topics: Topics, topic: str, names: list[str], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap, "enable.idempotence": True})
    for name in names:
        producer.produce(topic, b"{}", name or None, **more)
    assert producer.flush(60) == 0


def moment(ms: int) -> str:
    return f"1970-01-01T00:00:0{ms / 1_000:.3f}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reconcile", *arguments])


def both(*arguments: str) -> str:
    """The report and the gap of both ways, which have to be equal; the gap is returned."""
    here = run(*arguments, "--gap", "gap-here")
    spark = run(*arguments, "--spark", "--gap", "gap-spark")
    assert here.exit_code == spark.exit_code == 1, spark.exception
    # The third line has the time of the report.
    assert here.output.splitlines()[3:] == spark.output.splitlines()[3:]
    gap = Path("gap-spark").read_text()
    assert gap == Path("gap-here").read_text()
    return gap


def test_spark_finds_what_one_machine_finds(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_reconciliation, "_SLICE", 100)  # several tasks for each partition
    topic = topics.create()
    names = [f"o{number}" for number in range(2_000)]
    missing, doubled = names[100:110], names[200:205]
    send(topics, topic, [*(name for name in names if name not in missing), *doubled, "unknown", ""])
    aborted = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, b"{}", missing[0])
    aborted.flush(30)
    aborted.abort_transaction(30)
    # Brokers write the markers of the end in the background, and a report names the ends of the logs.
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=topics.bootstrap))
    logs = [TopicPartition(topic, number) for number in range(admin.partition_counts([topic])[topic])]
    until(
        lambda: admin.log_end_offsets(logs) == admin.log_end_offsets(logs, read_committed=True),
        60,
        lambda: topic,
    )
    random.Random(1).shuffle(names)
    Path("ids").write_text("".join(f"{name}\n" for name in names))
    assert both(topic, "--source", "ids").splitlines() == sorted(
        [*(f"{name}\t1\t0" for name in missing), *(f"{name}\t1\t2" for name in doubled), "unknown\t0\t1"],
        key=str.encode,
    )


def test_each_slice_of_the_topic_is_a_task_of_its_own(spark: SparkSession) -> None:
    frame = spark_reconciliation._one_task_each(spark, 40)
    number = spark_partition_id().alias("number")
    assert [row["number"] for row in frame.select("id", number).orderBy("id").collect()] == [*range(40)]


def test_counts_by_window_in_a_time_and_ids_in_values(topics: Topics) -> None:
    topic = topics.create()
    for at in (1_000, 2_500, 9_000):
        send(topics, topic, ["a", "a", "b"], timestamp=at)
    Path("counts").write_text("0\ta\t3\n0\tb\t1\n2000\ta\t2\n8000\ta\t1\n")
    arguments = ("--window", "2000", "--from", "0", "--to", moment(6000))
    assert both(topic, "--source", "counts", *arguments) == "0\ta\t3\t2\n2000\tb\t0\t1\n"
    producer = Producer({"bootstrap.servers": topics.bootstrap, "enable.idempotence": True})
    producer.produce(topic, json.dumps({"order": 7}), headers=[("id", b"h7")])
    producer.flush()
    Path("ids").write_text("7\n8\n")
    assert both(topic, "--source", "ids", "--id", "value:order") == "8\t1\t0\n"
    Path("ids").write_text("h7\nh8\n")
    assert both(topic, "--source", "ids", "--id", "header:id") == "h8\t1\t0\n"


def test_a_folder_is_a_source_and_equal_accounts_exit_with_0(topics: Topics) -> None:
    topic = topics.create()
    send(topics, topic, ["a", "b", "c"])
    Path("ids").mkdir()
    Path("ids/one").write_text("a\nb\n")
    Path("ids/two").write_text('{"id": "c", "key": "c"}\n')
    result = run(topic, "--source", "ids", "--spark", "--report", "report.md")
    assert result.exit_code == 0, result.output
    assert "| in the source | 3 |" in Path("report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--source", "ids", "--window", "1000"), "'a' is not a window's start in ms, an id and a count"),
        (("--source", "ids", "--republish", "1"), "--republish does not go with --spark"),
        (("--source", "ids", "--id", "body"), "an id is key"),
    ],
)
def test_a_wrong_source_is_refused_with_its_line(
    topics: Topics, arguments: tuple[str, ...], message: str
) -> None:
    topic = topics.create()
    Path("ids").write_text("a\n")
    result = run(topic, *arguments, "--spark")
    assert result.exit_code == 1
    assert message in result.output


def test_a_topic_that_is_not_there_is_named(topics: Topics) -> None:
    Path("ids").write_text("a\n")
    assert "there is no topic nowhere" in run("nowhere", "--source", "ids", "--spark").output


def test_a_source_that_is_not_there_is_named(topics: Topics) -> None:
    topic = topics.create()
    refused = run(topic, "--source", "nowhere", "--spark")
    assert refused.exit_code == 1
    assert "--source: Spark cannot read nowhere" in refused.output
    refused = run(topic, "--source", "nosuch://bucket/ids", "--spark")
    assert refused.exit_code == 1
    assert "--source: Spark cannot read nosuch://bucket/ids" in refused.output
    assert "\tat org.apache" not in refused.output
