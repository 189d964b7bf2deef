"""Walking the pages of a listing gives exactly the range, also while entries come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp.serdes import LongSerde, Serde, StringSerde
from streamapp.web.server import add_routes

from .fakes import FakeSource, key_value_stores, open_empty, placed

KEYS = st.text(alphabet="ab\x00ü/ %", max_size=4)
PARTITIONS = 3


def walk(
    source: FakeSource, path: str, between: Callable[[int], None] = lambda page: None
) -> list[dict[str, Any]]:
    """The entries of all pages, following ``next``; ``between`` runs after each page."""

    async def run() -> list[dict[str, Any]]:
        app = web.Application()
        add_routes(app, source)
        entries, url, page = [], path, 0
        async with TestClient(TestServer(app)) as client:
            while url:
                response = await client.get(url)
                body = await response.json()
                assert response.status == 200, body
                entries += body["entries"]
                between(page)
                url, page = body["next"], page + 1
        return entries

    return asyncio.run(run())


def key_value_source(serde: Serde[Any], entries: dict[Any, Any]) -> FakeSource:
    source = FakeSource(PARTITIONS)
    source.add_table("t", "key_value", key_value_stores(source, entries, serde), key_serde=serde)
    return source


@settings(max_examples=40, deadline=None)
@given(keys=st.sets(KEYS, max_size=12), limit=st.integers(1, 5))
def test_all_entries_in_order_of_their_key_bytes(keys: set[str], limit: int) -> None:
    found = walk(key_value_source(StringSerde(), dict.fromkeys(keys, 1)), f"/tables/t/?limit={limit}")
    assert [entry["key"] for entry in found] == sorted(keys, key=str.encode)


@settings(max_examples=30, deadline=None)
@given(
    keys=st.sets(st.integers(-5, 20), max_size=12),
    limit=st.integers(1, 5),
    low=st.integers(0, 9),
    high=st.integers(0, 20),
)
def test_a_range_of_longs(keys: set[int], limit: int, low: int, high: int) -> None:
    found = walk(
        key_value_source(LongSerde(), dict.fromkeys(keys, 1)),
        f"/tables/t/?limit={limit}&from={low}&to={high}",
    )
    assert [entry["key"] for entry in found] == sorted(key for key in keys if low <= key <= high)


@settings(max_examples=30, deadline=None)
@given(
    keys=st.sets(st.text("ab", max_size=4), max_size=12),
    limit=st.integers(1, 5),
    prefix=st.text("ab", max_size=2),
)
def test_a_prefix(keys: set[str], limit: int, prefix: str) -> None:
    found = walk(
        key_value_source(StringSerde(), dict.fromkeys(keys, 1)), f"/tables/t/?limit={limit}&prefix={prefix}"
    )
    assert [entry["key"] for entry in found] == sorted(key for key in keys if key.startswith(prefix))


@settings(max_examples=40, deadline=None)
@given(
    stay=st.sets(st.text("abc", min_size=1, max_size=3), max_size=10),
    changes=st.lists(st.tuples(st.booleans(), st.text("xyz", min_size=1, max_size=2)), max_size=10),
    limit=st.integers(1, 4),
)
def test_entries_that_come_and_go_hide_and_repeat_no_others(
    stay: set[str], changes: list[tuple[bool, str]], limit: int
) -> None:
    source = key_value_source(StringSerde(), dict.fromkeys([*stay, "x", "yy", "z"], 1))

    def change(page: int) -> None:
        if page < len(changes):
            put, key = changes[page]
            store = source.stores["t", source.partition_for("t", key.encode())]
            store.put(key, 2) if put else store.delete(key)

    keys = [entry["key"] for entry in walk(source, f"/tables/t/?limit={limit}", change)]
    assert keys == sorted(set(keys)), "in order, and nothing twice"
    assert stay <= set(keys)


ROWS = st.sets(st.tuples(st.text("ab", min_size=1, max_size=2), st.integers(0, 200)), max_size=15)


@settings(max_examples=40, deadline=None)
@given(
    rows=ROWS,
    limit=st.integers(1, 5),
    low=st.integers(0, 200),
    persistent=st.booleans(),
    by_time=st.booleans(),
)
def test_windows_by_start_then_key(
    rows: set[tuple[str, int]], limit: int, low: int, persistent: bool, by_time: bool
) -> None:
    source = FakeSource(PARTITIONS)
    options = {"retention_ms": 1_000, "size_ms": 10, "segment_interval_ms": 60}
    stores = {
        p: open_empty("w", "window", persistent=persistent, time_ordered=by_time, **options)
        for p in range(PARTITIONS)
    }
    for key, start in rows:
        stores[source.partition_for("w", key.encode())].put(key, 1, start)
    source.add_table("w", "window", stores, size_ms=10, segment_interval_ms=60)
    found = walk(source, f"/tables/w/?limit={limit}&from={low}")
    wanted = sorted((start, key) for key, start in rows if start >= low)
    assert [(entry["start"], entry["key"]) for entry in found] == wanted


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, limit=st.integers(1, 5), low=st.integers(0, 200), persistent=st.booleans())
def test_sessions_by_end_then_key(rows: set[tuple[str, int]], limit: int, low: int, persistent: bool) -> None:
    source = FakeSource(PARTITIONS)
    options = {"retention_ms": 1_000, "segment_interval_ms": 60}
    stores = {p: open_empty("s", "session", persistent=persistent, **options) for p in range(PARTITIONS)}
    for key, start in rows:
        stores[source.partition_for("s", key.encode())].put(key, start, start + 5, 1)
    source.add_table("s", "session", stores, segment_interval_ms=60)
    found = walk(source, f"/tables/s/?limit={limit}&from={low}")
    wanted = sorted((start + 5, key) for key, start in rows if start + 5 >= low)
    assert [(entry["end"], entry["key"]) for entry in found] == wanted


def test_duplicates_of_one_window_are_all_listed_once() -> None:
    source = FakeSource(PARTITIONS)
    stores = {
        p: open_empty("d", "window", retention_ms=1_000, size_ms=1, retain_duplicates=True)
        for p in range(PARTITIONS)
    }
    for partition, keys in placed(source, StringSerde(), ["a", "b"]).items():
        for key in keys:
            for value in range(5):
                stores[partition].put(key, value, 10)
    source.add_table("d", "window", stores, segment_interval_ms=500)
    found = walk(source, "/tables/d/?limit=2")
    assert [(entry["key"], entry["value"]) for entry in found] == [(key, n) for key in "ab" for n in range(5)]


SIZES = st.lists(st.sampled_from([10, 50_000, 300_000, 2_000_000, 5_000_000]), max_size=14)
MIB_4 = 4 * 1024 * 1024


def walked_in_bytes(
    source: FakeSource, path: str
) -> tuple[list[dict[str, Any]], list[tuple[int, dict[str, Any]]]]:
    """The entries of all pages, and each page's size in bytes and body."""

    async def run() -> tuple[list[dict[str, Any]], list[tuple[int, dict[str, Any]]]]:
        app = web.Application()
        add_routes(app, source, read_timeout=60.0)
        pages: list[tuple[int, dict[str, Any]]] = []
        url = path
        async with TestClient(TestServer(app)) as client:
            while url:
                response = await client.get(url)
                data = await response.read()
                body = json.loads(data)
                assert response.status == 200, body
                pages.append((len(data), body))
                url = body.get("next")
        return [entry for _, body in pages for entry in body["entries"]], pages

    return asyncio.run(run())


@settings(max_examples=15, deadline=None)
@given(
    sizes=SIZES,
    limit=st.sampled_from([2, 5, 1_000]),
    partitions=st.integers(1, 4),
    character=st.sampled_from("aü\n"),
)
def test_pages_are_bounded_in_bytes(sizes: list[int], limit: int, partitions: int, character: str) -> None:
    source = FakeSource(partitions)
    entries = {f"{n:03}": character * size for n, size in enumerate(sizes)}
    source.add_table("t", "key_value", key_value_stores(source, entries))
    found, pages = walked_in_bytes(source, f"/tables/t/?limit={limit}")
    assert {entry["key"]: entry["value"] for entry in found} == entries
    assert [entry["key"] for entry in found] == sorted(entries)
    for size, body in pages:
        assert size <= MIB_4 + 10_000 or len(body["entries"]) == 1
        assert body["entries"] or not entries
        cut = body["next"] is not None and len(body["entries"]) < limit
        assert ("cut_at_bytes" in body) == cut


@settings(max_examples=10, deadline=None)
@given(sizes=SIZES, limit=st.sampled_from([1, 25, 1_000]))
def test_the_newest_are_bounded_in_bytes(sizes: list[int], limit: int) -> None:
    source = FakeSource(PARTITIONS)
    entries = {f"{n:03}": "a" * size for n, size in enumerate(sizes)}
    source.add_table("t", "timestamped", key_value_stores(source, entries, kind="timestamped"))
    ((size, body),) = walked_in_bytes(source, f"/tables/t/?newest=true&limit={limit}")[1]
    assert size <= MIB_4 + 10_000 or len(body["entries"]) == 1
    assert bool(body["entries"]) == bool(entries)
    whole = sum(sizes) <= MIB_4 // PARTITIONS
    assert body["complete"] or not whole
    assert body["complete"] or "scanned_per_partition" in body


def test_newest_entries_that_were_all_scanned_are_complete_on_a_page_that_is_cut() -> None:
    source = FakeSource(PARTITIONS)
    entries = {f"{n:03}": "\n" * 340_000 for n in range(12)}  # JSON makes two bytes of each
    source.add_table("t", "timestamped", key_value_stores(source, entries, kind="timestamped"))
    ((_, body),) = walked_in_bytes(source, "/tables/t/?newest=true&limit=1000")[1]
    assert (len(body["entries"]), body["complete"], body["cut_at_bytes"]) == (6, True, MIB_4)


def test_windows_of_one_key_are_bounded_in_bytes() -> None:
    source = FakeSource(PARTITIONS)
    stores = {p: open_empty("w", "window", retention_ms=10_000, size_ms=10) for p in range(PARTITIONS)}
    home = stores[source.partition_for("w", b"JFK")]
    for start in range(0, 1_000, 50):
        home.put("JFK", "x" * 1_000_000, start)
    source.add_table("w", "window", stores, size_ms=10, segment_interval_ms=60)
    found, pages = walked_in_bytes(source, "/tables/w/JFK?limit=1000")
    assert [entry["start"] for entry in found] == list(range(0, 1_000, 50))
    assert len(pages) > 4
    assert max(size for size, _ in pages) <= MIB_4 + 10_000


def test_a_store_gives_no_more_rows_than_fit() -> None:
    """A page of a large table takes memory for the page, not for a thousand rows."""
    store, rows = open_empty("t", "key_value"), 0
    for n in range(300):
        store.put(f"{n:03}", "x" * 100_000)

    class Counting:
        def range(self, *bounds: Any) -> Iterator[Any]:
            nonlocal rows
            for row in store.range(*bounds):
                rows += 1
                yield row

    source = FakeSource(1)
    source.add_table("t", "key_value", {0: Counting()})
    found, pages = walked_in_bytes(source, "/tables/t/?limit=1000")
    assert len(found) == 300
    assert rows <= 300 + 3 * len(pages)
    rows = 0
    walked_in_bytes(source, "/tables/t/?newest=true&limit=1000")
    assert rows <= 50
