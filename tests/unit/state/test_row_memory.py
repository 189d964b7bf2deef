"""The limit in bytes of the rows that stores keep to be read again, and of those that wait for the commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_harness import Life, TaggedSerde

from streamapp.serdes import BytesSerde, StringSerde
from streamapp.state.row_memory import Generations, RowMemory, Shown

LIMIT = 1_000_000
LARGE = 400_000


@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 200)), max_size=60),
)
def test_what_is_kept_never_takes_more_than_the_limit(limit, steps):
    memory = RowMemory(limit)
    caches: list[Generations[int]] = [Generations(memory) for _ in range(2)]
    shown: Shown[int] = Shown(memory)
    latest: dict[tuple[int, int], int] = {}
    for which, key, size in steps:
        if which == 2:
            if memory.take(size):
                shown.rows[key] = size
        else:
            caches[which].keep(key, size, size)
            latest[which, key] = size
        assert memory.used_bytes <= limit
        kept = [size for cache in caches for size in [*cache.young.values(), *cache.old.values()]]
        assert sum(kept) + sum(shown.rows.values()) <= limit
        for number, cache in enumerate(caches):
            found = {**cache.old, **cache.young}
            assert all(latest[number, key] == size for key, size in found.items())


def test_a_store_that_rests_gives_its_share_to_those_that_are_used():
    memory = RowMemory(1_000)
    resting, used = Generations[int](memory), Generations[int](memory)
    for key in range(10):
        resting.keep(key, key, 100)
    for key in range(10):
        used.keep(key, key, 100)
    assert len(used.young) + len(used.old) == 10
    assert not resting.young
    assert not resting.old


def kept_bytes(store) -> int:
    """The values that a store keeps, also in images; each object once."""
    rows = [*store._clean.young.values(), *store._clean.old.values()]
    if hasattr(store, "_images"):
        images = [*store._images.young.values(), *store._images.old.values()]
        rows += [row for image in images for row in image.rows]
    return sum({id(row[0]): len(row[0] or b"") for row in rows}.values())


@pytest.mark.parametrize("kind", ["key_value", "timestamped", "window", "session"])
def test_large_values_are_kept_only_within_the_limit(kind):
    life = Life(memory=RowMemory(LIMIT), kind=kind, value_serde=BytesSerde(), retention_ms=10_000, size_ms=10)
    for number in range(20):
        key, value = f"key-{number}", bytes([number]) * LARGE
        if kind == "window":
            life.store.put(key, value, number)
        elif kind == "session":
            life.store.put(key, number, number, value)
        else:
            life.store.put(key, value)
        if number % 3 == 0:
            life.commit()
    life.commit()
    for number in [*range(20), *range(20)]:
        key = f"key-{number}"
        if kind == "window":
            found = dict(life.store.fetch(key, 0, 100))[number]
        elif kind == "session":
            found = next(life.store.find_sessions(key, 0, 100))[2]
        else:
            found = life.store.get(key) if kind == "key_value" else life.store.get(key)[0]
        assert found == bytes([number]) * LARGE
        assert kept_bytes(life.store) <= LIMIT
        assert life.memory.used_bytes <= LIMIT


def test_decoded_rows_of_joins_are_kept_only_within_the_limit():
    class FrozenTags(TaggedSerde):
        immutable = True

    life = Life(memory=RowMemory(LIMIT), kind="timestamped", value_serde=FrozenTags())
    read = life.store.reader()
    for number in range(20):
        life.store.put(f"key-{number}", [str(number) * LARGE])
        life.commit()
    for number in [*range(20), *range(20)]:
        row = read(f"key-{number}")
        assert row is not None
        assert row[0] == [str(number) * LARGE]
        assert life.memory.used_bytes <= LIMIT
        assert sum(len(value[0]) for value, _ in life.store._known.values()) <= LIMIT


SIZES = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 5_000)), st.booleans()), max_size=30
)


@given(SIZES, st.sampled_from([BytesSerde(), StringSerde()]), st.sampled_from(["key_value", "timestamped"]))
def test_the_rows_that_wait_for_the_commit_are_counted_with_their_sizes(steps, serde, kind):
    life = Life(kind=kind, value_serde=serde)
    waiting: dict[str, int] = {}
    for key, size, log in steps:
        value = None if size is None else serde.deserialize(b"x" * size)
        life.store.put(key, value)
        waiting[key] = size or 0
        if log:
            life.store.log_dirty()
        least = sum(waiting.values())
        assert least <= life.store.dirty_bytes <= least + 500 * len(waiting)
    life.commit()
    life.persist()
    assert life.store.dirty_bytes == 0


def test_a_row_that_grows_between_two_commits_is_counted_as_it_is():
    life = Life(kind="timestamped", value_serde=TaggedSerde(), cached=True)
    fold = life.store.folder(list, lambda key, value, tags: [*tags, value])
    for _ in range(100):
        fold("a", "x" * 1_000, 0)
    assert 100_000 <= life.store.dirty_bytes <= 102_000


def test_versions_are_counted_with_their_sizes():
    life = Life(kind="versioned", value_serde=BytesSerde(), retention_ms=10_000, memory=RowMemory(LIMIT))
    for number in range(10):
        life.store.put(f"key-{number}", b"x" * LARGE, number)
    assert life.store.dirty_bytes >= 10 * LARGE
    life.commit()
    assert life.store.dirty_bytes == 0
    assert life.memory.used_bytes <= LIMIT
    assert [life.store.get(f"key-{number}")[0] == b"x" * LARGE for number in range(10)] == [True] * 10
    assert life.memory.used_bytes <= LIMIT


@pytest.mark.parametrize("again", [False, True])
def test_a_row_that_an_aggregation_reads_waits_for_the_commit_and_is_not_kept_besides(again):
    memory = RowMemory(LIMIT)
    life = Life(kind="timestamped", memory=memory)
    for _ in range(1 + again):
        fold = life.store.folder(lambda: 0, lambda key, value, total: total + value)
        before = memory.used_bytes
        assert [fold(f"k{number}", 1, 5)[0] for number in range(100)] == [1 + (before > 0)] * 100
        assert memory.used_bytes == before
        life.commit()
        assert memory.used_bytes > before
