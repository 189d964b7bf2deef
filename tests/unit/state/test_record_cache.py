"""Record caches beyond their limit, beside a plain model of Kafka Streams' ThreadCache."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st
from store_harness import Life

from streamapp.serdes import JsonSerde, StringSerde
from streamapp.state.cache import RecordCache

TEXT = st.sampled_from(["a", "b", "c", "long key", "ö"])
SOURCE = st.tuples(
    st.sampled_from(["in", "another topic", None]), st.sampled_from([(), (("h", b"12"),), (("h", None),)])
)


class Limit:
    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0


class Model:
    """One NamedCache over a table of strings, least recently used first."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.entries: OrderedDict[str, tuple[str | None, int]] = OrderedDict()
        self.dirty: dict[str, None] = {}
        self.table: dict[str, str] = {}
        self.heard: list[tuple] = []

    def add(self, key: str, value: str | None, topic: str | None, headers: tuple) -> None:
        size = len(key.encode()) + 45 + (0 if value is None else 8 + len(value.encode())) + len(topic or "")
        size += sum(len(name) + len(data or b"") for name, data in headers)
        self.limit.used += size - self.entries.pop(key, (None, 0))[1]
        self.entries[key] = value, size

    def put(self, key: str, value: str | None, topic: str | None, headers: tuple) -> None:
        self.add(key, value, topic, headers)
        self.dirty.pop(key, None)
        self.dirty[key] = None
        self.make_room()

    def get(self, key: str) -> str | None:
        if key in self.entries:
            self.entries.move_to_end(key)
            return self.entries[key][0]
        value = self.table.get(key)
        if value is not None:
            self.add(key, value, "", ())
            self.make_room()
        return value

    def all(self) -> list[tuple[str, str]]:
        rows = {**self.table, **{key: value for key, (value, _) in self.entries.items()}}
        for key in sorted(self.entries, key=str.encode):
            self.entries.move_to_end(key)
        return [(key, rows[key]) for key in sorted(rows, key=str.encode) if rows[key] is not None]

    def make_room(self) -> None:
        while self.limit.used > self.limit.most and self.entries:
            key, (value, size) = self.entries.popitem(last=False)
            if key in self.dirty:
                del self.dirty[key]
                self.tell([(key, value)])
            self.limit.used -= size

    def tell(self, first: list[tuple[str, str | None]]) -> None:
        told = [*first, *((key, self.entries[key][0]) for key in self.dirty)]
        gone = [key for key in self.dirty if self.entries[key][0] is None]
        self.dirty.clear()
        for key, value in told:
            old = self.table.pop(key, None)
            if value is not None:
                self.table[key] = value
            if value is not None or old is not None:
                self.heard.append((key, value, old))
        for key in gone:
            self.limit.used -= self.entries.pop(key)[1]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 1), TEXT, st.one_of(st.none(), TEXT), SOURCE),
            st.tuples(st.just("get"), st.integers(0, 1), TEXT),
            st.tuples(st.sampled_from(["flush", "commit", "all"]), st.integers(0, 1)),
        ),
        max_size=60,
    ),
    st.integers(1, 800),
)
def test_stores_beyond_the_limit_are_kafka_streams_caches(steps, most):
    cache, limit = RecordCache(most), Limit(most)
    lives, models = [], [Model(limit), Model(limit)]
    heard: list[list[tuple]] = [[], []]
    for told in heard:
        life = Life(True, cache, kind="timestamped", cached=True, value_serde=StringSerde())
        life.store.set_flush_listener(lambda key, new, old, *_, told=told: told.append((key, new, old)))
        lives.append((life, life.store.reader()))
    for step, which, *args in steps:
        (life, read), model = lives[which], models[which]
        if step == "put":
            key, value, (topic, headers) = args
            life.task.topic, life.task.headers = topic, headers
            life.store.put(key, value, 1)
            model.put(key, value, topic, headers)
        elif step == "get":
            row = life.store.get(*args) if most % 2 else read(*args)
            assert (row and row[0]) == model.get(*args)
        elif step == "all":
            assert [(key, row[0]) for key, row in life.store.all()] == model.all()
        else:
            life.store.flush() if step == "flush" else life.commit()
            model.tell([])
        assert heard[which] == model.heard
        assert cache.used == limit.used


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.sampled_from([0, 0, 0, 1])), max_size=60
    ),
    st.integers(60, 900),
)
def test_the_sessions_beyond_the_limit_are_kafka_streams_caches(events, most):
    """Sessions that grow: each look-up uses what the cache has of the key, deletions as well."""
    cache, limit = RecordCache(most), Limit(most)
    life = Life(True, cache, kind="session", retention_ms=10**6, cached=True)
    told: list[tuple] = []
    life.store.set_flush_listener(
        lambda key, new, old, *_: told.append((key.key, key.start, key.end, new, old))
    )
    entries: OrderedDict[tuple[str, int, int], tuple[int | None, int]] = OrderedDict()
    dirty: dict[tuple[str, int, int], None] = {}
    table: dict[tuple[str, int, int], int] = {}
    heard: list[tuple] = []

    def flush(first: list[tuple]) -> None:
        rows = [*first, *((key, entries[key][0]) for key in dirty)]
        gone = [key for key in dirty if entries[key][0] is None]
        dirty.clear()
        for key, value in rows:
            old = table.pop(key, None)
            if value is not None:
                table[key] = value
            if value is not None or old is not None:
                heard.append((*key, value, old))
        for key in gone:
            limit.used -= entries.pop(key)[1]

    def put(key: tuple[str, int, int], value: int | None) -> None:
        size = 8 + 1 + 16 + 45 + 2 + (0 if value is None else 8)
        limit.used += size - entries.pop(key, (None, 0))[1]
        entries[key] = value, size
        dirty.pop(key, None)
        dirty[key] = None
        while limit.used > most and entries:
            eldest, (value, size) = entries.popitem(last=False)
            if eldest in dirty:
                del dirty[eldest]
                flush([(eldest, value)])
            limit.used -= size

    for key, at, end_of_commit in events:
        found = list(life.store.find_sessions(key, at - 10, at + 10))
        rows = {**table, **{row: value for row, (value, _) in entries.items()}}
        for row in sorted(
            (row for row in entries if row[0] == key and row[2] >= at - 10), key=lambda r: (r[2], r[1])
        ):
            entries.move_to_end(row)
        expected = sorted(
            (e, s, v)
            for (k, s, e), v in rows.items()
            if k == key and e >= at - 10 and s <= at + 10 and v is not None
        )
        assert [(e, s, v) for s, e, v in found] == expected
        start, end = min([at, *(s for s, _, _ in found)]), max([at, *(e for _, e, _ in found)])
        if (start, end) != (at, at):
            for s, e, _ in found:
                life.store.remove(key, s, e)
                put((key, s, e), None)
        life.store.put(key, start, end, 1)
        put((key, start, end), 1)
        if end_of_commit:
            life.commit()
            flush([])
        assert told == heard
        assert cache.used == limit.used


def test_keys_that_are_kept_as_bytes_are_found_in_the_cache():
    spec = {"cached": True, "retention_ms": 10, "key_serde": JsonSerde(dict)}
    windows, sessions = Life(True, kind="window", size_ms=5, **spec), Life(True, kind="session", **spec)
    key = {"part": 1}
    for at in (0, 100):  # the first one expires in the store
        windows.store.put(key, 1, at)
        sessions.store.put(key, at, at, 1)
        windows.commit()
        sessions.commit()
    assert list(windows.store.fetch(key, 0, 100)) == [(0, 1), (100, 1)]
    assert list(sessions.store.find_sessions(key, 0, 100)) == [(0, 0, 1), (100, 100, 1)]
