"""The outbox: in real databases, with relay, database and brokers killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from streamapp import ConfigError, SerializationError, StringSerde
from streamapp._base import postgres
from streamapp.cli import main
from streamapp.consumer import PostgresOffsets
from streamapp.producer import Outbox, OutboxRelay, PostgresOutbox, SqliteOutbox, databases, session
from streamapp.producer.databases import OutboxRow, as_ranges, of_ranges
from streamapp.producer.session import Bookmark
from streamapp.records import OutputRecord

from ..brokers import LightKafka
from ..processes import Worker, start_module, until
from .postgres import PostgreSQL
from .relaying import database_at
from .topics import Topics

COUNT = 300


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    server = PostgreSQL()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty outbox."""
    if request.param == "sqlite":
        address = str(tmp_path / "orders.db")
    else:
        address = request.getfixturevalue("server").conninfo
        with psycopg.connect(address) as connection:
            connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity, orders")
    database = database_at(address)
    database.create()
    database.create()  # as every start of an application may do
    database.close()
    return address


def connect(address: str) -> Any:
    return psycopg.connect(address) if "host=" in address else sqlite3.connect(address, timeout=30)


def add(address: str, topic: str, numbers: range) -> None:
    outbox = Outbox(database_at(address), key_serde=StringSerde())
    with closing(connect(address)) as connection:
        for number in numbers:
            outbox.add(connection, topic, key="k", value=b"%d" % number)
            connection.commit()


@contextmanager
def ending(enough: threading.Event, writer: threading.Thread) -> Iterator[None]:
    """However the block ends, the writer does too."""
    try:
        yield
    finally:
        enough.set()
        writer.join()


def relay(bootstrap: str, address: str, failpoint: str = "", log: Path = Path(os.devnull)) -> Worker:
    return start_module("tests.producer.relaying", bootstrap, address, log=log, failpoint=failpoint)


def relay_all(bootstrap: str, address: str) -> list[int]:
    with TemporaryDirectory() as folder:
        process = relay(bootstrap, address, log=Path(folder) / "log")
        assert process.wait(120) == 0, process.text()
        return [int(each) for each in process.text().splitlines()[-1].split()]


def test_a_record_is_sent_if_its_transaction_commits(topics: Topics, address: str) -> None:
    topic = topics.create(1)
    outbox = Outbox(database_at(address), key_serde=StringSerde())
    with closing(connect(address)) as connection:
        connection.execute("CREATE TABLE orders (id text)")
        connection.execute("INSERT INTO orders VALUES ('o1')")
        outbox.add(connection, topic, key="o1", value=b"paid", headers=(("trace", b"1"),))
        connection.commit()
        connection.execute("INSERT INTO orders VALUES ('o2')")
        outbox.add(connection, topic, key="o2", value=b"paid")
        connection.rollback()
        outbox.add(connection, topic, key="o3", value=None)
        connection.commit()
    assert relay_all(topics.bootstrap, address) == [2, 0, 0, 0]
    assert topics.read(topic) == {0: [(b"o1", b"paid"), (b"o3", None)]}


STEPS = ("producer-sent", "producer-bookmarked", "producer-committed", "outbox-deleted")


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_relay_loses_and_doubles_nothing(topics: Topics, address: str, step: str) -> None:
    topic = topics.create(1)
    add(address, topic, range(COUNT))
    assert relay(topics.bootstrap, address, f"{step}:kill").wait(120) == -signal.SIGKILL
    add(address, topic, range(COUNT, COUNT + 50))
    relayed, found, refused, _ = relay_all(topics.bootstrap, address)
    assert topics.values(topic) == [b"%d" % number for number in range(COUNT + 50)]
    committed = step in ("producer-committed", "outbox-deleted")
    assert (relayed, found, refused) == (
        50 if committed else COUNT + 50,
        COUNT if step == "producer-committed" else 0,
        0,
    )


def test_a_small_id_that_commits_late_is_neither_lost_nor_does_it_double_others(
    topics: Topics, server: PostgreSQL
) -> None:
    topic = topics.create(1)
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity")
    database = PostgresOutbox(server.conninfo)
    database.create()
    outbox = Outbox(database)
    with psycopg.connect(server.conninfo) as late:
        outbox.add(late, topic, value=b"late")
        add(server.conninfo, topic, range(COUNT))
        killed = relay(topics.bootstrap, server.conninfo, "producer-committed:kill")
        assert killed.wait(120) == -signal.SIGKILL
        late.commit()
    assert relay_all(topics.bootstrap, server.conninfo) == [1, COUNT, 0, 0]
    assert topics.values(topic) == [*(b"%d" % number for number in range(COUNT)), b"late"]


def test_database_and_brokers_are_killed_while_rows_are_written_and_relayed(
    server: PostgreSQL, tmp_path: Path
) -> None:
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity")
    database = PostgresOutbox(server.conninfo)
    database.create()
    with LightKafka(tmp_path / "kafka", brokers=1, port=0) as mortal:
        topics = Topics(mortal.bootstrap_servers)
        topic = topics.create(1)
        committed: list[int] = []
        enough = threading.Event()

        def write() -> None:
            number = 0
            while not enough.is_set():
                try:
                    add(server.conninfo, topic, range(number, number + 1))
                    committed.append(number)
                except psycopg.Error:
                    # Nobody knows if this number was committed: the next is another one.
                    enough.wait(0.1)
                number += 1

        writer = threading.Thread(target=write)
        with (
            OutboxRelay(
                "orders", PostgresOutbox(server.conninfo), bootstrap_servers=topics.bootstrap
            ) as running,
            ending(enough, writer),
        ):
            writer.start()
            for kill in ("database", "broker", "database"):
                before = running.metrics.relayed
                until(
                    lambda before=before: running.metrics.relayed > before + 50, 300, lambda: running.metrics
                )  # type: ignore[misc]
                if kill == "database":
                    server.kill()
                    server.start()
                else:
                    mortal.kill_broker(1)
                    mortal.start_broker(1)
            before = running.metrics.relayed
            until(lambda: running.metrics.relayed > before + 50, 300, lambda: running.metrics)
            enough.set()
            writer.join()
            # The connection of `database` has not survived.
            waiting = PostgresOutbox(server.conninfo)
            until(lambda: not waiting.count(), 300, lambda: running.metrics)
            assert running.metrics.failures
        values = [int(value or b"") for value in topics.values(topic)]
    assert values == sorted(set(values)), "order, and none twice"
    assert set(committed) <= set(values)


def test_a_row_that_brokers_refuse_stays_with_the_reason(topics: Topics, address: str) -> None:
    topic = topics.create(1, max_message_bytes="2000")
    outbox = Outbox(database_at(address))
    with closing(connect(address)) as connection:
        # Random, as lz4 would make it small.
        for value in (b"a", os.urandom(5_000), b"b"):
            outbox.add(connection, topic, value=value)
        connection.commit()
        assert relay_all(topics.bootstrap, address)[:3] == [2, 0, 1]
        rows = connection.execute("SELECT id, refused FROM streamapp_outbox").fetchall()
    assert [row[0] for row in rows] == [2]
    assert "MSG_SIZE_TOO_LARGE" in rows[0][1] or "too large" in rows[0][1].lower()
    assert topics.values(topic) == [b"a", b"b"]


def test_rows_of_a_topic_that_is_missing_are_refused_together(
    topics: Topics, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of such a topic held up all rows for 4 s."""
    monkeypatch.setattr(session, "_UNKNOWN_SECONDS", 1.0)
    topic = topics.create(1)
    for number in range(20):
        add(address, f"{topic}-missing", range(1))
        add(address, topic, range(number, number + 1))
    database = database_at(address)
    with OutboxRelay("orders", database_at(address), bootstrap_servers=topics.bootstrap) as running:
        until(lambda: not database.count(), 60, lambda: running.metrics)
    assert running.metrics.refused == 20
    with closing(connect(address)) as connection:
        ((reason,),) = connection.execute("SELECT DISTINCT refused FROM streamapp_outbox").fetchall()
    assert reason.startswith(f"a record for {topic}-missing: ")
    assert "Create the topic: streamapp topic create" in reason
    assert running.metrics.failures <= 3
    assert topics.values(topic) == [b"%d" % number for number in range(20)]
    database.close()


def test_rows_that_get_the_ids_of_sent_rows_are_sent(topics: Topics, address: str) -> None:
    """After the restore of a backup, ids begin at an earlier number. The relay deleted the rows and did not send them."""
    topic = topics.create(1)
    add(address, topic, range(3))
    assert relay_all(topics.bootstrap, address)[:2] == [3, 0]
    with closing(connect(address)) as connection:
        if "host=" in address:
            connection.execute("ALTER TABLE streamapp_outbox ALTER id RESTART WITH 2")
        else:
            connection.execute("UPDATE sqlite_sequence SET seq = 1")
        connection.commit()
    add(address, topic, range(10, 13))
    assert relay_all(topics.bootstrap, address)[:2] == [3, 0]
    assert topics.values(topic) == [b"0", b"1", b"2", b"10", b"11", b"12"]


def test_a_note_of_an_earlier_release_is_known(topics: Topics, address: str) -> None:
    topic = topics.create(1)
    add(address, topic, range(3))
    database = database_at(address)
    name = f"orders-outbox-{database.identity()}"
    client = {"bootstrap.servers": topics.bootstrap}
    with closing(Consumer({**client, "group.id": name})) as group:
        group.commit(offsets=[TopicPartition(topic, 0, 2, metadata="1-2")], asynchronous=False)
    database.close()
    assert relay_all(topics.bootstrap, address)[:2] == [1, 2]
    assert topics.values(topic) == [b"2"]


def test_an_earlier_release_reads_the_notes_of_this_one() -> None:
    """Its `of_ranges` was the same, and read the whole note. A note with other words would have ended the relay."""
    database = SqliteOutbox(":memory:")
    database.create()
    rows = [OutboxRow(id, OutputRecord("orders", b"k", b"v", id, (), None)) for id in (1, 2, 3, 7)]
    sent: list[Bookmark] = []

    class Session:
        def send(self, records: Any, mark: Bookmark, seconds: float) -> None:
            sent.append(mark)

    running: Any = OutboxRelay("orders", database)
    assert running._send(Session(), rows)
    assert running._send(Session(), rows[3:])
    assert [of_ranges(mark.note) for mark in sent] == [[1, 2, 3, 7], [7]]
    assert len({mark.note.rpartition(",")[2] for mark in sent}) == 2
    database.close()


def test_large_rows_are_read_a_few_at_a_time(address: str) -> None:
    """A relay held a thousand rows in memory, however large they were."""
    outbox, database = Outbox(database_at(address)), database_at(address)
    with closing(connect(address)) as connection:
        for size in (20 << 20, 10 << 20, 5 << 20, 2 << 20, 1):
            outbox.add(connection, "orders", value=bytes(size))
        connection.commit()
    for expected in ([1], [2, 3], [4, 5], []):
        assert [row.id for row in database.first(1_000)] == expected
        database.delete(expected)
    database.close()


def test_several_instances_create_the_tables_at_once(server: PostgreSQL) -> None:
    """PostgreSQL refused some of them, although the statements say IF NOT EXISTS."""
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity")
    barrier = threading.Barrier(8)

    def create() -> str:
        with closing(PostgresOutbox(server.conninfo)) as database:
            barrier.wait()
            database.create()
            return database.identity()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: create(), range(8)))) == 1


def test_instances_that_create_the_tables_at_once_write_one_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookmarks have the smallest identity in their names, so a second, smaller one doubled rows."""
    path, made = tmp_path / "orders.db", uuid.uuid4
    SqliteOutbox(path).create()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM streamapp_outbox_identity")
        connection.commit()

    def beside() -> uuid.UUID:
        monkeypatch.setattr(databases.uuid, "uuid4", made)
        SqliteOutbox(path).create()
        return made()

    monkeypatch.setattr(databases.uuid, "uuid4", beside)
    SqliteOutbox(path).create()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM streamapp_outbox_identity").fetchone() == (1,)


def test_a_relay_says_that_its_database_stands_still(
    topics: Topics, server: PostgreSQL, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The relay waited without a word, because the kernel of a frozen server acknowledges all packets."""
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 1)
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", 2)
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity")
    address = f"{server.conninfo} connect_timeout=2"
    database_at(address).create()
    topic = topics.create(1)
    with OutboxRelay("orders", database_at(address), bootstrap_servers=topics.bootstrap) as relay:
        add(address, topic, range(10))
        until(lambda: relay.metrics.relayed == 10, 60, lambda: relay.metrics)
        server.freeze()
        try:
            until(lambda: relay.metrics.failures >= 2, 60, lambda: relay.metrics)
            assert relay.metrics.stalled_seconds > 3
        finally:
            server.thaw()
        add(address, topic, range(10, 20))
        until(lambda: relay.metrics.relayed == 20, 60, lambda: relay.metrics)
        assert relay.metrics.stalled_seconds < 60
    assert "has answered neither a statement for 1 s nor a new connection for 2 s" in caplog.text
    assert "relay orders works again, after" in caplog.text
    assert topics.values(topic) == [b"%d" % number for number in range(20)]


def test_a_statement_that_waits_for_a_lock_goes_on(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 1)
    with closing(PostgresOutbox(server.conninfo)) as database, psycopg.connect(server.conninfo) as other:
        database.create()
        other.execute("LOCK TABLE streamapp_outbox")
        with ThreadPoolExecutor(1) as pool:
            count = pool.submit(database.count)
            until(lambda: "waits for a lock" in caplog.text, 60, lambda: caplog.text)
            assert not count.done()
            other.rollback()
            assert count.result(60) == 0


def test_several_consumers_create_the_table_of_their_offsets_at_once(server: PostgreSQL) -> None:
    """PostgreSQL refused some of them, although the statement says IF NOT EXISTS."""
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_offsets")
    barrier = threading.Barrier(8)

    def create() -> None:
        with closing(PostgresOffsets(server.conninfo)) as offsets:
            offsets.connection()
            barrier.wait()
            offsets.create()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: create(), range(8)))


def test_a_connection_notices_that_the_other_machine_is_gone(server: PostgreSQL) -> None:
    """A relay waited for 15 minutes for a server that had vanished, and a server kept the lock of a vanished relay for
    2 hours."""
    with closing(PostgresOutbox(f"{server.conninfo} keepalives_idle=7 application_name=mine")) as database:
        database.create()
        found = dict(
            database._run("SELECT name, setting FROM pg_settings WHERE starts_with(name, 'tcp_keepalives')")
        )
        assert found == {
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "4",
        }
        ours = database._connection.info.get_parameters()
        assert (ours["tcp_user_timeout"], ours["keepalives_idle"]) == ("30000", "7")


NO_TEXT = b"\xff"
"""Bytes of a text that are not UTF-8, which another program may have written."""


@pytest.mark.parametrize(
    ("column", "content", "why"),
    [
        ("topic", b"bytes", "its topic is bytes"),
        ("topic", NO_TEXT, "its topic is bytes"),
        ("key", "text", "its key is str"),
        ("value", 5, "its value is int"),
        ("timestamp_ms", "now", "its timestamp_ms is str"),
        ("headers", b"\xc1", "its headers are not those that Outbox writes"),
    ],
)
def test_a_row_that_is_no_record_stays_with_the_reason(
    topics: Topics, tmp_path: Path, column: str, content: Any, why: str
) -> None:
    """The first such row ended the relay, and a number became as many zero bytes."""
    topic, address = topics.create(1), str(tmp_path / "outbox.db")
    database_at(address).create()
    add(address, topic, range(3))
    with closing(connect(address)) as connection:
        value = "CAST(? AS TEXT)" if content is NO_TEXT else "?"
        connection.execute(f"UPDATE streamapp_outbox SET {column} = {value} WHERE id = 2", (content,))
        connection.commit()
        assert relay_all(topics.bootstrap, address)[:3] == [2, 0, 1]
        ((row, reason),) = connection.execute("SELECT id, refused FROM streamapp_outbox").fetchall()
    assert row == 2
    assert why in reason
    assert topics.values(topic) == [b"0", b"2"]


def test_a_second_relay_waits_for_the_first(topics: Topics, server: PostgreSQL) -> None:
    with psycopg.connect(server.conninfo) as connection:
        connection.execute("DROP TABLE IF EXISTS streamapp_outbox, streamapp_outbox_identity")
    database = PostgresOutbox(server.conninfo)
    database.create()
    topic = topics.create(1)
    with OutboxRelay("orders", PostgresOutbox(server.conninfo), bootstrap_servers=topics.bootstrap) as first:
        add(server.conninfo, topic, range(1))
        until(lambda: first.metrics.relayed == 1, 60, lambda: first.metrics)
        with OutboxRelay(
            "orders", PostgresOutbox(server.conninfo), bootstrap_servers=topics.bootstrap
        ) as second:
            add(server.conninfo, topic, range(1, 100))
            until(lambda: first.metrics.relayed == 100, 60, lambda: first.metrics)
            first.stop()
            add(server.conninfo, topic, range(100, 200))
            until(lambda: second.metrics.relayed == 100, 60, lambda: second.metrics)
    assert (first.metrics.failures, second.metrics.failures) == (0, 0)
    assert topics.values(topic) == [b"%d" % number for number in range(200)]


def test_what_cannot_be_right_is_refused_early() -> None:
    with pytest.raises(ConfigError, match="plain name"):
        SqliteOutbox("orders.db", table="orders; DROP TABLE orders")
    outbox = Outbox(SqliteOutbox("orders.db"), key_serde=StringSerde())
    with pytest.raises(SerializationError):
        outbox.statement("orders", key=5)  # type: ignore[arg-type]
    assert not Path("orders.db").exists()


@pytest.mark.parametrize(
    "address",
    [
        "postgres//ada:s3cret@host/orders",
        "postgresql://ada:s3 cret@host/orders",
        "postgresql+asyncpg://ada:s3cret@host/orders",
        "host=db user=ada password=s3cret",
        "password = s3cret dbname=orders",
    ],
)
def test_an_address_that_nobody_can_read_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str
) -> None:
    monkeypatch.setenv("STREAMAPP_OUTBOX", address)
    monkeypatch.chdir(tmp_path)
    for command in (["create"], ["relay", "orders"]):
        result = CliRunner().invoke(main, ["outbox", *command])
        assert result.exit_code == 1
        assert "postgresql://" in result.output
        assert "s3" not in result.output
    assert not [*tmp_path.iterdir()]


def test_a_file_may_hold_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a process is easier to read than a file with permissions."""
    database, secret = tmp_path / "orders.db", tmp_path / "address"
    secret.write_text(f"{database}\n")
    monkeypatch.delenv("STREAMAPP_OUTBOX", raising=False)
    monkeypatch.setenv("STREAMAPP_OUTBOX_FILE", str(secret))
    result = CliRunner().invoke(main, ["outbox", "create"])
    assert (result.exit_code, result.output) == (0, "streamapp_outbox is there\n")
    assert SqliteOutbox(database).count() == 0

    monkeypatch.setenv("STREAMAPP_OUTBOX", str(database))
    result = CliRunner().invoke(main, ["outbox", "create"])
    assert result.exit_code == 1
    assert "STREAMAPP_OUTBOX and STREAMAPP_OUTBOX_FILE are both set" in result.output

    monkeypatch.delenv("STREAMAPP_OUTBOX")
    secret.write_text("host=db password=s3cret")
    result = CliRunner().invoke(main, ["outbox", "create"])
    assert result.exit_code == 1
    assert "postgresql://" in result.output
    assert "s3cret" not in result.output


def test_the_commands(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    address = str(tmp_path / "orders.db")
    environment = {**os.environ, "STREAMAPP_OUTBOX": address, "STREAMAPP_BOOTSTRAP_SERVERS": topics.bootstrap}
    command = [sys.executable, "-c", "from streamapp.cli import main; main()", "outbox"]
    subprocess.run([*command, "create"], env=environment, check=True)
    add(address, topic, range(COUNT))
    relaying = subprocess.Popen(
        [*command, "relay", "orders"], env=environment, stderr=subprocess.PIPE, text=True
    )
    waiting = SqliteOutbox(address)
    until(lambda: not waiting.count(), 60, waiting.count)
    relaying.terminate()
    _, said = relaying.communicate(timeout=60)
    assert (relaying.returncode, said) == (0, f"orders relays streamapp_outbox\n{COUNT} rows relayed\n")
    assert topics.values(topic) == [b"%d" % number for number in range(COUNT)]
    missing = subprocess.run([*command, "relay", "orders"], env=os.environ, capture_output=True, text=True)
    assert "STREAMAPP_OUTBOX is not set" in missing.stderr


def test_ids_survive_as_text() -> None:
    ids = [1, 2, 3, 9, 11, 12, 500]
    assert of_ranges(as_ranges(ids)) == ids
    assert of_ranges("") == []
