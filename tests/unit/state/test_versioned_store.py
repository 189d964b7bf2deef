from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import ROW_LIMITS, Life

from streamapp import ConfigError, LongSerde, SerializationError, Stores, StringSerde
from streamapp.query import MultiVersionedKeyQuery, execute
from streamapp.records import RecordBatch
from streamapp.state import versioned
from streamapp.state.backend import WriteSet
from streamapp.state.row_memory import RowMemory
from streamapp.state.versioned import NOT_PUT

KEYS = st.sampled_from(["", "a", "b"])
TIMES = st.integers(0, 400)
LIFE = ["commit", "log", "persist", "reopen"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("delete"), KEYS, TIMES),
        st.tuples(st.just("get"), KEYS, st.one_of(st.none(), TIMES)),
        st.tuples(st.just("history"), KEYS, TIMES, TIMES),
        st.tuples(st.sampled_from(LIFE)),
    ),
    max_size=50,
)
RETENTION, SEGMENT = 100, 30
MOST = 2 * versioned._ROW_VERSIONS
FOREVER = 10**12


@contextmanager
def rows_of(versions):
    """New earlier rows have so many versions."""
    with mock.patch.object(versioned, "_ROW_VERSIONS", versions):
        yield


class CountedTable:
    """A table of a backend that notes the keys which the store reads."""

    def __init__(self, table):
        self.table, self.read = table, []

    def get(self, key):
        self.read.append(key)
        return self.table.get(key)

    def range(self, start, end, reverse=False):
        for row in self.table.range(start, end, reverse):
            self.read.append(row[0])
            yield row


class Commits:
    """The life of a store that remembers no clean rows: each put reads what it needs from the backend."""

    def __init__(self, **kind):
        self.life = Life(memory=RowMemory(0), kind="versioned", **kind)
        self.store = self.life.store
        self.table = self.store._table = CountedTable(self.store._table)

    def put(self, value, timestamp):
        """Puts and commits a version. Returns the numbers of rows that were read and written."""
        self.table.read.clear()
        self.store.put("a", value, timestamp)
        self.store.log_dirty()
        write_set = WriteSet()
        self.store.drain(write_set)
        self.life.backend.write(write_set)
        return len(self.table.read), len([key for key, _ in write_set.puts["s"] if key != versioned._META])

    def rows(self):
        """The numbers of versions of the earlier rows, oldest first."""
        stored = self.life.backend.table("s").range(versioned._EARLIER, versioned._META)
        return [len(self.store._unpack(data)) for _, data in stored]


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


@given(STEPS, st.booleans(), ROW_LIMITS, st.sampled_from([1, 2, 16]))
@example([("put", "a", 1, 0), ("delete", "a", 1), ("put", "a", 0, 0)], False, 0, 16)
@example([("put", "a", 3, 1), ("put", "a", 5, 2), ("delete", "a", 5), ("put", "a", 3, 3)], False, 0, 16)
def test_a_versioned_store_is_its_model_through_any_life(steps, log_each, row_bytes, row_versions):
    with rows_of(row_versions):
        _compare_with_model(steps, log_each, row_bytes)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "put", "delete", "end", "get", "history", *LIFE]),
            st.sampled_from([0, 1, 1, 10]),
            st.sampled_from([0, 0, 0, 1, 5, 20, 90]),
        ),
        min_size=30,
        max_size=150,
    ),
    st.sampled_from([1, 2, 4]),
    ROW_LIMITS,
)
@example(
    [
        *[("put", 1, 0), ("end", 1, 0), ("end", 1, 0), ("commit", 0, 0), ("put", 0, 0), ("end", 0, 0)],
        *[("put", 0, 1), ("end", 0, 1), ("put", 0, 2), ("commit", 0, 0), ("get", 0, 0)],
    ],
    1,
    0,
)
@example([("end", 1, 0), ("put", 0, 0), ("delete", 0, 0), ("delete", 0, 0), ("put", 0, 1)], 1, 0)
def test_a_history_of_many_rows_is_its_model(moves, row_versions, row_bytes):
    """Mostly in order, so that the history has many rows, and old ones expire."""
    steps, now = [], 0
    for number, (move, forward, back) in enumerate(moves):
        now += forward
        at = max(0, now - back)
        if move in ("put", "end"):
            steps.append(("put", "a", at, number if move == "put" else None))
        elif move == "history":
            steps.append(("history", "a", max(0, at - forward), at))
        elif move in LIFE:
            steps.append((move,))
        else:
            steps.append((move, "a", at))
    with rows_of(row_versions):
        _compare_with_model(steps, False, row_bytes)


def _compare_with_model(steps, log_each, row_bytes):
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


def test_a_put_in_order_reads_and_writes_one_row_for_any_number_of_versions():
    commits = Commits(retention_ms=FOREVER)
    rows = [commits.put(number, number) for number in range(1_000)]
    assert {read for read, _ in rows} == {1}
    assert [written for _, written in rows].count(1) == 1_000 - len(commits.rows())
    assert max(written for _, written in rows) == 2
    assert len(commits.rows()) <= 1_000 // versioned._ROW_VERSIONS


def test_late_puts_and_reads_of_the_past_read_one_earlier_row():
    commits = Commits(retention_ms=FOREVER)
    for number in range(1_000):
        commits.put(number, 10 * number)
    for number in range(0, 900, 7):
        read, written = commits.put(-number, 10 * number + 5)
        assert read == 2
        assert written <= 3
        commits.table.read.clear()
        assert commits.store.get("a", 10 * number + 6) == (-number, 10 * number + 5, 10 * number + 10)
        assert len(commits.table.read) == 2
    commits.table.read.clear()
    assert len(list(commits.store.history("a", 5_000, 5_100))) == 12
    assert len(commits.table.read) <= 4
    assert max(commits.rows()) <= MOST


def test_rows_stay_small_if_one_commit_has_all_versions():
    commits = Commits(retention_ms=FOREVER)
    for number in range(1_000):
        commits.store.put("a", number, number)
    commits.put(0, 1_000)
    for number in range(500):
        commits.store.put("a", number, 200_000 + number)
        commits.store.put("a", number, 100 + number // 500)
    commits.put(0, 300_000)
    assert max(commits.rows()) <= MOST
    assert commits.store.get("a", 101)[:2] == (101, 101)


def test_earlier_rows_are_deleted_when_they_expire():
    commits = Commits(retention_ms=1_000, segment_interval_ms=100)
    for number in range(2_000):
        read, written = commits.put(number, 5 * number)
        assert read + written <= 12
        assert len(commits.rows()) <= 1 + 1_100 // (5 * versioned._ROW_VERSIONS)
    commits.put(1, 20_000)
    assert commits.rows() == []


def test_earlier_rows_that_expire_within_a_commit_are_not_written():
    commits = Commits(retention_ms=1_000, segment_interval_ms=100)
    for commit in range(3):
        for number in range(1_000):
            commits.store.put("a", number, 10_000 * commit + 5 * number)
            if number == 500:
                commits.store.log_dirty()
        commits.put(0, 10_000 * commit + 5_000)
        assert len(commits.rows()) <= 1 + 1_100 // (5 * versioned._ROW_VERSIONS)


def test_an_oldest_row_that_late_puts_have_cut_expires():
    commits = Commits(retention_ms=1_000, segment_interval_ms=100)
    for number in range(100):
        commits.put(number, 10 * number)
    for number in range(100):
        commits.put(number, number)
    assert len(commits.rows()) > 100 // versioned._ROW_VERSIONS
    for number in range(10):
        commits.put(number, 100_000 + number)
    assert commits.rows() == []


def test_a_latest_row_with_many_versions_is_read_and_cut():
    with rows_of(FOREVER):
        commits = Commits(retention_ms=FOREVER)
        for number in range(100):
            commits.store.put("a", number, number)
        commits.put(100, 100)
    assert commits.rows() == []
    assert len(commits.life.backend.table("s").get(b"\0a")) == 101 * 20
    commits.life.reopen()
    store = commits.life.store
    expected = [(number, number, number + 1) for number in range(100)]
    assert list(store.history("a")) == [*expected, (100, 100, None)]
    store.put("a", 101, 101)
    commits.life.commit()
    assert max(commits.rows()) <= MOST
    assert list(store.history("a"))[:100] == expected
    assert store.get("a", 50) == expected[50]


def test_a_restore_in_batches_gives_the_same_rows():
    other, count = Life(kind="versioned", retention_ms=FOREVER), 1_000
    for start in range(0, count, 50):
        write_set = WriteSet()
        batch = RecordBatch(
            [b"a"] * 50,
            [number.to_bytes(8, "big") for number in range(start, start + 50)],
            range(start, start + 50),
            range(start, start + 50),
        )
        other.store.restore(batch, write_set)
        # The rows of the batch, a latest row, the observed stream time, and no row of earlier batches.
        assert len(write_set.puts["s"]) <= 50 // versioned._ROW_VERSIONS + 3
        other.backend.write(write_set)
    assert [row[:2] for row in other.store.history("a")] == [(number, number) for number in range(count)]


def test_a_late_version_looks_at_few_of_the_rows_that_wait():
    life = Life(kind="versioned", retention_ms=FOREVER)
    store = life.store
    for number in range(4_000):
        store.put("k", number, number)
    life.commit()
    looked, overlaid = [], versioned._overlaid

    def counted(stored, order, *args):
        return overlaid(stored, (looked.append(end) or end for end in order), *args)

    with mock.patch.object(versioned, "_overlaid", counted):
        for number in range(1, 4_000, versioned._ROW_VERSIONS):
            store.put("k", -number, number)
            assert store.get("k", number)[0] == -number
    assert len(looked) < 5 * 4_000 // versioned._ROW_VERSIONS
    life.commit()
    assert store.get("k", 17) == (-17, 17, 18)


def restored_with_a_bad_version():
    """A store whose changelog has a version that the serde refuses, after its restoration and a commit."""
    life = Life(kind="versioned", retention_ms=RETENTION, segment_interval_ms=SEGMENT)
    write_set = WriteSet()
    values = [(1).to_bytes(8, "big"), b"bad", (3).to_bytes(8, "big")]
    life.store.restore(RecordBatch([b"a"] * 3, values, [10, 20, 30], [0, 1, 2]), write_set)
    life.backend.write(write_set)
    return life


def test_a_read_of_a_version_decodes_no_other():
    """As in Kafka Streams; the restoration, and each read of the key, raised the error of the other version."""
    life = restored_with_a_bad_version()
    for _ in range(2):
        store = life.store
        assert store.get("a", 15) == (1, 10, 20)
        assert store.get("a") == (3, 30, None)
        assert list(store.history("a", 30)) == [(3, 30, None)]
        with pytest.raises(SerializationError, match="got 3 bytes: b'bad'"):
            store.get("a", 25)
        for rows in store.history("a"), store.all():
            with pytest.raises(SerializationError, match="got 3 bytes: b'bad'"):
                list(rows)
        life.reopen()


def test_a_put_keeps_the_bytes_of_other_versions():
    life = restored_with_a_bad_version()
    life.reopen()
    life.store.put("a", 4, 40)
    life.commit()
    life.reopen()
    assert life.store.get("a") == (4, 40, None)
    with pytest.raises(SerializationError, match="got 3 bytes: b'bad'"):
        life.store.get("a", 25)
