"""Look-ups of sessions that leave notes, beside look-ups that mark each entry at once."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import Life

from streamapp.records import Windowed
from streamapp.state import cached_sessions
from streamapp.state.cache import RecordCache
from streamapp.state.formats import MAX_LONG
from streamapp.state.noted_look_ups import ALL_KEYS, NotedLookUps


class MarkingLookUps(NotedLookUps):
    """A look-up marks each entry that it passes at once, one after the other, as in Kafka Streams."""

    def note(self, key: Any, start: Any, backward: bool) -> None:
        place = self._place_among_all if key is ALL_KEYS else self._place_in_key
        passed = [
            (place(row_key), entry)
            for row_key, entry in self._entries.items()
            if (key is ALL_KEYS or row_key[0] == key) and place(row_key) >= start
        ]
        for _, entry in sorted(passed, reverse=backward):
            entry.used = self._use()


class AlwaysDeleted(dict[Any, int]):
    """Makes each look-up pass by the short way for keys without deleted sessions."""

    def get(self, *_: Any) -> int:
        return MAX_LONG


class Sessions:
    """A cached session store. A table shares the cache, and its writes make the sessions leave, too."""

    def __init__(self, max_bytes: int, log_each: bool, **spec: Any) -> None:
        cache = RecordCache(max_bytes)
        self.life = Life(log_each, cache, kind="session", segment_interval_ms=20, cached=True, **spec)
        self.heard: list[Any] = []
        self.life.store.set_flush_listener(
            lambda *update: self.heard.append((*update, self.life.task.offset))
        )
        self.table = Life(log_each, cache, kind="timestamped", cached=True)
        self.table.store.set_flush_listener(lambda *update: self.heard.append(update))

    def run(self, step: str, *args: Any) -> Any:
        store = self.life.store
        if step == "merge":
            key, time, gap = args
            found = list(store.find_sessions(key, time - gap, time + gap))
            for start, end, _ in found:
                store.remove(key, start, end)
            start, end = min([time, *(row[0] for row in found)]), max([time, *(row[1] for row in found)])
            store.put(key, start, end, len(found))
            return found
        if step == "find":
            return list(store.find_sessions(*args))
        if step == "get":
            return store.get(*args)
        if step == "remove":
            return store.remove(*args)
        if step == "table":
            return self.table.store.put(args[0], 1, 1)
        if step == "flush":
            return store.flush()
        if step == "flush_key":
            key, start, end = args
            return store.flush_key(Windowed(key, start, end))
        return self.life.commit()

    def state(self) -> Any:
        return list(self.life.store._held), self.heard, self.life.task.logged, self.life.cache.used


KEYS = st.sampled_from(["a", "b", "cc"])
TIMES = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("merge"), KEYS, TIMES, st.integers(0, 4)),
        st.tuples(st.just("merge"), KEYS, TIMES, st.integers(0, 4)),
        st.tuples(st.just("find"), KEYS, TIMES, TIMES, st.booleans()),
        st.tuples(st.sampled_from(["get", "remove", "flush_key"]), KEYS, TIMES, TIMES),
        st.tuples(st.just("table"), KEYS),
        st.tuples(st.sampled_from(["flush", "commit"])),
    ),
    max_size=60,
)

FULL = [*(("merge", "a", time, 0) for time in (0, 10, 20, 30, 40)), ("commit",), ("merge", "b", 50, 0)]
"""Five sessions fill the cache of 420 bytes, and the sixth one makes the first one leave."""
ALL_BACKWARD = ("find", "b", 0, 60, True)
MORE = [("merge", "b", 60, 0), ("merge", "b", 70, 0)]


@given(
    STEPS,
    st.sampled_from([200, 400, 700, 1_200, 100_000]),
    st.sampled_from([10, 1_000]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 4, 1_000]),
)
@example([*FULL, ("find", "a", 25, 60, True), ("find", "a", 5, 60, True), *MORE], 420, 1_000, True, True, 0)
@example([*FULL, ("find", "a", 5, 60, True), ("get", "a", 40, 40), *MORE, *FULL], 420, 1_000, True, True, 0)
@example([*FULL, ALL_BACKWARD, *MORE], 420, 1_000, True, False, 1_000)
@example([*FULL, ALL_BACKWARD, *MORE], 420, 1_000, True, False, 0)
def test_notes_of_look_ups_evict_the_same_sessions_at_the_same_time_as_marks(
    steps, max_bytes, retention, log_each, persistent, walked
):
    spec = {"retention_ms": retention, "persistent": persistent}
    with mock.patch.object(cached_sessions, "WALKED", walked):
        noting = Sessions(max_bytes, log_each, **spec)
        with mock.patch.object(cached_sessions, "NotedLookUps", MarkingLookUps):
            marking = Sessions(max_bytes, log_each, **spec)
        marking.life.store._deleted_to = AlwaysDeleted()
        for offset, step in enumerate(steps):
            noting.life.task.offset = marking.life.task.offset = offset
            assert noting.run(*step) == marking.run(*step)
            assert noting.state() == marking.state()
            assert noting.life.store._look_ups._count <= len(noting.life.store._held) + 1


def places_asked(look_ups: NotedLookUps) -> list[Any]:
    """Fills as the search asks for the places of rows."""
    asked: list[Any] = []
    place = look_ups._place_in_key
    look_ups._place_in_key = lambda row_key: asked.append(row_key) or place(row_key)
    return asked


def test_a_session_that_grows_marks_none_of_its_earlier_ends():
    sessions = Sessions(10_000_000, False, retention_ms=1_000_000)
    asked = places_asked(sessions.life.store._look_ups)
    for time in range(500):
        sessions.run("merge", "a", time, 5)
    assert len(sessions.life.store._held) == 500
    assert asked == []


def test_a_growing_session_in_a_full_cache_marks_its_earlier_ends_seldom():
    sessions = Sessions(60_000, False, retention_ms=1_000_000)
    for number in range(2_000):
        sessions.run("merge", f"key {number}", 0, 0)
    sessions.run("commit")
    held = sessions.life.store._held
    old = len(held)
    asked = places_asked(sessions.life.store._look_ups)
    for time in range(300):
        sessions.run("merge", "a", time, 5)
    grown = sum(row_key[0] == "a" for row_key in held)
    assert grown == 300
    assert len(held) - grown < old - 200  # old sessions have left one by one
    assert len(asked) < 3 * 300


def test_look_ups_that_nothing_follows_leave_no_more_notes_than_entries():
    sessions = Sessions(10_000, False, retention_ms=1_000)
    for time in range(5):
        sessions.run("merge", "a", time, 1)
    for since in range(1_000):
        sessions.run("find", "a", 20 * since, 20 * since, True)
        assert sessions.life.store._look_ups._count <= 5
