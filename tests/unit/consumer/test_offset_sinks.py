"""Several threads on one database of offsets."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from streamapp.consumer import SqliteOffsets
from streamapp.consumer import offset_sinks as module

SECONDS = 60.0


class Waiting:
    """A thread whose transaction waits until `go_on`."""

    def __init__(self, sink: SqliteOffsets) -> None:
        self._sink = sink
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Waiting:
        self.thread.start()
        assert self.begun.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self._sink.transaction(self._insert)
        except Exception as exc:
            self.error = exc

    def _insert(self, connection: Any) -> None:
        self.begun.set()
        assert self.go_on.wait(SECONDS)
        connection.execute("INSERT INTO orders VALUES (1)")


@pytest.fixture
def sink(tmp_path: Path) -> SqliteOffsets:
    sink = SqliteOffsets(tmp_path / "orders.db")
    sink.connection().execute("CREATE TABLE orders (id INTEGER)")
    return sink


def test_a_close_leaves_the_connections_of_other_threads_open(sink: SqliteOffsets) -> None:
    """A consumer that stopped closed the connection of a handler that was still at work: the process crashed."""
    with Waiting(sink) as other:
        sink.close()
    assert other.error is None
    assert sink.connection().execute("SELECT count(*) FROM orders").fetchone() == (1,)
    sink.close()


@pytest.mark.parametrize("objects", [1, 2])
def test_threads_take_turns(sink: SqliteOffsets, objects: int) -> None:
    """SQLite lets waiting writers sleep and try again. Of 16 threads, some waited for 14 s.

    Two consumers of a process may each have their own object for the same file.
    """
    other = sink if objects == 1 else SqliteOffsets(os.path.relpath(sink.path))
    errors, waits = list[Exception](), threading.Event()

    def impatient() -> None:
        other.connection().execute("PRAGMA busy_timeout = 0")  # SQLite itself does not wait
        waits.set()
        try:
            other.transaction(lambda connection: connection.execute("INSERT INTO orders VALUES (2)"))
        except sqlite3.Error as exc:
            errors.append(exc)
        other.close()

    second = threading.Thread(target=impatient, daemon=True)
    with Waiting(sink) as first:
        second.start()
        assert waits.wait(SECONDS)
    second.join(SECONDS)
    assert first.error is None
    assert errors == []
    assert sink.connection().execute("SELECT id FROM orders ORDER BY rowid").fetchall() == [(1,), (2,)]
    sink.close()


def test_a_turn_that_does_not_come_is_an_error_of_the_database(
    sink: SqliteOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCKED_SECONDS", 0.01)
    with Waiting(sink) as other, pytest.raises(sqlite3.OperationalError, match="database is locked"):
        sink.transaction(lambda connection: None)
    assert other.error is None
    sink.close()
