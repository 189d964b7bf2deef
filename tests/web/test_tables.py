"""`/tables/`: reading keys, ranges, windows, sessions and versions, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from streamapp.records import TopicPartition, Windowed
from streamapp.serdes import BytesSerde, LongSerde, StringSerde, TimeWindowedSerde
from streamapp.web.view_source import RestoreStatus, TaskStatus

from .fakes import FakeSource, key_value_stores, open_empty

HOUR = 3_600_000


SESSIONS = [("N1", 10, 20, 2), ("N1", 50, 90, 3), ("N2", 5, 7, 1)]
WINDOWS = [("JFK", hour * HOUR, hour) for hour in range(5)] + [("ATL", 0, 7)]


@pytest.fixture
def source() -> FakeSource:
    source, text = FakeSource(partitions=2), StringSerde()
    airports = {name: {"delay": len(name)} for name in ("ATL", "BOS", "JFK", "JFK/1")}
    source.add_table("delays", "timestamped", key_value_stores(source, airports, kind="timestamped"))
    ids = {1: "one", 2: "two", 300: "many"}
    source.add_table("ids", "key_value", key_value_stores(source, ids, LongSerde()), key_serde=LongSerde())
    raw = {b"\x00\xff": "v"}
    source.add_table("raw", "key_value", key_value_stores(source, raw, BytesSerde()), key_serde=BytesSerde())

    hourly = {
        p: open_empty("hourly", "timestamped_window", retention_ms=24 * HOUR, size_ms=HOUR) for p in (0, 1)
    }
    for key, start, value in WINDOWS:
        hourly[source.partition_for("hourly", text.serialize(key))].put(key, value, start, start + 5)
    source.add_table("hourly", "timestamped_window", hourly, size_ms=HOUR, segment_interval_ms=12 * HOUR)
    rotations = {p: open_empty("rotations", "session", retention_ms=HOUR) for p in (0, 1)}
    for key, start, end, value in SESSIONS:
        rotations[source.partition_for("rotations", text.serialize(key))].put(key, start, end, value)
    source.add_table("rotations", "session", rotations, segment_interval_ms=HOUR)
    versions = open_empty("planes", "versioned", retention_ms=HOUR)
    versions.put("JFK", "old", 100)
    versions.put("JFK", "new", 200)
    source.add_table("planes", "versioned", {0: versions, 1: versions})
    recent = open_empty("recent", "lru", max_entries=2)
    recent.put("JFK", 1)
    source.add_table("recent", "lru", {0: recent, 1: recent})
    source.add_table("buffer", "suppress_buffer", {0: object(), 1: object()}, is_internal=True)
    return source


async def get(client: Any, path: str, status: int = 200) -> Any:
    response = await client.get(path)
    body = await response.json()
    assert response.status == status, body
    return body


async def test_lists_the_tables(serve: Any, source: FakeSource) -> None:
    tables = {t["name"]: t for t in (await get(await serve(source), "/tables/"))["tables"]}
    assert tables["delays"]["entries"] == {"count": 4, "exact": True}
    assert tables["hourly"]["entries"] is None
    assert tables["delays"]["partitions"] == {
        "total": 2,
        "local": [0, 1],
        "owners": {"0": "http://worker-1:6066", "1": "http://worker-1:6066"},
        "standbys": {},
    }
    assert (tables["ids"]["key"], tables["ids"]["key_format"]) == ("long", "integer")
    assert tables["hourly"]["window_size_ms"] == HOUR
    assert not tables["buffer"]["readable"]


async def test_many_lists_at_the_same_time_count_the_entries_once(serve: Any, source: FakeSource) -> None:
    """The counts for 40 clients held up the records of a worker."""
    client = await serve(source)
    await get(client, "/tables/")
    once, source.reads = source.reads, 0
    source.block_reads = asyncio.Event()
    asked = [asyncio.create_task(get(client, "/tables/")) for _ in range(20)]
    await asyncio.sleep(0.3)
    source.block_reads.set()
    lists = await asyncio.gather(*asked)
    assert source.reads == once
    assert all(each == lists[0] for each in lists)
    delays = {table["name"]: table for table in lists[0]["tables"]}["delays"]
    assert delays["entries"] == {"count": 4, "exact": True}
    await get(client, "/tables/")
    assert source.reads == 2 * once


async def test_stores_of_operators_are_listed_last(serve: Any) -> None:
    source = FakeSource()
    source.add_table("parked", "key_value", {0: open_empty("parked", "key_value")}, is_internal=True)
    source.add_table("delays", "key_value", {0: open_empty("delays", "key_value")})
    listed = (await get(await serve(source), "/tables/"))["tables"]
    assert [(each["name"], each["internal"]) for each in listed] == [("delays", False), ("parked", True)]


async def test_describes_one_table(serve: Any, source: FakeSource) -> None:
    client = await serve(source)
    assert await get(client, "/tables/delays/") == await get(client, "/tables/delays")


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("/tables/delays/JFK", "JFK", {"delay": 3}),
        ("/tables/delays/JFK%2F1", "JFK/1", {"delay": 5}),
        ("/tables/ids/300", 300, "many"),
        ("/tables/raw/00ff", "00ff", "v"),
        ("/tables/delays/?key=BOS", "BOS", {"delay": 3}),
    ],
)
async def test_gets_a_key(serve: Any, source: FakeSource, path: str, key: Any, value: Any) -> None:
    body = await get(await serve(source), path)
    assert (body["key"], body["value"]) == (key, value)
    assert body["partitions"][0]["worker"] == "http://worker-1:6066"


async def test_an_answer_says_how_fresh_it_is(serve: Any, source: FakeSource) -> None:
    bodies = [await get(await serve(source), f"/tables/delays/{key}") for key in ("ATL", "BOS", "JFK")]
    fresh = next(body["partitions"][0] for body in bodies if body["partition"] == 1)
    assert (fresh["lag"], fresh["positions"]) == (10, {"flights-1": 90})


@pytest.mark.parametrize("path", ["delays/JFK", "delays/", "delays/?newest=true", "planes/JFK?as_of=100"])
async def test_a_read_may_name_the_positions_that_it_wants(serve: Any, source: FakeSource, path: str) -> None:
    for name, table in source.tables_.items():
        source.tables_[name] = dataclasses.replace(table, inputs=("my-flights", "planes"))
    position = "position=my-flights-2:8312,planes-0:7"
    await get(await serve(source), f"/tables/{path}{'&' if '?' in path else '?'}{position}")
    assert source.at_least == {TopicPartition("my-flights", 2): 8312, TopicPartition("planes", 0): 7}


@pytest.mark.parametrize(
    "text", ["", "flights", "flights-2", "flights:3", "flights-2:x", "flights-2:-1", "a-1:2,"]
)
async def test_a_position_that_cannot_be_read_is_refused(serve: Any, source: FakeSource, text: str) -> None:
    body = await get(await serve(source), f"/tables/delays/JFK?position={text}", status=400)
    assert "expected topic-partition:offset, joined by commas" in body["error"]


async def test_windowed_keys_are_json(serve: Any, source: FakeSource) -> None:
    serde = TimeWindowedSerde(StringSerde(), HOUR)
    source.add_table(
        "tops", "key_value", key_value_stores(source, {Windowed("JFK", 0, HOUR): 1}, serde), key_serde=serde
    )
    client = await serve(source)
    body = await get(client, '/tables/tops/{"key":"JFK","start":0}')
    assert body["key"] == {"key": "JFK", "start": 0, "end": HOUR}
    body = await get(client, "/tables/tops/JFK", 400)
    assert body["example"].startswith('{"key"')


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("limit=100", ["ATL", "BOS", "JFK", "JFK/1"]),
        ("from=B&to=JFK", ["BOS", "JFK"]),
        ("from=JFK", ["JFK", "JFK/1"]),
        ("to=BOS", ["ATL", "BOS"]),
        ("prefix=JF", ["JFK", "JFK/1"]),
        ("prefix=Z", []),
    ],
)
async def test_ranges_and_prefixes(serve: Any, source: FakeSource, query: str, keys: list[str]) -> None:
    body = await get(await serve(source), f"/tables/delays/?{query}")
    assert [entry["key"] for entry in body["entries"]] == keys
    assert body["cursor"] is body["next"] is None


async def test_newest_entries_first(serve: Any, source: FakeSource) -> None:
    body = await get(await serve(source), "/tables/delays/?newest=true&limit=2")
    assert [entry["key"] for entry in body["entries"]] == ["JFK/1", "JFK"]
    assert body["complete"] is True


async def test_an_entry_of_the_time_0_is_the_oldest(serve: Any) -> None:
    """Its window, which ends an hour later, counted in place of the timestamp."""
    source = FakeSource(partitions=1)
    hourly = open_empty("hourly", "timestamped_window", retention_ms=24 * HOUR, size_ms=HOUR)
    hourly.put("JFK", 1, 0, 0)
    hourly.put("ATL", 2, 0, 5)
    source.add_table("hourly", "timestamped_window", {0: hourly}, size_ms=HOUR)
    body = await get(await serve(source), "/tables/hourly/?newest=true")
    assert [entry["key"] for entry in body["entries"]] == ["ATL", "JFK"]


@pytest.mark.parametrize(
    ("query", "starts"),
    [
        ("", [0, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]),
        (f"?from={HOUR}&to={2 * HOUR}", [HOUR, 2 * HOUR]),
        ("?from=1970-01-01T01:00:00Z&to=1970-01-01T02:00:00%2B00:00", [HOUR, 2 * HOUR]),
        ("?from=1970-01-01T04:00", [4 * HOUR]),
    ],
)
async def test_windows_of_a_key(serve: Any, source: FakeSource, query: str, starts: list[int]) -> None:
    body = await get(await serve(source), f"/tables/hourly/JFK{query}")
    assert [entry["start"] for entry in body["entries"]] == starts
    assert all(entry["end"] == entry["start"] + HOUR for entry in body["entries"])


async def test_windows_of_all_keys_in_a_time_range(serve: Any, source: FakeSource) -> None:
    body = await get(await serve(source), f"/tables/hourly/?from=0&to={HOUR}")
    assert [(e["key"], e["start"]) for e in body["entries"]] == [("ATL", 0), ("JFK", 0), ("JFK", HOUR)]


async def test_windows_page_by_page(serve: Any, source: FakeSource) -> None:
    client = await serve(source)
    path, seen = "/tables/hourly/JFK?limit=2", []
    while path:
        body = await get(client, path)
        seen += [entry["start"] for entry in body["entries"]]
        path = body["next"]
    assert seen == [hour * HOUR for hour in range(5)]


async def test_sessions(serve: Any, source: FakeSource) -> None:
    client = await serve(source)
    body = await get(client, "/tables/rotations/N1")
    assert [(e["start"], e["end"], e["value"]) for e in body["entries"]] == [(10, 20, 2), (50, 90, 3)]
    body = await get(client, "/tables/rotations/N1?from=21&to=60")
    assert [e["start"] for e in body["entries"]] == [50]
    body = await get(client, "/tables/rotations/?from=15&to=49")
    assert [(e["key"], e["start"]) for e in body["entries"]] == [("N1", 10)]


async def test_versions(serve: Any, source: FakeSource) -> None:
    client = await serve(source)
    assert (await get(client, "/tables/planes/JFK"))["value"] == "new"
    assert (await get(client, "/tables/planes/JFK?as_of=150"))["value"] == "old"
    await get(client, "/tables/planes/JFK?as_of=1", 404)
    body = await get(client, "/tables/planes/JFK?from=0")
    assert [(e["timestamp"], e.get("valid_to"), e["value"]) for e in body["entries"]] == [
        (100, 200, "old"),
        (200, None, "new"),
    ]
    body = await get(client, "/tables/planes/JFK?limit=1")
    assert [e["value"] for e in body["entries"]] == ["old"]
    assert [e["value"] for e in (await get(client, body["next"]))["entries"]] == ["new"]


async def test_a_table_of_recent_keys(serve: Any, source: FakeSource) -> None:
    client = await serve(source)
    assert (await get(client, "/tables/recent/JFK"))["value"] == 1
    assert [entry["key"] for entry in (await get(client, "/tables/recent/?from=A&to=K"))["entries"]] == [
        "JFK",
        "JFK",
    ]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/tables/ids/one", "key"),
        ("/tables/ids/99999999999999999999", "key"),
        ("/tables/raw/zz", "key"),
        ("/tables/ids/?from=x", "from"),
        ("/tables/ids/?prefix=1", "prefix"),
        ("/tables/delays/?prefix=a&from=b", "prefix"),
        ("/tables/delays/?limit=0", "limit"),
        ("/tables/delays/?limit=1001", "limit"),
        ("/tables/delays/?limit=ten", "limit"),
        ("/tables/delays/?cursor=abc", "cursor"),
        ("/tables/delays/?cursor=WzIsIiIsMCwwLDAsMF0", "cursor"),
        ("/tables/delays/?newest=yes", "newest"),
        ("/tables/delays/?newest=true&from=a", "newest"),
        ("/tables/delays/?form=a", "form"),
        ("/tables/delays/?from=a&from=b", "from"),
        ("/tables/delays/?key=JFK&key=LGA", "key"),
        ("/tables/delays/JFK?from=a", "from"),
        ("/tables/hourly/?from=yesterday", "from"),
        ("/tables/hourly/JFK?from=10&to=5", "to"),
        ("/tables/hourly/?prefix=a", "prefix"),
        ("/tables/planes/?limit=5", "key"),
        ("/tables/planes/JFK?as_of=5&from=1", "as_of"),
        ("/tables/buffer/?limit=5", "name"),
    ],
)
async def test_a_bad_request_says_what_is_wrong(
    serve: Any, source: FakeSource, path: str, parameter: str
) -> None:
    body = await get(await serve(source), path, 400)
    assert body["parameter"] == parameter
    assert body["error"]


async def test_unknown_table_names_those_that_exist(serve: Any, source: FakeSource) -> None:
    body = await get(await serve(source), "/tables/delay/JFK", 404)
    assert "delays" in body["tables"]
    assert "delays" in body["error"]


async def test_missing_key(serve: Any, source: FakeSource) -> None:
    assert "'XYZ'" in (await get(await serve(source), "/tables/delays/XYZ", 404))["error"]


async def test_only_get(serve: Any, source: FakeSource) -> None:
    response = await (await serve(source)).put("/tables/delays/JFK", data="1")
    assert response.status == 405
    assert "GET" in response.headers["Allow"]
    assert "read-only" in (await response.json())["error"]


@pytest.mark.parametrize("state", ["starting", "rebalancing", "stopping", "failed"])
@pytest.mark.parametrize("path", ["/tables/delays/JFK", "/tables/delays/?limit=1", "/tables/hourly/JFK"])
async def test_refuses_reads_until_running(serve: Any, source: FakeSource, state: Any, path: str) -> None:
    source.worker = dataclasses.replace(source.worker, state=state, reason="because")
    client = await serve(source)
    response = await client.get(path)
    body = await response.json()
    assert response.status == 503
    assert int(response.headers["Retry-After"]) == body["retry_after"] >= 1
    assert state in body["error"]
    assert "because" in body["error"]
    assert len((await get(client, "/tables/"))["tables"]) == 8


async def test_a_restore_keeps_back_only_its_own_partition(serve: Any, source: FakeSource) -> None:
    """The others answer; the refusal has the progress."""
    key = "JFK"
    home = source.partition_for("delays", key.encode())
    restore = RestoreStatus("delays", "delays-changelog", home, 0, 250, 1_000)
    for partition, status in ((home, 503), (home + 1, 200)):
        tasks = (TaskStatus(f"0_{partition}", partition, "restoring", 0, (), (restore,)),)
        source.worker = dataclasses.replace(source.worker, state="restoring", tasks=tasks)
        body = await get(await serve(source), f"/tables/delays/{key}", status)
    source.worker = dataclasses.replace(
        source.worker, tasks=(TaskStatus(f"0_{home}", home, "restoring", 0, (), (restore,)),)
    )
    client = await serve(source)
    body = await get(client, f"/tables/delays/{key}", 503)
    assert body["restore"]["percent"] == 25.0
    assert body["partition"] == home
    opened = TaskStatus(f"0_{home}", home, "restoring", 0)  # the ends of its changelogs are not known yet
    source.worker = dataclasses.replace(source.worker, tasks=(opened,))
    refused = await get(client, f"/tables/delays/{key}", 503)
    assert refused["error"].endswith("is being restored: its changelogs are looked up")
    assert refused["restore"]["percent"] is None
    (task,) = (await get(client, "/health/ready", 503))["tasks"]
    assert task["restore"]["percent"] is None
    source.worker = dataclasses.replace(
        source.worker, tasks=(TaskStatus(f"0_{home}", home, "restoring", 0, (), (restore,)),)
    )
    body = await get(client, f"/tables/delays/{key}?stale=true")
    (part,) = body["partitions"]
    assert (part["stale"], part["changelog_lag"]) == (True, 750)


@pytest.mark.parametrize("path", ["/tables/delays/JFK?stale=true", "/tables/delays/?limit=9&stale=true"])
async def test_a_copy_that_was_just_opened_promises_nothing(
    serve: Any, source: FakeSource, path: str
) -> None:
    """Its restore has not begun, or the worker learns of its new task during the request."""
    home = source.partition_for("delays", b"JFK")
    restoring = TaskStatus(f"0_{home}", home, "restoring", 0)
    running = TaskStatus(f"0_{home}", home, "running", 0)
    for before, after in (
        ((restoring,), (restoring,)),
        ((), ()),
        ((), (running,)),
        ((running,), (restoring,)),
    ):
        source.worker = dataclasses.replace(source.worker, tasks=before)
        source.block_reads = asyncio.Event()
        client = await serve(source)
        asked = asyncio.create_task(get(client, path))
        reads = source.reads
        while source.reads == reads:
            await asyncio.sleep(0.01)
        source.worker = dataclasses.replace(source.worker, tasks=after)
        source.block_reads.set()
        part = next(each for each in (await asked)["partitions"] if each["partition"] == home)
        assert part["stale"] is True
        assert (part["changelog_positions"], part["changelog_lag"]) == ({}, None)


async def test_a_copy_without_a_row_says_that_it_is_a_copy(serve: Any, source: FakeSource) -> None:
    home = source.partition_for("delays", b"XYZ")
    source.worker = dataclasses.replace(source.worker, tasks=(TaskStatus(f"0_{home}", home, "restoring", 0),))
    body = await get(await serve(source), "/tables/delays/XYZ?stale=true", 404)
    assert "the copy that was read may lack the last changes" in body["error"]


async def test_stale_is_true_or_false(serve: Any, source: FakeSource) -> None:
    body = await get(await serve(source), "/tables/delays/JFK?stale=maybe", 400)
    assert body["parameter"] == "stale"


async def test_a_partition_without_owner_is_refused_not_left_out(serve: Any, source: FakeSource) -> None:
    source.add_table("half", "key_value", {0: open_empty("half", "key_value")}, owners={1: None})
    body = await get(await serve(source), "/tables/half/?limit=5", 503)
    assert body["partitions"] == [1]


async def test_a_blocked_data_plane_is_reported(serve: Any, source: FakeSource) -> None:
    source.block_reads = asyncio.Event()
    client = await serve(source, read_timeout=0.01)
    error = (await get(client, "/tables/delays/JFK", 503))["error"]
    assert "the thread that processes records holds up the read" in error
    work = "a commit, for which brokers have to answer,"
    source.worker = dataclasses.replace(source.worker, work=work)
    assert f"{work} holds up the read" in (await get(client, "/tables/delays/JFK", 503))["error"]
    assert (await get(client, "/tables/delays/"))["entries"] is None


async def test_no_cors(serve: Any, source: FakeSource) -> None:
    response = await (await serve(source)).get("/tables/", headers={"Origin": "http://evil.example"})
    assert not [name for name in response.headers if name.lower().startswith("access-control")]
