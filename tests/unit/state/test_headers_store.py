from __future__ import annotations

import pytest
from store_harness import Life, TaggedSerde

from streamapp.query import KeyQuery, WindowKeyQuery, execute
from streamapp.records import Windowed
from streamapp.serdes import LongSerde

H, J = (("h", b"1"),), (("j", None), ("j", b""))
WINDOW = {"kind": "timestamped_window", "retention_ms": 100, "size_ms": 10, "with_headers": True}
VALUES = [(LongSerde(), 7), (TaggedSerde(), ["a", "b"])]


@pytest.mark.parametrize("log_each", [True, False])
@pytest.mark.parametrize(("serde", "value"), VALUES)
def test_windows_keep_the_headers_and_their_changelog_has_them_beside_the_plain_value(log_each, serde, value):
    life = Life(log_each, value_serde=serde, **WINDOW)
    life.store.put("a", value, 20, 25, H)
    life.store.put("a", value, 30, 35)
    shown = [(20, value, 25, H), (30, value, 35, ())]
    for _ in range(2):
        assert list(life.store.fetch("a", 0, 50)) == shown
        assert life.store.get("a", 20) == (value, 25, H)
        assert [row[1:] for row in life.store.all()] == [row[1:] for row in shown]
        life.commit()
        life.reopen()
    assert [record[1:] for record in life.task.logged] == [
        (serde.serialize(value), 25, H),
        (serde.serialize(value), 35, ()),
    ]
    assert next(iter(life.restored().all())) == (Windowed("a", 20, 30), value, 25, H)


def test_several_rows_of_one_window_keep_their_own_headers():
    life = Life(True, retain_duplicates=True, **WINDOW)
    life.store.put("a", 1, 20, 20, H)
    life.store.put("a", 2, 20, 20, J)
    life.store.put("a", None, 20, 20, J)
    assert list(life.store.fetch("a", 20, 20)) == [(20, 1, 20, H), (20, 2, 20, J)]
    assert [record[1] is None for record in life.task.logged] == [False, False, True]


def test_subscriptions_keep_the_headers():
    life = Life(False, kind="subscription", with_headers=True)
    life.store.put("a", 1, 5, H)
    life.store.put("b", 2, 6, J)
    life.store.put("b", None, 7, H)
    life.commit()
    life.reopen()
    assert life.store.get("a") == (1, 5, H)
    assert list(life.store.prefix_scan("a")) == [("a", (1, 5, H))]
    assert life.store.get("b") is None
    assert [record[2:] for record in life.task.logged] == [(5, H), (7, H)]
    assert life.restored().get("a") == (1, 5, H)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("log_each", [True, False])
def test_in_the_headers_format_tombstones_have_the_headers_of_what_caused_them(log_each, cached):
    life = Life(log_each, kind="timestamped", headers_format=True, cached=cached)
    if cached:
        life.store.set_flush_listener(lambda *update: None)
    life.store.put("a", 1, 1)
    life.store.put("b", 1, 1)
    life.commit()
    life.task.logged.clear()
    life.task.headers = H
    life.store.put("a", None, 2)
    life.store.put("b", 2, 2)
    life.task.headers = J
    life.commit()
    assert [(key, value is None, headers) for key, value, _, headers in life.task.logged] == [
        (b"a", True, H),
        (b"b", False, ()),
    ]


@pytest.mark.parametrize("persistent", [True, False])
def test_on_disk_the_headers_format_refuses_queries_as_kafka_streams_does(persistent):
    life = Life(kind="timestamped", headers_format=True, persistent=persistent)
    assert execute(life.store, KeyQuery("a")).failure == ("UNKNOWN_QUERY_TYPE" if persistent else None)
    life = Life(**WINDOW, persistent=persistent)
    assert execute(life.store, WindowKeyQuery("a", 0, 9)).failure == (
        "UNKNOWN_QUERY_TYPE" if persistent else None
    )
