"""``streamapp sql``: what a user types, and what is printed."""

from __future__ import annotations

import csv
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.cli import main
from streamapp.records import TopicPartition
from streamapp.runners.spark.backfill import Backfill

from . import shop

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Ask = Callable[..., Result]

DAY = 86_400_000
JANUARY = 15_706 * DAY  # 2013
ORDERS = [("tea", 300, 0), ("tea", 500, 1), ("rum", 900, 1), ("tea", 100, DAY)]
"""Product, cents, time since the first of January."""


@pytest.fixture(scope="module")
def sold(kafka: LocalKafka, spark: SparkSession) -> Iterator[None]:
    """The application has tables in Kafka."""
    name = f"shop-{uuid.uuid4().hex[:6]}"
    topic = TopicSpec(f"{name}-orders", 1, {"retention.ms": "-1"})
    KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure_topics([topic])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for product, cents, at in ORDERS:
        producer.produce(topic.name, cents.to_bytes(8, "big"), product, timestamp=JANUARY + at)
    producer.flush()
    with pytest.MonkeyPatch.context() as patch:
        app = shop.application(name, kafka.bootstrap_servers)
        patch.setattr(shop, "app", app, raising=False)
        assert Backfill(app.streams.topology, app.config, spark=spark).run() is not None
        yield


@pytest.fixture
def ask(sold: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Gives the command its arguments behind the application; it takes the session of the tests."""

    @contextmanager
    def running(*_: object, **options: object) -> Iterator[SparkSession]:
        yield spark

    # The name is the command's, too, so an import statement would find the command.
    monkeypatch.setattr(import_module("streamapp.cli.sql"), "session", running)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(main, ["sql", shop.__name__, *arguments])


def test_without_a_query_the_views_are_shown_with_their_columns(ask: Ask) -> None:
    shown = ask()
    assert shown.exit_code == 0, shown.output
    rows = [line.split("│") for line in shown.output.splitlines() if line.startswith("│")]
    found = {row[1].strip(): (row[2].strip(), row[3].strip()) for row in rows}
    assert found["sales"][0] == "sales"
    assert found["orders_by_day"][0] == "orders-by-day"
    assert "value struct<orders:bigint,cents:bigint>" in found["sales"][1]
    assert "window_start timestamp" in found["orders_by_day"][1]


@pytest.mark.parametrize("compute", [(), ("--compute",)], ids=["live", "computed"])
def test_tables_are_asked_live_and_computed(ask: Ask, compute: tuple[str, ...]) -> None:
    query = "select key, value.cents / value.orders as each from sales order by key"
    shown = ask(query, "--format", "json", *compute)
    assert shown.exit_code == 0, shown.output
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert rows == [{"key": "rum", "each": 900.0}, {"key": "tea", "each": 300.0}]


def test_computed_tables_that_lack_deleted_records_are_told(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select key, value.cents from sales order by key"
    assert ask(query, "--compute").stderr == ""
    found = {TopicPartition("orders", 0): 1_811}
    monkeypatch.setattr("streamapp.runners.spark.late_inputs.late_inputs", lambda plan, names: found)
    shown = ask(query, "--compute")
    assert shown.stderr == "Warning: orders-0 begins at offset 1,811. The tables lack earlier records.\n"
    assert ask(query).stderr == ""


def test_tables_are_joined_and_printed_as_csv(ask: Ask) -> None:
    shown = ask(
        "select s.key, s.value, d.value as orders, date(d.window_start) as day from sales s "
        "join orders_by_day d on s.key = d.key order by day, s.key",
        *("--format", "csv"),
    )
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == [
        "key,value,orders,day",
        'rum,"{""orders"": 1, ""cents"": 900}",1,2013-01-01',
        'tea,"{""orders"": 3, ""cents"": 900}",2,2013-01-01',
        'tea,"{""orders"": 3, ""cents"": 900}",1,2013-01-02',
    ]


def test_a_table_is_printed_for_people(ask: Ask) -> None:
    shown = ask("select key, value from sales order by key")
    rows = [[cell.strip() for cell in line.split("│")] for line in shown.output.splitlines()]
    assert ["", "rum", '{"orders": 1, "cents": 900}', ""] in rows


def test_a_query_of_a_table_that_is_not_there_names_those_that_are(ask: Ask) -> None:
    shown = ask("select * from sale")
    assert shown.exit_code == 1
    assert "TABLE_OR_VIEW_NOT_FOUND" in shown.output
    assert "The tables are: " in shown.output
    assert "orders_by_day" in shown.output.splitlines()[-1]
    assert len(shown.output.splitlines()) < 6


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select key frm sales", "PARSE_SYNTAX_ERROR"),
        ("select 1 / (value.orders - 1) from sales", "DIVIDE_BY_ZERO"),
    ],
)
def test_what_is_wrong_with_a_query_is_shown_without_stack(ask: Ask, query: str, message: str) -> None:
    shown = ask(query)
    assert shown.exit_code == 1
    assert message in shown.output
    assert query in shown.output
    assert "org.apache" not in shown.output


def test_texts_with_brackets_are_shown_as_they_are(ask: Ask) -> None:
    shown = ask("select '[red]a' as `[b]`, '[/x]' as y")
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in shown.output.splitlines()]
    assert ["[red]a", "[/x]"] in rows
    assert "[b]" in shown.output


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine is in another time zone than the session."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("form", ["csv", "table"])
def test_times_are_those_of_the_session(ask: Ask, far_away: None, form: str) -> None:
    shown = ask(
        "select named_struct('a', array(window_start)) as inside, map(window_start, 1) as by_time, window_start, "
        "cast(window_start as string) as said from orders_by_day where key = 'rum'",
        *("--format", form),
    )
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("2013-01-01 00:00:00") == 4
    assert "2012" not in shown.stdout


def test_objects_have_all_columns(ask: Ask) -> None:
    shown = ask(
        "select sum(value) as total, count(*) as n from orders_by_day where key = 'no'", "--format", "json"
    )
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [{"total": None, "n": 0}]


def test_two_columns_of_one_name_are_no_object(ask: Ask) -> None:
    query = "select 1 as a, 2 as a, 3 as b"
    refused = ask(query, "--format", "json")
    assert refused.exit_code == 1
    assert "several columns have the name a, so" in refused.output
    assert ask(query, "--format", "csv").stdout.splitlines() == ["a,a,b", "1,2,3"]


def test_bytes_and_odd_keys_are_text(ask: Ask) -> None:
    shown = ask(
        "select cast('abc' as binary) as b, map(named_struct('x', 1.5), cast('abc' as binary)) as m",
        *("--format", "csv"),
    )
    assert shown.exit_code == 0, shown.output
    (row,) = csv.reader(shown.stdout.splitlines()[1:])
    assert row[0] == "YWJj"
    assert json.loads(row[1]) == {'{"x": "1.5"}': "YWJj"}


def test_null_and_an_empty_text_differ_in_csv(ask: Ask) -> None:
    """Both were an empty cell."""
    shown = ask("select null as a, '' as b, 'x' as c, 'a \"b\"' as d, null as e", "--format", "csv")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[1:] == [',"",x,"a ""b""",']


def test_the_driver_does_not_collect_large_results(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's limit for all rows of a result in the driver is 1 GB."""
    monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.collect", None)
    query = "select key, value from orders_by_day order by key desc, window_start"
    shown = ask(query, "--format", "csv")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == ["key,value", "tea,2", "tea,1", "rum,1"]
    shown = ask(query, "--format", "json")
    assert shown.exit_code == 0, shown.output
    assert [json.loads(line)["value"] for line in shown.stdout.splitlines()] == [2, 1, 1]
