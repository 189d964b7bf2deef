"""Paths at which SQLite has no database: relays and consumers say so at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from streamapp.consumer import SqliteOffsets
from streamapp.errors import ConfigError
from streamapp.producer import OutboxRelay, SqliteOutbox

from ..processes import until


def no_folder(folder: Path) -> Path:
    return folder / "missing" / "orders.db"


def a_folder(folder: Path) -> Path:
    return folder


def no_database(folder: Path) -> Path:
    path = folder / "orders.txt"
    path.write_text("orders, one a line\n" * 100)
    return path


@pytest.mark.parametrize("place", [no_folder, a_folder, no_database])
def test_a_path_that_can_be_no_database_is_refused(place: object, tmp_path: Path) -> None:
    """A relay tried again for ever, and a consumer for 150 s."""
    assert callable(place)
    path = place(tmp_path)
    with pytest.raises(ConfigError, match="SQLite"):
        OutboxRelay("orders", SqliteOutbox(path)).run()
    with pytest.raises(ConfigError, match=f"SQLite cannot use {path}"):
        SqliteOffsets(path).create()


def test_a_relay_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Correct the path, or make the file"):
        OutboxRelay("orders", SqliteOutbox(tmp_path / "orders.d")).run()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    SqliteOutbox(path).create()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        SqliteOutbox(path).check()


def test_a_relay_without_a_table_says_how_to_make_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (id TEXT)")
    with OutboxRelay("orders", SqliteOutbox(path)) as relay:
        until(lambda: relay.metrics.failures > 0, 60, lambda: relay.metrics)
    assert "`streamapp outbox create` creates the table" in caplog.text
