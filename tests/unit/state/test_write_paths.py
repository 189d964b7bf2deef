"""A write is put together in one place: with any mixture of steps the changelog and the reads agree."""

from __future__ import annotations

import pytest
from store_harness import Life

from streamapp.serdes import LongSerde, StringSerde
from streamapp.state.cache import RecordCache

KINDS = {
    "key_value": {},
    "timestamped": {},
    "lru": {"kind": "timestamped", "max_entries": 2},
    "expiring": {"kind": "timestamped", "expires_after_ms": 1_000},
}


@pytest.mark.parametrize("headers_format", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("log_each", [False, True])
@pytest.mark.parametrize("serde", [LongSerde(), StringSerde()])
@pytest.mark.parametrize("kind", KINDS)
def test_each_mixture_of_steps_writes_once_and_logs_once(kind, serde, log_each, cached, headers_format):
    spec = {"kind": kind} | KINDS[kind]
    life = Life(
        log_each, RecordCache(10_000), cached=cached, headers_format=headers_format, value_serde=serde, **spec
    )
    value = serde.deserialize(b"\0\0\0\0\0\0\0\5")
    life.task.headers = (("h", b"1"),)
    life.store.put("a", value, 5)
    life.store.put("b", value, 6)
    life.store.put("b", None, 7)
    life.commit()
    shown = value if kind == "key_value" else (value, 5)
    assert life.store.get("a") == shown
    assert life.store.get("b") is None
    assert [entry[0] for entry in life.task.logged].count(b"a") == 1
    deletions = [headers for key, data, _, headers in life.task.logged if key == b"b" and data is None]
    assert len(deletions) == 1
    assert deletions[0] == (life.task.headers if headers_format else ())


@pytest.mark.parametrize("log_each", [False, True])
@pytest.mark.parametrize("value", [None, 2])
@pytest.mark.parametrize("kind", ["subscription", "window"])
def test_a_write_without_headers_is_logged_without_those_of_an_earlier_write(kind, value, log_each):
    windows = {"retention_ms": 100, "size_ms": 10} if kind == "window" else {}
    life = Life(log_each, kind=kind, **windows)
    start = [5] if windows else []
    life.store.put("a", 1, *start, 5, (("h", b"1"),))
    life.store.put("a", value, *start, 6)
    life.commit()
    assert life.task.logged[-1][2:] == (6, ())
