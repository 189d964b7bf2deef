from __future__ import annotations

from typing import Any

from store_harness import Life


def expired(life: Life, observed: int) -> list[tuple[Any, Any, int]]:
    found: list[tuple[Any, Any, int]] = []
    life.store.observed = max(life.store.observed, observed)
    life.store.expire(lambda *row: found.append(row))
    return found


def test_rows_expire_by_timestamp_and_key() -> None:
    life = Life(kind="timestamped", expires_after_ms=10)
    for key, timestamp in (("b", 5), ("a", 5), ("c", 6), ("late", 40)):
        life.store.put(key, 1, timestamp)
    assert expired(life, 15) == [("a", 1, 15), ("b", 1, 15)]
    life.commit()
    assert expired(life, 16) == [("c", 1, 16)]
    assert [key for key, _ in life.store.all()] == ["late"]


def test_what_expires_between_the_log_and_the_disk_expires_again_after_a_crash() -> None:
    life = Life(kind="timestamped", expires_after_ms=10)
    life.store.put("a", 1, 0)
    life.commit()
    life.store.log_dirty()
    assert expired(life, 10) == [("a", 1, 10)]
    life.persist()
    life.reopen()
    assert life.store.get("a") == (1, 0)
    assert expired(life, 10) == [("a", 1, 10)]
