from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 400)),
        st.tuples(st.just("delete"), st.sampled_from("abcdef")),
        st.tuples(st.just("expire"), st.integers(0, 500)),
        st.tuples(st.sampled_from(["log", "persist", "commit"])),
    ),
    max_size=50,
)


@given(STEPS, st.sampled_from([1, 10, 100]))
def test_each_row_expires_once_it_is_old_enough(steps, ttl):
    life = Life(kind="timestamped", expires_after_ms=ttl)
    model: dict[str, tuple[int, int]] = {}
    observed = -1
    for at, (step, *args) in enumerate(steps):
        if step == "put":
            key, timestamp = args
            life.store.put(key, at, timestamp)
            model[key] = (at, timestamp)
        elif step == "delete":
            life.store.put(args[0], None, 0)
            model.pop(args[0], None)
        elif step == "expire":
            observed = max(observed, args[0])
            due = sorted(
                (timestamp, key) for key, (_, timestamp) in model.items() if timestamp + ttl <= observed
            )
            assert expired(life, observed) == [
                (key, model.pop(key)[0], timestamp + ttl) for timestamp, key in due
            ]
        else:
            life.go_on(step)
        assert dict(life.store.all()) == model


def test_rows_that_have_expired_do_not_wait_to_be_looked_at_again():
    life = Life(kind="timestamped", expires_after_ms=160)
    for number in range(1_000):
        life.store.put(f"{number:04}", number, number * 10)
        expired(life, number * 10)
    assert len(life.store._dirty) == 1_000
    assert sum(map(len, life.store._ahead.values())) <= 16
