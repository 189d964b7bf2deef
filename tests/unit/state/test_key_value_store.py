from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import ROW_LIMITS, Life, TaggedSerde

from streamapp.errors import InvalidStoreError, SerializationError
from streamapp.serdes import BytesSerde, DoubleSerde, LongSerde, StringSerde
from streamapp.serdes.base import Serde
from streamapp.state.cache import RecordCache
from streamapp.state.row_memory import RowMemory
from streamapp.state.spec import StoreSpec

KEYS = st.sampled_from(["", "a", "a\0", "aa", "ab", "b", "ü", "z"])
VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES, st.integers(0, 1000)),
        st.tuples(st.sampled_from(["log", "persist", "commit", "reopen", "get"]), KEYS),
        st.tuples(st.sampled_from(["range", "reverse", "prefix"]), KEYS, KEYS),
    ),
    max_size=40,
)


class RefusingSerde(TaggedSerde):
    @staticmethod
    def serialize(value: list[str]) -> bytes:
        if not all(isinstance(each, str) for each in value):
            raise SerializationError("no list of text")
        return TaggedSerde.serialize(value)


def in_order(model: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(model.items(), key=lambda entry: entry[0].encode())


@given(STEPS, st.booleans(), ROW_LIMITS)
def test_a_timestamped_store_is_a_sorted_dict_through_any_life(steps, log_each, row_bytes):
    life = Life(log_each, memory=RowMemory(row_bytes), kind="timestamped")
    model: dict[str, tuple[int, int]] = {}
    for step, key, *rest in steps:
        if step == "put":
            value, timestamp = rest
            life.store.put(key, value, timestamp)
            if value is None:
                model.pop(key, None)
            else:
                model[key] = (value, timestamp)
        elif step in ("log", "persist", "commit", "reopen"):
            life.go_on(step)
        elif step == "get":
            assert life.store.get(key) == model.get(key)
        elif step == "prefix":
            expected = [entry for entry in in_order(model) if entry[0].encode().startswith(key.encode())]
            assert list(life.store.prefix_scan(key)) == expected
        else:
            low, high = key.encode(), rest[0].encode()
            expected = [entry for entry in in_order(model) if low <= entry[0].encode() <= high]
            if step == "reverse":
                expected.reverse()
            assert list(life.store.range(key, rest[0], reverse=step == "reverse")) == expected
    assert list(life.store.all()) == in_order(model)
    assert life.store.approximate_num_entries() == len(model)


@given(STEPS, st.booleans())
def test_a_store_restored_from_its_changelog_is_the_same(steps, log_each):
    life = Life(log_each, kind="timestamped")
    for step, key, *rest in steps:
        if step == "put":
            life.store.put(key, *rest)
        elif step in ("commit", "persist"):
            life.commit()
    life.commit()
    assert list(life.restored().all()) == list(life.store.all())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "scan", "log", "persist", "commit", "reopen"]),
            KEYS,
            st.none() | st.lists(st.text("abü", max_size=3), min_size=1, max_size=3),
            st.integers(0, 1000),
        ),
        max_size=40,
    ),
    st.booleans(),
    ROW_LIMITS,
    st.sampled_from([StringSerde(), LongSerde()]),
)
def test_an_operator_writes_in_one_call_what_put_writes(steps, log_each, row_bytes, keys):
    serdes = {"key_serde": keys, "value_serde": TaggedSerde()}
    by_put, in_one_call = (
        Life(log_each, memory=RowMemory(row_bytes), kind="timestamped", **serdes) for _ in range(2)
    )
    scans = []
    for step, text, value, timestamp in steps:
        key = text if type(keys) is StringSerde else len(text.encode())
        if step == "put":
            by_put.store.put(key, value, timestamp)
            in_one_call.store.writer()(key, value, timestamp)
        elif step == "scan":  # is read to its end only after the later writes
            scans.append([life.store.range(key) for life in (by_put, in_one_call)])
            begun = [next(scan, None) for scan in scans[-1]]
            assert begun[0] == begun[1]
        else:
            by_put.go_on(step)
            in_one_call.go_on(step)
        assert in_one_call.store.get(key) == by_put.store.get(key)
        if not log_each:  # otherwise a write has a further step, and goes through `put`
            store = in_one_call.store
            assert store.writer() != store.put
            assert store.dirty_bytes == sum(store._weigh(*row) for row in store._dirty.items())
    for left, right in scans:
        assert list(left) == list(right)
    assert in_one_call.task.logged == by_put.task.logged
    assert list(in_one_call.store.all()) == list(by_put.store.all())


@pytest.mark.parametrize("log_each", [False, True])
@pytest.mark.parametrize("with_headers", [False, True])
def test_the_join_writes_subscriptions_in_one_call_as_put_writes_them(log_each, with_headers):
    kind = {"kind": "subscription", "with_headers": True} if with_headers else {"kind": "subscription"}
    by_put, in_one_call = (
        Life(log_each, key_serde=BytesSerde(), value_serde=TaggedSerde(), **kind) for _ in range(2)
    )
    headers = (("h", b"1"),)
    writes = [(b"a", ["1"], 1, headers), (b"b", ["2"], 2, headers), (b"c", None, 3, headers)]
    later = [(b"a", ["3"], 4, ()), (b"b", None, 5, headers), (b"b", None, 6, ())]
    for life in (by_put, in_one_call):
        write = life.store.put if life is by_put else life.store.subscriber()
        for row in writes:
            write(*row)
        life.commit()
        for row in writes + later:
            write(*row)
        life.commit()
    assert in_one_call.task.logged == by_put.task.logged
    assert list(in_one_call.store.all()) == list(by_put.store.all())
    assert any(each[3] for each in by_put.task.logged)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((1, ["a"], 0), "key"),
        (("a", [1], 0), "value"),
        (("a", ["a"], 2**63), "timestamp"),
        ((None, ["a"], 0), "None"),
    ],
)
def test_an_operator_gets_the_errors_of_put(wrong, message):
    life = Life(kind="timestamped", value_serde=RefusingSerde())
    with pytest.raises((SerializationError, ValueError)) as by_put:
        life.store.put(*wrong)
    with pytest.raises(type(by_put.value)) as in_one_call:
        life.store.writer()(*wrong)
    assert str(in_one_call.value) == str(by_put.value)
    assert message in str(in_one_call.value)
    assert life.store.get("a") is None


def test_only_a_store_that_is_looked_into_keeps_written_rows_in_memory():
    memory = RowMemory(100_000)
    life = Life(memory=memory, kind="timestamped")
    life.store.put("a", 1, 10)
    assert life.store.get("a") == (1, 10)
    life.commit()
    assert memory.used_bytes == 0
    assert life.store.get("a") == (1, 10)
    read = memory.used_bytes
    assert read > 0
    life.store.put("b", 2, 20)
    life.commit()
    assert memory.used_bytes > read
    assert life.store.get("b") == (2, 20)


def test_the_changelog_has_the_last_value_per_key_and_commit():
    life = Life(kind="timestamped")
    life.store.put("a", 1, 10)
    life.store.put("b", 2, 20)
    life.store.put("a", 3, 30)
    assert life.task.logged == []
    life.commit()
    assert life.task.logged == [
        (b"a", b"\0\0\0\0\0\0\0\x03", 30, ()),
        (b"b", b"\0\0\0\0\0\0\0\x02", 20, ()),
    ]
    life.commit()
    assert len(life.task.logged) == 2


def test_each_write_is_logged_at_once_where_the_task_asks_for_it():
    life = Life(True, kind="key_value", value_serde=StringSerde())
    life.task.timestamp = 7
    life.store.put("a", "x")
    life.store.put("a", "y", 9)
    assert life.store.delete("a") == "y"
    assert life.store.put_if_absent("a", "z") is None
    assert life.store.put_if_absent("a", "w") == "z"
    logged = [(b"a", b"x", 7, ()), (b"a", b"y", 9, ()), (b"a", None, 7, ()), (b"a", b"z", 7, ())]
    assert life.task.logged == logged
    life.commit()
    assert life.task.logged == logged


def test_a_store_without_logging_logs_nothing():
    for log_each in (False, True):
        life = Life(log_each, kind="key_value", logged=False)
        life.store.put("a", 1)
        life.commit()
        assert life.task.logged == []
        assert life.store.get("a") == 1


def test_what_is_put_between_flush_and_persist_belongs_to_the_next_commit():
    life = Life(kind="key_value")
    life.store.put("a", 1)
    life.store.put("b", 1)
    life.store.log_dirty()
    life.store.put("a", 2)
    life.store.put("c", 2)
    life.persist()
    assert dict(life.backend.table("s").range(None, None)).keys() == {b"a", b"b"}
    assert life.backend.table("s").get(b"a") == b"\0\0\0\0\0\0\0\x01"
    assert list(life.store.all()) == [("a", 2), ("b", 1), ("c", 2)]
    life.commit()
    assert life.backend.table("s").get(b"a") == b"\0\0\0\0\0\0\0\x02"


def test_a_mutable_value_may_be_changed_by_whoever_gets_it():
    life = Life(kind="timestamped", value_serde=TaggedSerde())
    mine = ["a"]
    life.store.put("k", mine, 1)
    mine.append("b")
    got, _ = life.store.get("k")
    got.append("c")
    assert life.store.get("k") == (["a"], 1)
    assert list(life.store.all()) == [("k", (["a"], 1))]


def test_values_that_do_not_fit_the_serde_fail_where_they_are_put():
    life = Life(kind="key_value")
    with pytest.raises(SerializationError):
        life.store.put("a", "not a number")
    with pytest.raises(SerializationError):
        life.store.put(1, 1)
    with pytest.raises(SerializationError, match="'s': a key cannot be None"):
        life.store.put(None, 1)
    with pytest.raises(SerializationError, match="no key serde"):
        Life(kind="key_value", key_serde=None)


@pytest.mark.parametrize(
    ("kind", "behind"),
    [("key_value", (1,)), ("timestamped", (1,)), ("timestamped_window", (1, 0)), ("session", (0, 5, 1))],
)
@pytest.mark.parametrize(("serde", "bad"), [(StringSerde(), "half a pair: \ud83d"), (LongSerde(), 2**63)])
def test_a_key_without_bytes_fails_where_it_is_put(kind, behind, serde, bad):
    windowed = kind in ("timestamped_window", "session")
    times = {"retention_ms": 100, "segment_interval_ms": 30, "size_ms": 10} if windowed else {}
    life = Life(kind=kind, key_serde=serde, **times)
    with pytest.raises(SerializationError):
        life.store.put(bad, *behind)
    life.commit()
    assert not life.task.logged


def test_keys_are_equal_when_their_bytes_are():
    life = Life(kind="key_value", key_serde=DoubleSerde())
    life.store.put(0.0, 1)
    life.store.put(-0.0, 2)
    assert life.store.get(0.0) == 1
    life = Life(kind="key_value", key_serde=LongSerde())
    life.store.put(True, 1)
    assert life.store.get(1) == 1


def test_a_range_goes_on_over_what_it_began_with():
    life = Life(kind="key_value")
    for key in "abcd":
        life.store.put(key, 1)
    life.persist()
    life.store.put("bb", 1)
    seen = []
    for key, _ in life.store.all():
        seen.append(key)
        life.store.delete(key)
    assert seen == ["a", "b", "bb", "c", "d"]
    assert list(life.store.all()) == []


def test_prefix_scans_take_bytes():
    life = Life(kind="subscription", key_serde=BytesSerde(), value_serde=BytesSerde())
    life.store.put(b"\0\xff", b"1", 1)
    life.store.put(b"\0\xff\0", b"2", 2)
    life.store.put(b"\1", b"3", 3)
    assert list(life.store.prefix_scan(b"\0\xff")) == [(b"\0\xff", (b"1", 1)), (b"\0\xff\0", (b"2", 2))]
    assert list(life.store.prefix_scan(b"\xff")) == []


def test_reads_do_not_ask_the_backend_twice():
    life = Life(kind="key_value")
    life.store.put("a", 1)
    life.commit()
    life.reopen()
    assert life.store.get("a") == 1
    life.backend.close()
    assert life.store.get("a") == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "delete", "commit"]), KEYS, st.integers(0, 9)), max_size=40
    )
)
def test_an_lru_store_keeps_the_entries_used_last(steps):
    life = Life(True, kind="lru", max_entries=3, persistent=False)
    model: dict[str, int] = {}
    for step, key, value in steps:
        if step == "commit":
            life.commit()
        elif step == "put":
            model.pop(key, None)
            model[key] = value
            if len(model) > 3:
                del model[next(iter(model))]
            life.store.put(key, value)
        elif step == "delete":
            assert life.store.delete(key) == model.pop(key, None)
        else:
            if key in model:
                model[key] = model.pop(key)
            assert life.store.get(key) == model.get(key)
    assert life.store.approximate_num_entries() == len(model)
    assert list(life.store.all()) == in_order(model)
    restored = life.restored()
    assert {key: restored.get(key) for key in model} == model
    assert restored.approximate_num_entries() == len(model)
    life.commit()
    life.reopen()
    assert {key: life.store.get(key) for key in model} == model


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "put", "delete", "commit"]), KEYS, st.integers(0, 9)), max_size=40
    ),
    st.booleans(),
    st.booleans(),
)
@example([("put", "a", 1), ("put", "b", 1), ("put", "z", 1), ("put", "a", 2)], False, False)
@example([("put", "a", 1), ("put", "b", 1), ("put", "z", 1), ("put", "a", 2)], True, False)
def test_a_restored_lru_store_evicts_the_same_rows_as_before(steps, timestamped, log_each):
    kind, when = ("timestamped", (5,)) if timestamped else ("lru", ())
    life = Life(log_each and not timestamped, kind=kind, max_entries=3, persistent=False)
    for step, key, value in steps:
        if step == "commit":
            life.commit()
        elif step == "put":
            life.store.put(key, value, *when)
        else:
            life.store.delete(key)
    life.commit()
    restored = life.restored()
    for key in ("n1", "n2", "n3"):
        assert list(restored.all()) == list(life.store.all())
        for store in (restored, life.store):
            store.put(key, 0, *when)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "put", "delete", "flush", "commit"]), KEYS, st.integers(0, 9)),
        max_size=40,
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([200, 100_000]),
)
def test_a_restored_lru_store_behind_a_record_cache_has_the_rows_in_the_same_order(
    steps, timestamped, log_each, max_bytes
):
    kind, when = ("timestamped", (5,)) if timestamped else ("lru", ())
    cache = RecordCache(max_bytes)
    life = Life(log_each, cache, kind=kind, max_entries=3, persistent=False, cached=True)
    life.store.set_flush_listener(lambda *_: None)
    for step, key, value in steps:
        if step == "commit":
            life.commit()
        elif step == "flush":
            life.store.flush()
        elif step == "put":
            life.store.put(key, value, *when)
        else:
            life.store.delete(key)
    life.commit()
    assert list(life.restored()._rows.items()) == list(life.store._rows.items())


def test_an_lru_store_logs_what_it_evicts_before_what_it_puts():
    life = Life(True, kind="lru", max_entries=1, persistent=False)
    life.task.timestamp = 5
    life.store.put("a", 1)
    life.store.put("b", 2)
    assert [(key, value is None) for key, value, _, _ in life.task.logged] == [
        (b"a", False),
        (b"a", True),
        (b"b", False),
    ]
    assert list(life.store.all()) == [("b", 2)]


def test_a_timestamped_store_with_a_limit_is_an_lru_store():
    life = Life(True, kind="timestamped", max_entries=2, persistent=False)
    for at, key in enumerate("abc"):
        life.store.put(key, at, 10 + at)
    assert list(life.store.all()) == [("b", (1, 11)), ("c", (2, 12))]
    assert life.restored().get("b") == (1, 11)
    assert life.restored().get("a") is None
    life.commit()
    life.reopen()
    assert life.store.get("c") == (2, 12)
    assert life.store.delete("c") == (2, 12)


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidStoreError, match="has to be a StoreKind, such as .* not 'heap'"):
        StoreSpec(name="s", kind="heap")


class CountingSerde(Serde[tuple[str, ...]]):
    """Values that cannot change, and how often one was decoded."""

    immutable = True

    def __init__(self) -> None:
        self.decoded = 0

    def serialize(self, value: tuple[str, ...]) -> bytes:
        return ",".join(value).encode()

    def deserialize(self, data: bytes) -> tuple[str, ...]:
        self.decoded += 1
        return tuple(data.decode().split(","))


def test_a_reader_decodes_a_row_once_and_sees_every_write():
    serde = CountingSerde()
    life = Life(kind="timestamped", value_serde=serde)
    life.store.put("a", ("x", "y"), 1)
    life.commit()
    read = life.store.reader()
    assert [read("a"), read("a"), read("b")] == [(("x", "y"), 1), (("x", "y"), 1), None]
    assert serde.decoded == 1
    life.store.put("a", ("z",), 2)
    assert read("a") == (("z",), 2)
    life.store.put("a", None, 3)
    assert read("a") is None


def test_a_reader_of_values_that_can_change_gives_each_caller_its_own():
    life = Life(kind="timestamped", value_serde=TaggedSerde())
    life.store.put("a", ["x"], 1)
    read = life.store.reader()
    read("a")[0].append("y")
    assert read("a") == (["x"], 1)
