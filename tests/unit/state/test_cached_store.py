from __future__ import annotations

from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import IMAGE_LIMITS, ROW_LIMITS, Life, images_of

from streamapp import JsonSerde
from streamapp.errors import SerializationError
from streamapp.query import (
    RangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    execute,
)
from streamapp.records import Windowed
from streamapp.serdes.base import Serde
from streamapp.state.cache import RecordCache
from streamapp.state.cached_times import CachedTimes
from streamapp.state.row_memory import RowMemory

KEYS = st.sampled_from(["a", "b", "c"])


def cached_life(
    log_each: bool = True, max_bytes: int = 10_000, row_bytes: int = 100_000, **spec: object
) -> tuple[Life, list[tuple]]:
    life = Life(log_each, RecordCache(max_bytes), RowMemory(row_bytes), cached=True, **spec)
    heard: list[tuple] = []
    life.store.set_flush_listener(lambda *update: heard.append((*update, life.task.offset, life.task.topic)))
    return life, heard


def test_a_flush_tells_the_last_update_of_each_key_in_the_order_of_the_updates():
    life, heard = cached_life(kind="timestamped")
    for offset, (key, value) in enumerate([("a", 1), ("b", 2), ("a", 3)]):
        life.task.offset, life.task.headers = offset, (("h", bytes([offset])),)
        life.store.put(key, value, 10 + offset)
    life.task.offset, life.task.topic = 99, "now"
    assert life.store.get("a") == (3, 12)
    assert heard == []
    assert life.task.logged == []
    life.store.flush()
    assert heard == [
        ("b", 2, None, 11, (("h", b"\1"),), 1, "in"),
        ("a", 3, None, 12, (("h", b"\2"),), 2, "in"),
    ]
    assert (life.task.offset, life.task.topic) == (99, "now")
    assert [(key, timestamp) for key, _, timestamp, _ in life.task.logged] == [(b"b", 11), (b"a", 12)]
    heard.clear()
    life.store.put("a", 4, 13)
    life.store.put("a", None, 14)
    life.store.flush()
    assert [update[:4] for update in heard] == [("a", None, 3, 14)]


def test_a_key_that_comes_and_goes_between_two_flushes_is_no_news():
    life, heard = cached_life(kind="timestamped")
    life.store.put("a", 1, 1)
    life.store.put("a", None, 2)
    life.commit()
    assert heard == []
    assert life.task.logged == []


def test_the_changelog_gets_one_record_a_commit_from_workers_too():
    life, heard = cached_life(log_each=False, kind="key_value")
    life.store.put("a", 1)
    life.store.put("a", 2)
    life.commit()
    assert [update[:3] for update in heard] == [("a", 2, None)]
    assert [value for _, value, _, _ in life.task.logged] == [bytes(7) + b"\2"]
    life.reopen()
    assert life.store.get("a") == 2


def test_what_the_listener_puts_is_news_for_the_next_flush():
    life, _ = cached_life(kind="key_value")
    heard = []

    def listener(key, new, old, timestamp, headers):
        heard.append((key, new, old))
        if new < 3:
            life.store.put(key, new + 1)

    life.store.set_flush_listener(listener)
    life.store.put("a", 1)
    life.store.flush()
    assert heard == [("a", 1, None)]
    life.store.flush()
    assert heard[1:] == [("a", 2, 1)]


@pytest.mark.parametrize(("max_bytes", "heard_before_flush"), [(1, 3), (111, 2), (120, 3), (168, 0)])
def test_a_full_cache_flushes_early(max_bytes, heard_before_flush):
    life, heard = cached_life(kind="key_value", max_bytes=max_bytes)
    for key in "abc":
        life.store.put(key, 1)
    # Each row counts 56 bytes; the first one that finds no room takes all others with it.
    assert len(heard) == heard_before_flush
    life.store.flush()
    assert [update[0] for update in heard] == ["a", "b", "c"]
    assert life.cache.used <= max_bytes
    life.store.close()
    assert life.cache.used == 0


def test_a_store_keeps_its_share_of_the_cache_while_nothing_is_new():
    table, heard = cached_life(kind="timestamped", max_bytes=1_000)
    windows = Life(True, table.cache, kind="timestamped_window", retention_ms=1_000, size_ms=1, cached=True)
    table.store.put("a", 1)
    table.store.flush()
    for start in range(100):
        windows.store.put("w", 1, start)
        windows.commit()
    for value in (2, 3):
        table.store.put("a", value)
    table.store.flush()
    assert [update[1] for update in heard] == [1, 3]


def test_windows_and_sessions_are_heard_with_their_windowed_keys():
    life, heard = cached_life(kind="timestamped_window", retention_ms=100, size_ms=10)
    life.store.put("a", 1, 20, 25)
    life.store.flush()
    assert heard[0][:4] == (Windowed("a", 20, 30), 1, None, 25)
    life, heard = cached_life(kind="session", retention_ms=100)
    life.task.timestamp = 99
    life.store.put("a", 10, 20, 1)
    life.store.remove("a", 10, 20)
    life.store.put("a", 10, 30, 2)
    life.store.flush()
    assert [update[:4] for update in heard] == [(Windowed("a", 10, 30), 2, None, 30)]


def test_a_cached_lru_store_logs_what_it_evicts_but_tells_nobody():
    life, heard = cached_life(kind="lru", max_entries=1, persistent=False)
    life.store.put("a", 1)
    life.store.put("b", 2)
    life.store.flush()
    assert [update[:2] for update in heard] == [("a", 1), ("b", 2)]
    assert [(key, value and value[-1]) for key, value, _, _ in life.task.logged] == [
        (b"a", 1),
        (b"a", None),
        (b"b", 2),
    ]


@pytest.mark.parametrize("kind", ["lru", "timestamped"])
def test_a_cache_shows_what_a_bounded_store_has_forgotten_until_it_must_make_room(kind):
    life, _ = cached_life(kind=kind, max_entries=1, persistent=False, max_bytes=200)
    value = (lambda v: v) if kind == "lru" else (lambda v: (v, life.task.timestamp))
    life.store.put("a", 1)
    life.store.put("b", 2)
    assert list(life.store.all()) == [("a", value(1)), ("b", value(2))]
    life.commit()
    assert life.store.get("a") == value(1)
    assert list(life.store.all(reverse=True)) == [("b", value(2)), ("a", value(1))]
    assert list(execute(life.store, RangeQuery()).value) == [("b", 2)]
    for key in "cde":
        life.store.put(key, 3)
        life.commit()
    assert life.store.get("a") is None
    assert life.cache.used <= life.cache.max_bytes
    life.reopen()
    assert list(life.store.all()) == [("e", value(3))]


def test_reads_that_the_cache_answers_do_not_use_the_bounded_store():
    life, _ = cached_life(kind="lru", max_entries=2, persistent=False)
    for key in "ab":
        life.store.put(key, 1)
        life.commit()
    assert life.store.get("a") == 1
    life.store.put("c", 1)
    life.commit()
    assert list(execute(life.store, RangeQuery()).value) == [("b", 1), ("c", 1)]


def test_the_cache_of_a_table_without_timestamps_knows_them():
    life, _ = cached_life(kind="timestamped", plain=True, max_bytes=200)
    life.store.put("a", 1, 7)
    life.commit()
    assert life.store.get("a") == (1, 7)
    assert list(life.store.all()) == [("a", (1, 7))]
    assert execute(life.store, TimestampedKeyQuery("a")).value == (1, 7)
    assert list(execute(life.store, TimestampedRangeQuery()).value) == [("a", (1, -1))]
    for key in "bcd":
        life.store.put(key, 1, 8)
        life.commit()
    assert life.store.get("a") == (1, -1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.one_of(st.none(), st.integers(0, 9))),
            st.tuples(st.sampled_from(["flush", "commit"])),
        ),
        max_size=30,
    ),
    st.booleans(),
    st.sampled_from([1, 150, 10_000]),
    ROW_LIMITS,
)
def test_the_updates_that_are_heard_chain_from_old_to_new_and_end_at_the_state(
    steps, log_each, max_bytes, row_bytes
):
    life, heard = cached_life(log_each, max_bytes, row_bytes, kind="timestamped")
    model: dict[str, int | None] = {}
    for at, (step, *args) in enumerate(steps):
        if step == "put":
            key, value = args
            life.store.put(key, value, at)
            model[key] = value
        elif step == "flush":
            life.store.flush()
        else:
            life.commit()
    life.commit()
    current: dict[str, int | None] = {}
    for key, new, old, *_ in heard:
        assert old == current.get(key)
        current[key] = new
    state = {key: value for key, value in model.items() if value is not None}
    assert {key: value for key, value in current.items() if value is not None} == state
    assert {key: value for key, (value, _) in life.store.all()} == state
    assert {key: value for key, (value, _) in life.restored().all()} == state


class Layers:
    """Windows as Kafka Streams keeps them: a cache that knows no time over a store that forgets."""

    def __init__(self, retention: int) -> None:
        self.retention = retention
        self.observed = -1
        self.cache: dict[tuple[str, int], int | None] = {}
        self.dirty: dict[tuple[str, int], None] = {}
        self.store: dict[tuple[str, int], int] = {}
        self.dropped = 0

    def stored(self, row: tuple[str, int]) -> int | None:
        return self.store.get(row) if row[1] > self.observed - self.retention else None

    def put(self, row: tuple[str, int], value: int | None) -> None:
        self.cache[row] = value
        self.dirty.pop(row, None)
        self.dirty[row] = None

    def flush(self) -> list[tuple]:
        heard = []
        dirty, self.dirty = self.dirty, {}
        for row in dirty:
            old, new = self.stored(row), self.cache[row]
            if new is None:
                del self.cache[row]
            if old is None and new is None:
                continue
            self.observed = max(self.observed, row[1])
            if row[1] <= self.observed - self.retention:
                self.dropped += 1
            elif new is None:
                self.store.pop(row, None)
            else:
                self.store[row] = new
            heard.append((*row, new, old))
        return heard

    def rows(self) -> list[tuple[str, int, int]]:
        shown = {row: value for row in self.store if (value := self.stored(row)) is not None} | self.cache
        return [(*row, value) for row, value in shown.items() if value is not None]


ROW = st.tuples(KEYS, st.integers(0, 60))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), ROW, st.one_of(st.none(), st.integers(0, 9))),
            st.tuples(st.sampled_from(["flush", "commit"])),
            st.tuples(st.just("read"), ROW, st.integers(0, 60)),
        ),
        max_size=40,
    ),
    st.booleans(),
    ROW_LIMITS,
)
def test_a_cached_window_store_is_a_cache_without_time_over_a_store_that_forgets(steps, reverse, row_bytes):
    life, heard = cached_life(
        kind="window",
        retention_ms=10,
        size_ms=5,
        persistent=False,
        max_bytes=1_000_000,
        row_bytes=row_bytes,
    )
    model = Layers(10)
    direction = -1 if reverse else 1
    for step, *args in steps:
        if step == "put":
            (key, start), value = args
            life.store.put(key, value, start)
            model.put((key, start), value)
        elif step == "read":
            (key, start), to = args
            fetched = [(s, v) for k, s, v in model.rows() if k == key and start <= s <= to]
            assert list(life.store.fetch(key, start, to, reverse)) == sorted(fetched)[::direction]
            assert life.store.get(key, start) == {(k, s): v for k, s, v in model.rows()}.get((key, start))
            scanned = sorted((s, k, v) for k, s, v in model.rows() if start <= s <= to)[::direction]
            found = [(k.start, k.key, v) for k, v in life.store.fetch_all(start, to, reverse)]
            assert found == scanned
        else:
            heard.clear()
            life.store.flush()
            assert [(k.key, k.start, new, old) for k, new, old, *_ in heard] == model.flush()
            if step == "commit":
                life.commit()
            assert life.task.dropped == model.dropped


def test_queries_do_not_see_windows_and_sessions_that_only_the_cache_shows():
    life, _ = cached_life(kind="timestamped_window", retention_ms=10, size_ms=5)
    for start in (0, 100):
        life.store.put("a", 1, start, start)
        life.commit()
    assert [row[0] for row in life.store.fetch("a", 0, 200)] == [0, 100]
    assert list(execute(life.store, WindowKeyQuery("a", 0, 200)).value) == [(100, 1, 100)]
    assert [key.start for key, *_ in execute(life.store, WindowRangeQuery(0, 200)).value] == [100]
    life, _ = cached_life(kind="session", retention_ms=10)
    for start in (0, 100):
        life.store.put("a", start, start, 1)
        life.commit()
    assert len(list(life.store.fetch("a"))) == 2
    assert [key.start for key, _ in execute(life.store, WindowRangeQuery(key="a")).value] == [100]


def test_expired_sessions_are_seen_until_the_cache_must_make_room():
    life, _ = cached_life(kind="session", retention_ms=10, max_bytes=400)
    life.store.put("a", 0, 5, 1)
    life.commit()
    life.store.put("a", 100, 105, 2)
    life.commit()
    assert list(life.store.find_sessions("a", 0, 200)) == [(0, 5, 1), (100, 105, 2)]
    assert list(life.store.fetch("a", reverse=True)) == [(100, 105, 2), (0, 5, 1)]
    assert [(key.start, value) for key, value in life.store.all()] == [(0, 1), (100, 2)]
    assert life.store.get("a", 0, 5) == 1
    for start in range(110, 160, 10):
        life.store.put("b", start, start, 3)
        life.commit()
    assert life.store.get("a", 0, 5) is None
    assert list(life.store.find_sessions("a", 0, 200)) == []
    assert life.cache.used <= life.cache.max_bytes
    life.reopen()
    assert life.store.get("b", 110, 110) is None
    assert life.store.get("b", 150, 150) == 3


@pytest.mark.parametrize("looked_up_before", [True, False])
def test_a_flush_that_makes_room_does_not_show_the_expired_session_that_leaves(looked_up_before):
    life, _ = cached_life(kind="session", retention_ms=10, max_bytes=250)
    store, seen = life.store, []
    store.set_flush_listener(lambda key, *_: seen.append((key.start, list(store.fetch("a")))))
    store.put("b", 100, 100, 1)
    life.commit()
    store.put("a", 0, 0, 2)
    if looked_up_before:
        assert list(store.fetch("a")) == [(0, 0, 2)]
        store.get("b", 100, 100)
    seen.clear()
    for start in (101, 102, 103):
        store.put("b", start, start, 3)
    assert (0, []) in seen


@pytest.mark.parametrize("since", [5, 35, 60, 200])
def test_a_backward_look_up_uses_the_windows_of_its_first_segment_or_of_the_newest_one(since):
    life, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5, segment_interval_ms=60, max_bytes=250)
    for start in (5, 10, 30):
        life.store.put("a", 1, start)
    life.commit()
    list(life.store.fetch("a", since, since + 60, reverse=True))  # 30, 10 and 5 count as used, in this order
    life.store.put("b", 1, 31)
    life.store.put("b", 1, 32)
    assert [start for _, start, _ in life.store._held] == [5, 31, 32]


def test_a_cached_store_that_was_restored_shows_its_windows_and_sessions():
    retention = 1_000
    life, _ = cached_life(kind="timestamped_window", retention_ms=retention, size_ms=10)
    for start in (100, 200):
        life.store.put("a", start, start, 7)
    life.commit()
    windows = life.restored()
    assert [(key.start, value) for key, value, _ in windows.all()] == [(100, 100), (200, 200)]
    assert [row[0] for row in windows.fetch("a", 0, 1_000)] == [100, 200]

    life, _ = cached_life(kind="session", retention_ms=retention)
    life.store.put("a", 100, 200, 1)
    life.commit()
    sessions = life.restored()
    assert [(key.start, key.end, value) for key, value in sessions.all()] == [(100, 200, 1)]
    assert list(sessions.find_sessions("a", 150, 250)) == [(100, 200, 1)]


def test_stores_share_the_limit_and_give_back_what_they_hold():
    first, heard = cached_life(kind="timestamped", max_bytes=200)
    second = Life(True, first.cache, kind="timestamped_window", retention_ms=10, size_ms=5, cached=True)
    second.store.put("a", 1, 0)
    second.commit()
    first.store.put("a", 1)
    assert heard == []
    first.store.put("b", 1)
    assert [update[0] for update in heard] == ["a", "b"]
    assert first.cache.used > 0
    first.store.close()
    second.store.close()
    assert first.cache.used == 0


def test_without_a_byte_nothing_is_cached():
    assert not Life(cache=RecordCache(0), kind="timestamped", cached=True).store.cached
    assert Life(cache=RecordCache(1), kind="timestamped", cached=True).store.cached


def test_a_cache_that_nobody_listens_to_holds_nothing_and_logs_the_same():
    listened, _ = cached_life(log_each=False, kind="timestamped")
    alone = Life(False, RecordCache(10_000), kind="timestamped", cached=True)
    alone.store.let_through()
    for life in (listened, alone):
        for at, (key, value) in enumerate([("a", 1), ("b", 2), ("a", 3)]):
            life.store.put(key, value, at)
        life.commit()
    assert alone.task.logged == listened.task.logged
    assert alone.store.get("a") == (3, 2)
    alone.store.put("a", 4, 4)
    assert alone.cache.used == 0


def test_each_write_that_is_logged_as_it_leaves_the_cache_still_waits_there():
    life = Life(True, RecordCache(10_000), kind="timestamped", cached=True)
    life.store.let_through()
    life.store.put("a", 1, 1)
    assert life.task.logged == []
    life.store.put("a", 2, 2)
    life.store.flush()
    assert [timestamp for _, _, timestamp, _ in life.task.logged] == [2]


SESSION_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 150), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.sampled_from(["flush", "commit", "reopen"])),
        st.tuples(st.just("find"), KEYS, st.integers(0, 150), st.integers(0, 150)),
    ),
    max_size=50,
)


@given(SESSION_STEPS, st.sampled_from([1, 300, 10_000]), ROW_LIMITS, st.booleans())
def test_cached_sessions_that_do_not_expire_are_a_dict(steps, max_bytes, row_bytes, persistent):
    life, _ = cached_life(
        False,
        max_bytes,
        row_bytes,
        kind="session",
        persistent=persistent,
        retention_ms=1_000,
        segment_interval_ms=60,
    )
    model: dict[tuple[str, int, int], int] = {}
    for step, *args in steps:
        if step == "put":
            key, start, length, value = args
            life.store.put(key, start, start + length, value)
            model[key, start, start + length] = value
        elif step == "remove":
            for key, start, end in [row for row in model if row[0] == args[0]][:1]:
                life.store.remove(key, start, end)
                del model[key, start, end]
        elif step == "find":
            key, earliest, latest = args
            found = {
                (s, e): v for (k, s, e), v in model.items() if k == key and e >= earliest and s <= latest
            }
            shown = list(life.store.find_sessions(key, earliest, latest))
            assert {(s, e): v for s, e, v in shown} == found
            assert [e for _, e, _ in shown] == sorted(e for _, e in found)
        elif step == "flush":
            life.store.flush()
        elif step == "commit" or not persistent:
            life.commit()
        else:
            life.store.flush()
            life.go_on("reopen")
    for (key, start, end), value in model.items():
        assert life.store.get(key, start, end) == value
    assert {(k.key, k.start, k.end): v for k, v in life.store.all()} == model


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9))),
            st.tuples(st.just("find"), KEYS, st.integers(0, 60), st.integers(0, 60)),
            st.tuples(st.sampled_from(["flush", "commit"])),
        ),
        max_size=60,
    ),
    st.sampled_from([120, 300, 900, 100_000]),
)
def test_a_walk_over_windows_in_memory_passes_the_cache_in_the_order_of_time_and_key(steps, most):
    life, _ = cached_life(kind="window", max_bytes=most, persistent=False, retention_ms=1_000, size_ms=10)
    store = life.store
    for step, *args in steps:
        if step == "put":
            key, time, value = args
            store.put(key, value, time)
        elif step == "find":
            key, low, high = args
            bounds = (low, key.encode()), (high, key.encode())
            expected = sorted((row[1], row[0].encode(), row) for row in store._held)
            expected = [row for time, data, row in expected if bounds[0] <= (time, data) <= bounds[1]]
            assert store._walked(key.encode(), low, high, False) == expected
            assert store._walked(key.encode(), low, high, True) == expected[::-1]
        elif step == "flush":
            store.flush()
        else:
            life.commit()


def test_a_read_from_outside_of_the_task_makes_no_room():
    life, heard = cached_life(kind="timestamped")
    life.store.put("a", 1, 1)
    life.commit()
    life.cache.max_bytes = life.cache.used  # room for one entry
    life.store.put("b", 2, 2)
    heard.clear()
    assert execute(life.store, TimestampedKeyQuery("a")).value == (1, 1)
    assert life.store.ask(lambda store: store.get("a")) == (1, 1)
    assert heard == []
    assert life.store.get("a") == (1, 1)  # a read of the task takes the row into the cache
    assert [update[:3] for update in heard] == [("b", 2, None)]


def by_last_use(life):
    """Key and start of the rows in the cache, in the order in which they leave the cache."""
    store = life.store
    if hasattr(store, "_look_ups"):
        store._look_ups._settle()
    entries = sorted(store._held.items(), key=lambda item: max(item[1].used, item[1].number))
    return "".join(key[0] for key, _ in entries), [key[1] for key, _ in entries]


@pytest.mark.parametrize(
    ("persistent", "scan", "rows"),
    [
        # One segment has 60 ms: ("b", 10) and ("a", 50) are in the first segment, ("c", 70) in the second one.
        (True, lambda store: store.fetch_all(0, 1), ("abc", [50, 10, 70])),
        (True, lambda store: store.all(reverse=True), ("cba", [70, 10, 50])),
        (True, lambda store: store.fetch_range("b", "c", 40, 55), ("cab", [70, 50, 10])),
        (True, lambda store: store.fetch_range("a", "a", 60, 80), ("cba", [70, 10, 50])),
        (True, lambda store: store.fetch_range(None, "a", 60, 80, reverse=True), ("cba", [70, 10, 50])),
        (False, lambda store: store.fetch_all(0, 1), ("bac", [10, 50, 70])),
        (False, lambda store: store.all(reverse=True), ("cab", [70, 50, 10])),
        (False, lambda store: store.fetch_range("c", "c", 20, 60), ("cba", [70, 10, 50])),
        (False, lambda store: store.fetch("b", 0, 60, reverse=True), ("cab", [70, 50, 10])),
        (False, lambda store: store.fetch("a", 20, 60, reverse=True), ("cba", [70, 10, 50])),
    ],
)
def test_a_scan_of_windows_uses_all_entries_that_it_passes(persistent, scan, rows):
    """Kafka Streams passes over deletions and over rows of other keys and times; only shown rows counted as used."""
    life, _ = cached_life(
        kind="window", retention_ms=1_000, size_ms=5, segment_interval_ms=60, persistent=persistent
    )
    life.store.put("b", 1, 10)
    life.commit()
    for key, value, start in (("c", 3, 70), ("b", None, 10), ("a", 2, 50)):
        life.store.put(key, value, start)
    list(scan(life.store))
    assert by_last_use(life) == rows


@pytest.mark.parametrize(
    ("persistent", "scan", "rows"),
    [
        (True, lambda store: store.find_sessions_range("b", "b", 500, 600), ("abc", [50, 10, 70])),
        (True, lambda store: store.fetch_range(None, "a", reverse=True), ("cba", [70, 10, 50])),
        (False, lambda store: store.fetch_range("a", "a"), ("bac", [10, 50, 70])),
        (False, lambda store: store.find_sessions("a", 30, 90, reverse=True), ("bca", [10, 70, 50])),
    ],
)
def test_a_scan_of_sessions_uses_all_entries_that_it_passes(persistent, scan, rows):
    life, _ = cached_life(kind="session", retention_ms=1_000, segment_interval_ms=60, persistent=persistent)
    for key, start in (("c", 70), ("a", 50), ("b", 10)):
        life.store.put(key, start, start, 1)
    list(scan(life.store))
    assert by_last_use(life) == rows


@pytest.mark.parametrize("persistent", [True, False])
def test_a_scan_takes_times_beyond_64_bits(persistent):
    life, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5, persistent=persistent)
    life.store.put("a", 1, 10)
    assert len(list(life.store.fetch_range("a", "a", -(10**20), 10**20))) == 1
    assert list(life.store.fetch_range("a", "b", 10**20, 10**21)) == []
    assert list(life.store.fetch_range("a", "a", -(10**21), -(10**20), reverse=True)) == []


def test_a_removal_on_disk_is_too_late_only_as_a_put():
    """As in Kafka Streams, where the cache puts what it flushes; such removals were not counted as dropped."""
    plain = Life(kind="session", retention_ms=10, segment_interval_ms=1)
    cached, _ = cached_life(kind="session", retention_ms=10, segment_interval_ms=1)
    cached.store._of_table = False
    for life in plain, cached:
        life.store.put("a", 100, 100, 1)
        life.commit()
        life.store.remove("a", 5, 5)
        life.commit()
    assert (plain.task.dropped, cached.task.dropped) == (0, 1)
    plain.store.put("a", 5, 5, None)
    assert plain.task.dropped == 1


@pytest.mark.parametrize("kind", ["window", "timestamped_window"])
def test_get_finds_no_window_among_duplicates_in_memory(kind):
    """Kafka Streams' store in memory looks for a key without a sequence number, which no row has."""
    life = Life(kind=kind, retention_ms=10, size_ms=5, retain_duplicates=True, persistent=False)
    life.store.put("a", 1, 5)
    assert life.store.get("a", 5) is None
    assert [row[:2] for row in life.store.fetch("a", 0, 10)] == [(5, 1)]


def test_a_window_of_no_key_is_refused_among_duplicates_in_memory():
    life = Life(kind="window", retention_ms=10, size_ms=5, retain_duplicates=True, persistent=False)
    assert life.store.get("a", 1) is None
    with pytest.raises(SerializationError, match="a key cannot be None"):
        life.store.get(None, 1)


def test_an_index_takes_memory_of_the_cache_and_leaves_the_cache_on_its_own():
    """Kafka Streams caches two entries for each row of such a store; only the row's own entry counted."""
    plain, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5, time_ordered=True)
    indexed, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5, time_ordered=True, indexed=True)
    for life in plain, indexed:
        life.store.put("a", 1, 10)
        life.store.put("a", 2, 10)
        life.commit()
    one, both = plain.cache.used, indexed.cache.used
    assert one < both < 2 * one  # an index entry has no value
    list(indexed.store.fetch_all(0, 20))  # uses the row's entry only, so the index entry is the oldest
    indexed.cache.max_bytes = both + one  # the index entry of b needs room
    indexed.store.put("b", 3, 20)
    assert [key[0] for key in indexed.store._held] == ["a", "b"]
    assert [key[0] for key in indexed.store._indexes] == ["b"]
    indexed.store.close()
    assert indexed.cache.used == 0


def test_an_index_entry_that_is_put_after_a_flush_flushes_its_row_again():
    """As in Kafka Streams: the row's own entry makes another entry leave, which flushes the row before its index."""
    life, heard = cached_life(kind="window", retention_ms=1_000, size_ms=5, time_ordered=True, indexed=True)
    life.store.put("a", 1, 10)
    life.cache.max_bytes = life.cache.used
    heard.clear()
    life.store.put("b", 2, 20)  # makes the changed row of a leave, then its index entry
    assert [update[:2] for update in heard] == [(Windowed("a", 10, 15), 1), (Windowed("b", 20, 25), 2)]
    heard.clear()
    life.commit()
    assert [update[:2] for update in heard] == [(Windowed("b", 20, 25), 2)]
    assert list(life.store.all()) == [(Windowed("a", 10, 15), 1), (Windowed("b", 20, 25), 2)]


TIMES = st.integers(0, 60)
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("aab"), TIMES, st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.just("look up"), st.sampled_from("aab"), TIMES, st.sampled_from([5, 60, 500])),
    st.tuples(st.sampled_from(["later", "flush", "log", "persist", "commit", "reopen"])),
)


def take(life: Life, now: int, step: str, key: str = "", after: int = 0, of_step: int | None = None) -> int:
    """Takes one of `STEPS` in a store of any kind, and returns the time afterwards.

    ``of_step`` is the value that is put, or the length of the time of a look-up.
    """
    store, kind = life.store, life.spec.kind.persistent_name
    if step == "put" and kind == "session":
        store.put(key, now + after - 5, now + after, of_step)
    elif step == "put":
        store.put(key, of_step, now + after)
    elif step == "look up" and (kind == "session" or hasattr(store, "fetch")):
        since = max(0, now - 20 + after)
        list((store.find_sessions if kind == "session" else store.fetch)(key, since, since + of_step))
    elif step == "look up":
        store.get(key)
    elif step == "flush":
        store.flush()
    elif step != "later":
        life.go_on(step)
    return now + 37 if step == "later" else now


@given(
    steps=st.lists(STEPS, min_size=5, max_size=40),
    kind=st.sampled_from(["window", "timestamped_window", "session"]),
    persistent=st.booleans(),
    retention=st.sampled_from([5, 40, 100]),
    max_bytes=st.sampled_from([1, 300, 10_000]),
    row_bytes=ROW_LIMITS,
    image_rows=IMAGE_LIMITS,
)
@example(  # the image still has a row that has expired
    steps=[("put", "a", 0, 1), ("look up", "a", 20, 500), ("put", "a", 60, 1), ("put", "a", 0, 2)],
    kind="timestamped_window",
    persistent=True,
    retention=40,
    max_bytes=1,
    row_bytes=100_000,
    image_rows=16,
)
def test_the_row_below_the_cache_is_the_same_in_the_image_and_in_the_store(
    steps, kind, persistent, retention, max_bytes, row_bytes, image_rows
):
    before = CachedTimes._before

    def checked(store, row_key):
        row = before(store, row_key)
        assert row[0] == store._stored(row_key)[0]
        return row

    now = 50
    with images_of(image_rows), mock.patch.object(CachedTimes, "_before", checked):
        spec = {"kind": kind, "persistent": persistent, "retention_ms": retention}
        life, _ = cached_life(
            True, max_bytes, row_bytes, **spec if kind == "session" else spec | {"size_ms": 10}
        )
        for step in steps:
            now = take(life, now, *step)


def test_a_row_that_a_look_up_has_read_is_read_once():
    life, heard = cached_life(kind="timestamped_window", retention_ms=100, size_ms=10)
    life.store.put("a", 1, 20, 25)
    life.commit()
    life.reopen()
    life.store.set_flush_listener(lambda *update: heard.append(update))
    assert list(life.store.fetch("a", 0, 100)) == [(20, 1, 25)]
    with mock.patch.object(life.store, "_read", side_effect=AssertionError):
        life.store.put("a", 2, 20, 30)
        life.store.put("a", 3, 30, 30)
    life.store.flush()
    assert [update[:3] for update in heard[-2:]] == [
        (Windowed("a", 20, 30), 2, 1),
        (Windowed("a", 30, 40), 3, None),
    ]


@given(
    steps=st.lists(STEPS, min_size=5, max_size=40),
    kind=st.sampled_from(["key_value", "timestamped", "window", "timestamped_window", "session"]),
    persistent=st.booleans(),
    max_bytes=st.sampled_from([1, 300, 10_000]),
    row_bytes=ROW_LIMITS,
)
@example(  # the row of an unheard update is in the backend when the deletion is heard
    steps=[("put", "a", 0, 1), ("persist",), ("put", "a", 0, None)],
    kind="timestamped",
    persistent=True,
    max_bytes=10_000,
    row_bytes=100_000,
)
@example(
    steps=[("put", "a", 0, 1), ("commit",), ("reopen",), ("put", "a", 0, 2), ("put", "a", 0, None)],
    kind="timestamped",
    persistent=True,
    max_bytes=10_000,
    row_bytes=100_000,
)
def test_a_listener_without_old_values_hears_the_same_updates(steps, kind, persistent, max_bytes, row_bytes):
    heard = []
    for send_old in (True, False):
        spec = {"kind": kind, "persistent": persistent}
        if kind != "key_value" and kind != "timestamped":
            spec |= {"retention_ms": 40} | ({} if kind == "session" else {"size_ms": 10})
        life, _ = cached_life(True, max_bytes, row_bytes, **spec)
        updates = []
        now = 50
        for step in [*steps, ("commit",)]:
            life.store.set_flush_listener(lambda *update, to=updates: to.append(update), send_old)
            now = take(life, now, *step)
        heard.append([(key, new, *rest) for key, new, _, *rest in updates])
        if not send_old:
            assert all(old is None for _, _, old, *_ in updates)
    assert heard[0] == heard[1]


def test_the_listener_and_a_join_get_an_immutable_value_as_it_was_put():
    class Seen(msgspec.Struct, frozen=True):
        number: int

    class Other(Seen, frozen=True):
        pass

    life, heard = cached_life(kind="timestamped", value_serde=JsonSerde(Seen))
    with pytest.raises(SerializationError):
        life.store.put("a", Seen(1j), 1)
    life.store.put("a", Other(1), 1)  # no object of the class itself: decoded anew
    first = Seen(2)
    life.store.put("b", first, 2)
    read = life.store.reader()
    assert read("b")[0] is first
    assert read("a")[0] == Seen(1)
    life.store.flush()
    assert [update[:2] for update in heard] == [("a", Seen(1)), ("b", first)]
    assert heard[1][1] is first
    life.store.put("b", None, 3)
    assert read("b") is None
    life.store.flush()
    assert [update[:3] for update in heard[2:]] == [("b", None, first)]


def test_a_put_that_raises_leaves_no_value_to_the_next_write():
    class Seen(msgspec.Struct, frozen=True):
        number: int

    life, heard = cached_life(kind="timestamped", value_serde=JsonSerde(Seen))
    fold = life.store.folder(lambda: Seen(0), lambda key, value, aggregate: Seen(aggregate.number + value))
    with pytest.raises(SerializationError):
        life.store.put("a", Seen(1j), 1)
    fold("b", 5, 2)
    assert life.store.reader()("b") == (Seen(5), 2)
    life.store.flush()
    assert [update[:2] for update in heard] == [("b", Seen(5))]


def test_a_listener_that_folds_gets_its_own_result_and_not_the_value_that_is_being_put():
    class Seen(msgspec.Struct, frozen=True):
        number: int

    life, _ = cached_life(kind="timestamped", max_bytes=1, value_serde=JsonSerde(Seen))
    fold = life.store.folder(lambda: Seen(0), lambda key, value, aggregate: Seen(aggregate.number + value))
    heard = []

    def listener(key, new, *_):
        heard.append((key, new))
        if key == "a":
            fold("b", 5, 2)

    life.store.set_flush_listener(listener, False)
    life.store.put("a", Seen(1), 1)
    life.store.flush()
    assert heard == [("a", Seen(1)), ("b", Seen(5))]


def test_a_listener_gets_a_copy_of_an_exact_value_that_can_change_in_place():
    class Count:
        number = 0

    class CountSerde(Serde[Count]):
        exact = Count

        def serialize(self, value):
            return b"%d" % value.number

        def deserialize(self, data):
            count = Count()
            count.number = int(data)
            return count

    life, heard = cached_life(kind="timestamped", value_serde=CountSerde())
    written = [Count()]
    life.store.put("a", written[0], 1)

    def add(key, value, count):
        count.number += value
        written.append(count)
        return count

    fold = life.store.folder(Count, add)
    for value in (1, 2):
        fold("b", value, value)
    assert life.store.reader()("a")[0] is not written[0]
    life.store.flush()
    assert [(key, new.number) for key, new, *_ in heard] == [("a", 0), ("b", 3)]
    assert not any(new is count for _, new, *_ in heard for count in written)


STEPS = st.lists(
    st.tuples(KEYS, st.integers(0, 8), st.sampled_from([None, 1, 2]), st.booleans(), st.booleans()),
    max_size=60,
)


@given(STEPS, st.sampled_from([200, 400, 100_000]))
def test_entries_of_a_key_are_found_in_order_after_any_evictions_and_flushes(steps, max_bytes):
    life, _ = cached_life(kind="window", retention_ms=1_000, size_ms=5, max_bytes=max_bytes)
    store = life.store
    for key, start, value, looks, flushes in steps:
        store.put(key, value, start)
        if flushes:
            store.flush()
        if looks:
            held = {row_key: entry.row for row_key, entry in store._held.items()}
            for name in "abc":
                rows = [(row_key[1:], held[row_key]) for row_key in held if row_key[0] == name]
                found = sorted((slot, row) for slot, row in rows if row[0] is not None and 2 <= slot[0] <= 6)
                assert store._in_cache_of(name, 2, 6) == found
    assert store._ordered == sum(map(len, store._of_key.values())) <= len(store._held)


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_write_of_a_row_in_the_cache_leaves_the_order_of_the_entries_alone(kind):
    life, _ = cached_life(kind=kind, retention_ms=1_000, **({"size_ms": 5} if kind == "window" else {}))
    store = life.store

    def put(value):
        store.put("a", value, 5) if kind == "window" else store.put("a", 5, 5, value)

    put(1)
    assert len(store._in_cache_of("a", 0, 9)) == 1
    with mock.patch.object(store, "_slot", side_effect=AssertionError("the write looks for the row's place")):
        put(2)
    assert [row[0] for _, row in store._in_cache_of("a", 0, 9)] == [store._values.keep(2)]


@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize("persistent", [True, False])
@given(STEPS, st.sampled_from([200, 400, 100_000]), st.sampled_from([3, 1_000]))
def test_look_ups_in_both_directions_find_all_rows_although_a_listener_writes_and_reads(
    kind, persistent, steps, max_bytes, retention
):
    sized = {"size_ms": 2} if kind == "window" else {}
    life, _ = cached_life(
        kind=kind, retention_ms=retention, persistent=persistent, max_bytes=max_bytes, **sized
    )
    store = life.store
    echoes = 0

    def put(key, start, value):
        store.put(key, value, start) if kind == "window" else store.put(key, start, start, value)

    def check():
        held = {row_key: entry.row[0] for row_key, entry in store._held.items()}
        for name in "abc":
            in_cache = {
                (row_key[1], row_key[-1] if kind == "session" else 0): value
                for row_key, value in held.items()
                if row_key[0] == name and value is not None
            }
            found = {}
            for reverse in (False, True):
                if kind == "window":
                    found[reverse] = [(row[0], 0) for row in store.fetch(name, 0, 20, reverse)]
                else:
                    found[reverse] = [row[:2] for row in store.find_sessions(name, 0, 20, reverse)]
            assert found[True] == found[False][::-1]
            assert found[False] == sorted(set(found[False]))
            assert in_cache.keys() <= set(found[False])

    def echo(*_):
        nonlocal echoes
        if echoes < 20:
            echoes += 1
            put("c", echoes % 9, None if echoes % 3 else 7)
            list(store._in_cache_of("c", 0, 9))

    store.set_flush_listener(echo)
    for key, start, value, looks, flushes in steps:
        put(key, start, value)
        if flushes:
            store.flush()
        if looks:
            check()
        assert store._ordered == sum(map(len, store._of_key.values())) <= len(store._held)
    check()
