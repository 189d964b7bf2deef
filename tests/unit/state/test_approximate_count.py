from __future__ import annotations

from types import SimpleNamespace

import pytest
from store_harness import Life

from streamapp.state.backend import WriteSet
from streamapp.state.rocks import RocksBackend

KINDS = [
    {"kind": "key_value"},
    {"kind": "timestamped"},
    {"kind": "timestamped", "expires_after_ms": 1000},
    {"kind": "timestamped", "cached": True},
    {"kind": "timestamped", "plain": True},
    {"kind": "lru", "max_entries": 10, "persistent": False},
]


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: "-".join(map(str, spec.values())))
def test_in_memory_the_count_is_exact_also_of_what_waits_for_the_commit(spec):
    life = Life(**spec)
    for commit in (False, True):
        for key in "abc":
            life.store.put(key, 1, 1)
        life.store.put("b", None, 2)
        life.store.put("missing", None, 2)
        if commit:
            life.commit()
        assert life.store.approximate_num_entries() == 2
    life.store.put("a", 2, 3)
    life.store.put("d", 1, 3)
    life.store.put("c", None, 3)
    assert life.store.approximate_num_entries() == 2


def test_a_count_looks_up_only_rows_that_are_new_since_the_last_count():
    life = Life(kind="key_value")
    for number in range(100):
        life.store.put(f"{number:03}", number)
    life.commit()
    table, looked_up = life.store._table, []
    life.store._table = SimpleNamespace(
        get=lambda key: looked_up.append(key) or table.get(key), approximate_count=table.approximate_count
    )
    for number in range(90, 110):
        life.store.put(f"{number:03}", number)
    assert life.store.approximate_num_entries() == 110
    assert len(looked_up) == 20
    life.store.put("100", None)
    life.store.put("099", None)
    life.store.put("099", 1)
    life.store.put("110", 1)
    assert life.store.approximate_num_entries() == 110
    assert looked_up[20:] == [b"110"]


def test_a_versioned_store_gives_no_count():
    """``VersionedKeyValueStore`` of Kafka Streams has no ``approximateNumEntries``; its adapter refuses the call.

    The count here had dirty keys twice: in the table, and among the rows that wait.
    """
    life = Life(kind="versioned", retention_ms=100)
    assert not hasattr(life.store, "approximate_num_entries")


def test_windows_count_until_their_bucket_goes():
    life = Life(kind="window", retention_ms=10, size_ms=5, segment_interval_ms=20)
    for start in (0, 5, 18):
        life.store.put("a", 1, start)
        life.commit()
    assert len(list(life.store.all())) == 1
    assert life.store.approximate_num_entries() == 3
    life.store.put("a", 1, 100)
    life.commit()
    assert life.store.approximate_num_entries() == 1


def test_on_disk_nothing_is_read_to_count(tmp_path, monkeypatch):
    backend = RocksBackend(tmp_path / "state")
    table = backend.table("s")
    backend.write(WriteSet(puts={"s": [(bytes([n]), b"x") for n in range(100)]}))
    monkeypatch.setattr(type(table), "range", None)
    assert table.approximate_count() == 100
    backend.write(WriteSet(puts={"s": [(bytes([n]), None) for n in range(30)]}))
    assert 0 <= table.approximate_count() <= 100
    backend.close()
