from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import ROW_LIMITS, Life

from streamapp import ConfigError, LongSerde, Stores, StringSerde
from streamapp.query import MultiVersionedKeyQuery, execute
from streamapp.state.row_memory import RowMemory
from streamapp.state.versioned import NOT_PUT

KEYS = st.sampled_from(["", "a", "b"])
TIMES = st.integers(0, 400)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("delete"), KEYS, TIMES),
        st.tuples(st.just("get"), KEYS, st.one_of(st.none(), TIMES)),
        st.tuples(st.just("history"), KEYS, TIMES, TIMES),
        st.tuples(st.sampled_from(["commit", "log", "persist", "reopen"])),
    ),
    max_size=50,
)
RETENTION, SEGMENT = 100, 30


class Model:
    """Everything ever put, never cleaned; what may be read is decided when it is read."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, int | None]] = {}
        self.observed, self.dropped = -1, 0

    def put(self, key, value, timestamp):
        if timestamp < self.observed - RETENTION:
            self.dropped += 1
            return NOT_PUT
        self.observed = max(self.observed, timestamp)
        versions = self.versions.setdefault(key, {})
        later = min((t for t in versions if t > timestamp), default=None)
        before = max((t for t in versions if t < timestamp), default=None)
        replaced = versions.pop(timestamp, None)
        forgotten = replaced is not None and value is None and later is None
        if not forgotten or (before is not None and versions[before] is not None):
            versions[timestamp] = value
        return min((t for t in versions if t > timestamp), default=None)

    def rows(self, key):
        versions = sorted(self.versions.get(key, {}).items())
        ends = ([t for t, _ in versions] + [None])[1:]
        return [(value, t, end) for (t, value), end in zip(versions, ends, strict=bool(versions))]

    def get(self, key, as_of):
        for value, timestamp, end in reversed(self.rows(key)):
            if as_of is None or timestamp <= as_of:
                if value is None or (end is not None and as_of < self.observed - RETENTION):
                    return None
                return value, timestamp, end
        return None

    def live(self, key):
        floor = max(0, self.observed - RETENTION) // SEGMENT * SEGMENT
        return [row for row in self.rows(key) if row[0] is not None and (row[2] is None or row[2] >= floor)]


@given(STEPS, st.booleans(), ROW_LIMITS)
@example([("put", "a", 1, 0), ("delete", "a", 1), ("put", "a", 0, 0)], False, 0)
@example([("put", "a", 3, 1), ("put", "a", 5, 2), ("delete", "a", 5), ("put", "a", 3, 3)], False, 0)
def test_a_versioned_store_is_its_model_through_any_life(steps, log_each, row_bytes):
    life = Life(
        log_each,
        memory=RowMemory(row_bytes),
        kind="versioned",
        retention_ms=RETENTION,
        segment_interval_ms=SEGMENT,
    )
    model = Model()
    for step, *args in steps:
        store = life.store
        if step == "put":
            key, timestamp, value = args
            assert store.put(key, value, timestamp) == model.put(key, value, timestamp)
        elif step == "delete":
            key, timestamp = args
            late = timestamp < model.observed - RETENTION
            expected = None if late else model.get(key, timestamp)
            assert store.delete(key, timestamp) == expected
            model.put(key, None, timestamp)
        elif step == "get":
            assert store.get(*args) == model.get(*args)
        elif step == "history":
            key, low, high = args
            expected = [
                row
                for row in model.live(key)
                if row[1] <= high
                and (row[2] is None or (row[2] > low and high >= model.observed - RETENTION))
            ]
            assert list(store.history(key, low, high)) == expected
            assert list(store.history(key, low, high, ascending=False)) == expected[::-1]
        else:
            life.go_on(step)
    expected = [(key, *row) for key in sorted(model.versions) for row in model.live(key)]
    assert list(life.store.all()) == expected
    assert life.task.dropped == model.dropped
    life.commit()
    assert list(life.restored().all()) == expected


def test_the_changelog_has_each_version_at_its_own_time():
    for log_each in (False, True):
        life = Life(log_each, kind="versioned", retention_ms=100)
        life.store.put("a", 1, 10)
        life.store.put("a", None, 20)
        life.store.put("b", 3, 5)
        life.commit()
        assert life.task.logged == [
            (b"a", bytes(7) + b"\1", 10, ()),
            (b"a", None, 20, ()),
            (b"b", bytes(7) + b"\3", 5, ()),
        ]


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms"),
    [
        (0, 2_000),
        (60_000, 20_000),
        (60_001, 20_000),
        (300_000, 60_000),
        (3_600_000, 300_000),
        (86_400_000, 3_600_000),
    ],
)
def test_segments_are_as_long_as_in_java(retention_ms, segment_ms):
    """RocksDbVersionedKeyValueBytesStoreSupplier.defaultSegmentInterval."""
    made = Stores.versioned("v", StringSerde(), LongSerde(), history_retention=retention_ms)
    assert made.kind.segment_ms == segment_ms


def test_what_cannot_be_a_version_is_refused():
    with pytest.raises(ValueError, match="cannot have the timestamp -1"):
        Life(kind="versioned", retention_ms=RETENTION).store.put("a", 1, -1)
    with pytest.raises(ConfigError, match="segment_interval of store v has to be at least 1 ms, not 0"):
        Stores.versioned("v", StringSerde(), LongSerde(), history_retention=10, segment_interval=0)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ((None, None), [3, 2, 1]),
        ((0, 30_000), []),
        ((0, 40_000), [1]),
        ((52_000, 55_000), [3, 2]),
        ((56_000, None), [3]),
    ],
)
def test_a_query_of_versions_finds_what_kafka_streams_finds(times, found):
    """What is superseded at 50,000 lies in the segment from 40,000 on, in which a query up to 30,000 does not look."""
    store = Life(kind="versioned", retention_ms=60_000).store
    for value, timestamp in ((1, 0), (2, 50_000), (3, 55_000)):
        store.put("k", value, timestamp)
    asked = [
        execute(store, MultiVersionedKeyQuery("k", *times, ascending)).value for ascending in (False, True)
    ]
    newest_first, oldest_first = [[value for value, _, _ in versions] for versions in asked]
    assert newest_first == found
    assert oldest_first == found[::-1]


def test_a_query_of_versions_needs_times_in_order():
    with pytest.raises(ValueError, match="must not be after time_to"):
        MultiVersionedKeyQuery("k", 30, 10)
