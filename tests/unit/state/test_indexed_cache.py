"""Window stores with an index and a full record cache, beside a plain model of Kafka Streams' cache.

The model follows `NamedCache` and `TimeOrderedCachingWindowStore` of Kafka Streams. Programs seldom commit, because a
commit after each record would hide what one record leaves in the cache.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any
from unittest import mock

import pytest
from store_harness import Life
from test_cached_store import cached_life

from streamapp.serdes import StringSerde
from streamapp.state.cache import CachedStore
from streamapp.state.cached_windows import CachedWindowStore

START = 10
INDEXED: dict[str, Any] = {
    "retention_ms": 100_000,
    "size_ms": 5,
    "time_ordered": True,
    "indexed": True,
    "value_serde": StringSerde(),
}


class Model:
    """The cache of one store. It has two entries for each row: ("row", key), and ("index", key) without a value."""

    def __init__(self, row_bytes: int, index_bytes: int, most: int) -> None:
        self.bytes = {"row": row_bytes, "index": index_bytes}
        self.most, self.used = most, 0
        self.entries: OrderedDict[tuple[str, str], tuple[str | None, int]] = OrderedDict()
        """Values and sizes, least recently used first."""
        self.dirty: dict[tuple[str, str], None] = {}
        self.table: dict[str, str] = {}
        self.heard: list[tuple[str, str | None]] = []

    def put(self, key: str, value: str | None) -> None:
        self.add(("row", key), value)
        self.add(("index", key), "")

    def get(self, key: str) -> str | None:
        if ("row", key) not in self.entries:
            return self.table.get(key)
        self.entries.move_to_end(("row", key))
        return self.entries["row", key][0]

    def add(self, name: tuple[str, str], value: str | None) -> None:
        size = self.bytes[name[0]] + (0 if value is None else len(value))
        self.used += size - self.entries.pop(name, (None, 0))[1]
        self.entries[name] = value, size
        self.dirty.pop(name, None)
        self.dirty[name] = None
        while self.used > self.most and self.entries:
            eldest, entry = self.entries.popitem(last=False)
            if eldest in self.dirty:
                del self.dirty[eldest]
                self.flush([(eldest, entry[0])])
            self.used -= entry[1]

    def flush(self, first: list[tuple[tuple[str, str], str | None]]) -> None:
        changed = [*first, *((name, self.entries[name][0]) for name in self.dirty)]
        gone = [name for name in self.dirty if self.entries[name][0] is None]
        self.dirty.clear()
        told = set()
        for (part, key), value in changed:
            if key in told:
                continue
            if part == "index":
                if ("row", key) not in self.entries:
                    continue
                value = self.get(key)
            told.add(key)
            if value is not None or key in self.table:
                self.heard.append((key, value))
            self.table.pop(key, None)
            if value is not None:
                self.table[key] = value
        for name in gone:
            self.used -= self.entries.pop(name)[1]


def sizes(kind: str) -> tuple[int, int]:
    """The bytes of a row whose value is empty, and of its index entry."""
    life, _ = cached_life(kind=kind, **INDEXED)
    put(life, kind, "a", "")
    (index,) = life.store._indexes.values()
    return life.cache.used - index.size, index.size


def put(life: Life, kind: str, key: str, value: str | None) -> None:
    if kind == "window":
        life.store.put(key, value, START)
    else:
        life.store.put(key, value, 0, START)


@pytest.mark.parametrize("how", ["put", "put and get", "put and delete", "fold"])
def test_a_full_cache_with_an_index_flushes_what_kafka_streams_flushes(how):
    kind = "timestamped_window" if how == "fold" else "window"
    row_bytes, index_bytes = sizes(kind)
    for seed in range(150):
        draw = random.Random(seed)
        most = int(draw.choice([1, 1.5, 2, 2.5, 3, 4, 6]) * (row_bytes + index_bytes + 2))
        life, heard = cached_life(kind=kind, max_bytes=most, **INDEXED)
        model = Model(row_bytes, index_bytes, most)
        fold = life.store.folder(str, lambda _, value, old: value) if how == "fold" else None
        steps = ["put"] * 12 + ["get"] * (6 if how == "put and get" else 0) + ["commit"]
        done = []
        for _ in range(draw.randrange(3, 30)):
            step, key, value = draw.choice(steps), draw.choice("abcdef"), draw.choice(["", "v", "long value"])
            if how == "put and delete" and draw.random() < 0.3:
                value = None
            done.append((step, key, value))
            if step == "get":
                assert life.store.get(key, START) == model.get(key)
            elif step == "commit":
                life.store.flush()
                model.flush([])
            elif fold is not None:
                fold(key, START, value, 0)
                model.get(key)
                model.put(key, value)
            else:
                put(life, kind, key, value)
                model.put(key, value)
            told = [(update[0].key, update[1]) for update in heard]
            assert told == model.heard, (seed, most, done)
            assert life.cache.used == model.used, (seed, most, done)
        life.store.flush()
        model.flush([])
        assert [(row[0].key, row[1]) for row in life.store.all()] == sorted(model.table.items()) or fold


def test_a_row_leaves_without_a_second_flush_after_its_index_entry_was_put_alone():
    row_bytes, index_bytes = sizes("window")
    life, heard = cached_life(kind="window", max_bytes=row_bytes + index_bytes, **INDEXED)
    for key in "abc":
        put(life, "window", key, "")
    assert [update[0].key for update in heard] == ["a", "b", "c"]


def test_a_second_scan_over_several_keys_does_not_sort_the_cache_again():
    for kind, spec in {"window": {"size_ms": 5}, "session": {}}.items():
        life, _ = cached_life(kind=kind, retention_ms=1_000, max_bytes=10**6, **spec)
        for at in range(100):
            life.store.put(f"k{at:02}", *([at, at, 1] if kind == "session" else [1, at]))
        scan = life.store.find_sessions_range if kind == "session" else life.store.fetch_range
        assert len(list(scan("k05", "k06", 0, 100))) == 2
        with mock.patch.object(life.store, "_row_bytes", side_effect=life.store._row_bytes) as encode:
            assert len(list(scan("k05", "k06", 0, 100))) == 2
        assert encode.call_count < 50


def test_only_a_store_with_an_index_pays_for_its_entries():
    plain, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5)
    assert isinstance(plain.store, CachedWindowStore)
    assert plain.store._begin_news.__func__ is CachedStore._begin_news
