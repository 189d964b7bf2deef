"""The three promises, with the consumer killed (kill -9) at every step, and with databases killed under it."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamapp.consumer.offset_sinks import SavedOffset, SinkFenced
from streamapp.records import TopicPartition

from ..processes import Worker, start_module, until
from ..producer.postgres import PostgreSQL
from .consuming_process import sink_at
from .feeding import Feed

COUNT, KEYS = 300, 12
SECONDS = 120.0
PARALLELISM = 4


class Processes:
    """Consumers of one group, one after the other or at once."""

    def __init__(self, feed: Feed, guarantee: str, out: str, folder: Path, mode: str = "") -> None:
        self._command = [feed.bootstrap, feed.group, guarantee, out, *([mode] if mode else [])]
        self._folder, self.all = folder, list[Worker]()

    def start(self, failpoint: str = "") -> Worker:
        log = self._folder / f"log-{len(self.all)}"
        process = start_module(
            "tests.consumer.consuming_process", *self._command, log=log, failpoint=failpoint
        )
        self.all.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("log-*")))

    def close(self) -> None:
        for process in self.all:
            process.close()


@pytest.fixture
def made() -> Iterator[list[Processes]]:
    made: list[Processes] = []
    yield made
    for each in made:
        each.close()


def feed_all(feed: Feed) -> None:
    feed.create()
    feed.send((f"k{number % KEYS}", str(number)) for number in range(COUNT))


def lines(path: Path) -> list[tuple[str, int]]:
    rows = (line.split() for line in path.read_text().splitlines()) if path.exists() else iter(())
    return [(key, int(value)) for key, value in rows]


def by_key(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return found


def killed_at(processes: Processes, *points: str) -> None:
    """One process after the other, each killed at a step."""
    for point in points:
        name, _, times = point.partition(":")
        process = processes.start(f"{name}:kill:{times or 7}")
        assert process.wait(SECONDS) == -signal.SIGKILL, processes.logs()


def finish(processes: Processes, condition: Any) -> None:
    last = processes.start()
    last.wait_for("open", SECONDS)
    until(condition, SECONDS, processes.logs)
    last.signal(signal.SIGTERM)
    assert last.wait(SECONDS) == 0, processes.logs()


def test_at_least_once_loses_nothing_and_repeats_little(
    feed: Feed, tmp_path: Path, made: list[Processes]
) -> None:
    feed_all(feed)
    out = tmp_path / "out"
    processes = Processes(feed, "at_least_once", str(out), tmp_path)
    made.append(processes)
    killed_at(processes, "consumer-handing-out", "consumer-handled", "consumer-committed:2")
    finish(processes, lambda: feed.position() == COUNT)  # a killed process may have written every value
    for key, values in by_key(lines(out)).items():
        first = sorted(set(values), key=values.index)
        assert first == list(range(int(key[1:]), COUNT, KEYS)), "in order, but for repetitions"
    assert {value for _, value in lines(out)} == set(range(COUNT))


def test_at_most_once_repeats_nothing_and_loses_no_more_than_was_in_work(
    feed: Feed, tmp_path: Path, made: list[Processes]
) -> None:
    feed_all(feed)
    out = tmp_path / "out"
    processes = Processes(feed, "at_most_once", str(out), tmp_path)
    made.append(processes)
    kills = ("consumer-committed", "consumer-handing-out", "consumer-handled")
    killed_at(processes, *kills)
    finish(processes, lambda: feed.position() == COUNT)
    values = [value for _, value in lines(out)]
    assert max(Counter(values).values()) == 1, "nothing twice"
    assert len(values) >= COUNT - PARALLELISM * len(kills)
    assert all(found == sorted(found) for found in by_key(lines(out)).values())


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
    """A database with an empty table."""
    address = str(tmp_path / "orders.db")
    if request.param == "postgres":
        address = request.getfixturevalue("server").conninfo
    with closing(connect(address)) as connection:
        connection.execute("DROP TABLE IF EXISTS handled")
        connection.execute("DROP TABLE IF EXISTS streamapp_offsets")
        kind = "INTEGER PRIMARY KEY AUTOINCREMENT" if request.param == "sqlite" else "serial PRIMARY KEY"
        connection.execute(f"CREATE TABLE handled (id {kind}, key TEXT, value INTEGER)")
        connection.commit()
    return address


def connect(address: str) -> Any:
    return psycopg.connect(address) if "host=" in address else sqlite3.connect(address, timeout=30)


def handled(address: str) -> list[tuple[str, int]]:
    with closing(connect(address)) as connection:
        return [
            (key, value) for key, value in connection.execute("SELECT key, value FROM handled ORDER BY id")
        ]


def check_exactly_once(rows: list[tuple[str, int]]) -> None:
    assert by_key(rows) == {f"k{key}": list(range(key, COUNT, KEYS)) for key in range(KEYS)}


@pytest.mark.parametrize("mode", ["", "batch"])
def test_exactly_once_with_a_database(
    feed: Feed, address: str, tmp_path: Path, made: list[Processes], mode: str
) -> None:
    feed_all(feed)
    processes = Processes(feed, "exactly_once", address, tmp_path, mode)
    made.append(processes)
    killed_at(processes, "consumer-saved", "consumer-sink-committed", "consumer-handled")
    finish(processes, lambda: len(handled(address)) >= COUNT)
    check_exactly_once(handled(address))


def test_exactly_once_while_postgresql_is_killed(
    feed: Feed, server: PostgreSQL, tmp_path: Path, made: list[Processes]
) -> None:
    address = server.conninfo
    with closing(connect(address)) as connection:
        connection.execute("DROP TABLE IF EXISTS handled, streamapp_offsets")
        connection.execute("CREATE TABLE handled (id serial PRIMARY KEY, key TEXT, value INTEGER)")
        connection.commit()
    feed_all(feed)
    processes = Processes(feed, "exactly_once", address, tmp_path)
    made.append(processes)
    first, second = processes.start(), processes.start()
    until(lambda: len(handled(address)) > 20, SECONDS, processes.logs)
    server.kill()
    server.start()
    until(lambda: len(handled(address)) > 60, SECONDS, processes.logs)
    first.signal(signal.SIGKILL)
    until(lambda: len(handled(address)) >= COUNT, SECONDS, processes.logs)
    second.signal(signal.SIGTERM)
    assert second.wait(SECONDS) == 0, processes.logs()
    check_exactly_once(handled(address))


def test_a_consumer_that_starts_before_its_database_waits(
    feed: Feed, server: PostgreSQL, tmp_path: Path, made: list[Processes]
) -> None:
    address = server.conninfo
    with closing(connect(address)) as connection:
        connection.execute("DROP TABLE IF EXISTS handled, streamapp_offsets")
        connection.execute("CREATE TABLE handled (id serial PRIMARY KEY, key TEXT, value INTEGER)")
        connection.commit()
    feed_all(feed)
    server.kill()
    processes = Processes(feed, "exactly_once", address, tmp_path)
    made.append(processes)
    process = processes.start()
    try:
        until(lambda: "waits for the database" in processes.logs(), SECONDS, processes.logs)
    finally:
        server.start()
    until(lambda: len(handled(address)) >= COUNT, SECONDS, processes.logs)
    process.signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0, processes.logs()
    check_exactly_once(handled(address))


def test_an_owner_that_was_replaced_cannot_save(address: str) -> None:
    sink, source = sink_at(address), TopicPartition("orders", 0)
    sink.create()
    old = sink.claim("payments", source)
    assert (old.position, old.metadata) == (-1, "")
    new = sink.claim("payments", source)
    assert new.fence == old.fence + 1

    def save(saved: SavedOffset) -> None:
        sink.transaction(lambda connection: sink.save(connection, "payments", source, saved))

    with pytest.raises(SinkFenced):
        save(SavedOffset(5, "", old.fence))
    save(SavedOffset(7, "x", new.fence))
    assert sink.claim("payments", source)[:2] == (7, "x")
    sink.close()
