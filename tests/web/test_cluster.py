"""Several workers: keys are answered by their owner, scans by all; what cannot be known is not left out."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from streamapp.web.server import add_routes
from streamapp.web.view_source import RestoreStatus, StandbyStatus, TaskStatus

from .conftest import Serve
from .fakes import FakeSource, key_value_stores, open_empty

KEYS = [f"key {i}/{i * 7}?&%" for i in range(40)]


class Pair:
    """Two workers that share a table of four partitions, two each."""

    def __init__(self, sources: list[FakeSource], clients: list[Any]) -> None:
        self.sources, self.clients = sources, clients

    def give(self, owners: dict[int, str | None]) -> None:
        everything = key_value_stores(self.sources[0], {key: key.upper() for key in KEYS})
        for source in self.sources:
            mine = {p: store for p, store in everything.items() if owners[p] == source.worker.url}
            source.add_table("t", "key_value", mine, owners=owners)


@pytest.fixture
async def pair(serve: Serve, request: pytest.FixtureRequest) -> Pair:
    sources, clients = [], []
    for _ in range(2):
        app = web.Application()
        server = TestServer(app)
        source = FakeSource(4)
        add_routes(app, source, **{"peer_timeout": 60.0, **getattr(request, "param", {})})
        clients.append(await serve(None, server))
        source.worker = type(source.worker)("running", None, str(server.make_url("/")))
        sources.append(source)
    pair = Pair(sources, clients)
    first, second = (source.worker.url for source in sources)
    pair.give({0: first, 1: second, 2: first, 3: second})
    return pair


def path_of(key: str) -> URL:
    return URL("/tables/t/" + quote(key, safe=""), encoded=True)


async def get(client: Any, path: Any, status: int = 200, **options: Any) -> Any:
    response = await client.get(path, **options)
    body = await response.json()
    assert response.status == status, body
    return body


async def test_every_key_is_found_from_every_worker(pair: Pair) -> None:
    for client in pair.clients:
        for key in KEYS:
            assert (await get(client, path_of(key)))["value"] == key.upper()


async def test_a_missing_key_is_a_404_of_its_owner(pair: Pair) -> None:
    for client in pair.clients:
        await get(client, "/tables/t/nothing", 404)


async def test_a_scan_merges_all_workers(pair: Pair) -> None:
    for client in pair.clients:
        path, keys = "/tables/t/?limit=7", []
        while path:
            body = await get(client, path)
            keys += [entry["key"] for entry in body["entries"]]
            assert [each["partition"] for each in body["partitions"]] == [0, 1, 2, 3]
            assert "positions" not in body
            path = body["next"]
        assert keys == sorted(KEYS)


async def test_newest_over_all_workers(pair: Pair) -> None:
    body = await get(pair.clients[0], "/tables/t/?newest=true&limit=1000")
    assert {entry["key"] for entry in body["entries"]} == set(KEYS)
    assert body["complete"] is True


async def test_windows_of_a_key_that_lives_elsewhere(pair: Pair) -> None:
    first, second = pair.sources
    home = first.partition_for("w", b"JFK")
    store = open_empty("w", "window", retention_ms=1_000, size_ms=10)
    store.put("JFK", 1, 0)
    store.put("JFK", 2, 10)
    second.add_table("w", "window", {home: store}, size_ms=10)
    first.add_table("w", "window", {}, owners={home: second.worker.url}, size_ms=10)
    body = await get(pair.clients[0], "/tables/w/JFK?limit=1")
    assert [entry["start"] for entry in body["entries"]] == [0]
    assert [entry["start"] for entry in (await get(pair.clients[0], body["next"]))["entries"]] == [10]


async def test_a_forwarded_request_is_not_forwarded_again(pair: Pair) -> None:
    # Both believe that the other one holds everything, as they may for a moment during a rebalance.
    first, second = pair.sources
    first.add_table("t", "key_value", {}, owners=dict.fromkeys(range(4), second.worker.url))
    second.add_table("t", "key_value", {}, owners=dict.fromkeys(range(4), first.worker.url))
    for path in ("/tables/t/abc", "/tables/t/?limit=5"):
        body = await get(pair.clients[0], path, 503)
        assert "is not on" in body["error"]
    assert first.reads == second.reads == 0


async def test_an_owner_that_cannot_be_reached(pair: Pair) -> None:
    await pair.clients[1].close()
    answers = []
    for key in ("a", "b", "c", "d", "e", "f", "g", "h"):
        response = await pair.clients[0].get(f"/tables/t/{key}")
        answers.append(response.status)
        if response.status == 503:
            body = await response.json()
            assert body["worker"] == pair.sources[1].worker.url
            assert "Retry-After" in response.headers
    assert set(answers) == {404, 503}
    body = await get(pair.clients[0], "/tables/t/?limit=5", 503)
    assert body["partitions"] == [1, 3]


@pytest.mark.parametrize("pair", [{"peer_timeout": 0.5}], indirect=True)
async def test_an_owner_that_does_not_answer_in_time(pair: Pair) -> None:
    pair.sources[1].block_reads = asyncio.Event()
    body = await get(pair.clients[0], "/tables/t/?limit=5", 503)
    assert "no answer within 0.5 s" in body["error"]
    pair.sources[1].block_reads.set()


async def test_pages_that_wait_for_a_frozen_worker_hold_up_no_local_page(pair: Pair) -> None:
    first, second = pair.sources
    home = first.partition_for("w", b"JFK")
    store = open_empty("w", "window", retention_ms=1_000, size_ms=10)
    store.put("JFK", 1, 0)
    first.add_table("w", "window", {home: store}, size_ms=10)
    second.block_reads = asyncio.Event()
    pages = [asyncio.create_task(pair.clients[0].get("/tables/t/?limit=5")) for _ in range(20)]
    while second.reads < 16:  # eight pages, of two partitions each
        await asyncio.sleep(0.01)
    assert [entry["value"] for entry in (await get(pair.clients[0], "/tables/w/JFK"))["entries"]] == [1]
    assert not any(page.done() for page in pages)
    second.block_reads.set()
    await asyncio.gather(*pages)


async def test_an_owner_that_restores_says_so(pair: Pair) -> None:
    source = pair.sources[1]
    restoring = (TaskStatus("0_1", 1, "restoring", 0), TaskStatus("0_3", 3, "restoring", 0))
    source.worker = dataclasses.replace(source.worker, state="restoring", tasks=restoring)
    body = await get(pair.clients[0], "/tables/t/?limit=5", 503)
    assert "restored" in body["error"]


@pytest.mark.parametrize("dead", ["http://127.0.0.1:9", None], ids=["away", "nobody"])
async def test_a_copy_answers_for_an_owner_that_is_away_if_stale_will_do(
    pair: Pair, dead: str | None
) -> None:
    first, second = pair.sources
    url = second.worker.url
    for source in pair.sources:
        table = dataclasses.replace(
            source.tables_["t"],
            owners=dict.fromkeys(range(4), dead),
            local=frozenset(),
            standbys=dict.fromkeys(range(4), (url,)),
        )
        source.tables_["t"] = table
    copies = tuple(
        StandbyStatus(f"0_{p}", p, False, (RestoreStatus("t", "t-changelog", p, 0, 90, 100),))
        for p in range(4)
    )
    second.worker = dataclasses.replace(second.worker, tasks=(), standbys=copies)
    for key in KEYS:  # an empty copy is all that this worker has of partitions that it did not hold
        second.stores.setdefault(("t", second.partition_for("t", key.encode())), open_empty("t", "key_value"))
    held = [key for key in KEYS if second.partition_for("t", key.encode()) in (1, 3)]
    for client in pair.clients:
        await get(client, path_of(held[0]), 503)
        body = await get(client, path_of(held[0]).with_query(stale="true"))
        assert body["value"] == held[0].upper()
        (part,) = body["partitions"]
        assert (part["worker"], part["stale"], part["changelog_lag"]) == (url, True, 10)
        body = await get(client, "/tables/t/?stale=true&limit=1000")
        assert [entry["key"] for entry in body["entries"]] == sorted(held)
        assert all(part["stale"] for part in body["partitions"])
    assert first.reads == 0


@pytest.mark.parametrize("pair", [{"read_timeout": 0.05}], indirect=True)
@pytest.mark.parametrize("state", ["busy", "stuck"])
async def test_an_owner_that_cannot_read_asks_a_standby_if_stale_will_do(pair: Pair, state: str) -> None:
    owner, standby = pair.sources
    pair.give(dict.fromkeys(range(4), standby.worker.url))  # rows that the standby has
    held = standby.tables_["t"]
    held = dataclasses.replace(held, owners=dict.fromkeys(range(4), owner.worker.url))
    copied = dataclasses.replace(held, standbys=dict.fromkeys(range(4), (standby.worker.url,)))
    owner.tables_["t"] = dataclasses.replace(copied, local=frozenset(range(4)))
    standby.tables_["t"] = dataclasses.replace(copied, local=frozenset())
    if state == "stuck":
        owner.worker = dataclasses.replace(owner.worker, state="stuck", reason="it hangs")
    owner.block_reads = asyncio.Event()
    key, pages = path_of(KEYS[0]), "/tables/t/?limit=1000"
    for path in (key, pages):
        await get(pair.clients[0], path, 503)
    assert (await get(pair.clients[0], key.with_query(stale="true")))["value"] == KEYS[0].upper()
    body = await get(pair.clients[0], f"{pages}&stale=true")
    assert [entry["key"] for entry in body["entries"]] == sorted(KEYS)
    assert {part["worker"] for part in body["partitions"]} == {standby.worker.url}
    # A part of a page comes from this worker or from none. Without standbys, there is nothing to ask.
    await get(pair.clients[0], f"{pages}&stale=true&partitions=0,1", 503)
    home = str(owner.partition_for("t", KEYS[0].encode()))
    await get(pair.clients[0], key.with_query(stale="true", partitions=home), 503)
    owner.tables_["t"] = dataclasses.replace(owner.tables_["t"], standbys={})
    for path in (key.with_query(stale="true"), f"{pages}&stale=true"):
        body = await get(pair.clients[0], path, 503)
        assert ("it hangs" if state == "stuck" else "holds up the read") in body["error"]
    owner.block_reads.set()


async def test_standbys_are_asked_at_the_same_time(pair: Pair) -> None:
    """Otherwise a frozen worker would cost its time-out once for each of its partitions."""
    asked, all_asked = set(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        asked.add(request.query["partitions"])
        if len(asked) == 4:
            all_asked.set()
        await all_asked.wait()
        return web.json_response({"error": "frozen"}, status=503)

    app = web.Application()
    app.router.add_get("/{tail:.*}", slow)
    server = TestServer(app)
    await server.start_server()
    frozen, url = str(server.make_url("/")), pair.sources[1].worker.url
    pair.give(dict.fromkeys(range(4), url))  # rows that the second standby has
    table = dataclasses.replace(
        pair.sources[0].tables_["t"],
        owners=dict.fromkeys(range(4)),
        standbys=dict.fromkeys(range(4), (frozen, url)),
    )
    pair.sources[0].tables_["t"] = dataclasses.replace(table, local=frozenset())
    body = await get(pair.clients[0], "/tables/t/?stale=true&limit=1000")
    assert [entry["key"] for entry in body["entries"]] == sorted(KEYS)
    assert asked == {"0", "1", "2", "3"}
    await server.close()


async def test_a_restoring_worker_still_forwards(pair: Pair) -> None:
    source = pair.sources[0]
    source.worker = type(source.worker)("restoring", None, source.worker.url)
    elsewhere = next(key for key in KEYS if source.partition_for("t", key.encode()) in (1, 3) and "?" in key)
    assert (await get(pair.clients[0], path_of(elsewhere)))["key"] == elsewhere


async def test_something_else_at_the_owners_address(pair: Pair, serve: Serve) -> None:
    stranger = TestServer(web.Application())
    await serve(None, stranger)
    pair.give(dict.fromkeys(range(4), str(stranger.make_url("/"))))
    assert "cannot be reached" in (await get(pair.clients[0], "/tables/t/abc", 503))["error"]


@pytest.mark.parametrize("stale", [False, True])
async def test_a_404_of_a_worker_without_the_table_is_no_missing_key(
    pair: Pair, serve: Serve, stale: bool
) -> None:
    """The address of a lost worker may belong to another application by now, which does not know the table."""
    app = web.Application()
    add_routes(app, FakeSource(4))
    stranger = TestServer(app)
    await serve(None, stranger)
    lost, url = str(stranger.make_url("/")), pair.sources[1].worker.url
    pair.give(dict.fromkeys(range(4), lost))
    path = path_of(KEYS[0])
    body = await get(pair.clients[0], path, 503)
    assert f"is on {lost}, which answered 404: there is no table 't'" in body["error"]
    if stale:
        pair.give(dict.fromkeys(range(4), url))  # rows that the standby has
        for source in pair.sources:
            table = dataclasses.replace(
                source.tables_["t"],
                owners=dict.fromkeys(range(4), lost),
                standbys=dict.fromkeys(range(4), (lost, url)),
            )
            source.tables_["t"] = dataclasses.replace(table, local=frozenset())
        body = await get(pair.clients[0], path.with_query(stale="true"))
        assert body["value"] == KEYS[0].upper()
        body = await get(pair.clients[0], "/tables/t/?stale=true&limit=1000")
        assert [entry["key"] for entry in body["entries"]] == sorted(KEYS)


@pytest.mark.parametrize("path", ["/tables/t/abc", "/tables/t/?limit=5"])
async def test_the_rows_of_another_application_are_no_answer(pair: Pair, serve: Serve, path: str) -> None:
    app = web.Application()
    other = FakeSource(4)
    other.application_id = "arrivals"
    add_routes(app, other)
    stranger = TestServer(app)
    client = await serve(None, stranger)
    other.add_table("t", "key_value", key_value_stores(other, {"abc": "wrong"}))
    assert "wrong" in str(await get(client, path))
    pair.give(dict.fromkeys(range(4), str(stranger.make_url("/"))))
    body = await get(pair.clients[0], path, 503)
    assert (
        "answered 503: this worker belongs to the application arrivals, and not to 'flights'" in body["error"]
    )


async def test_credentials_are_passed_on(pair: Pair) -> None:
    seen: list[str | None] = []

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> Any:
        seen.append(request.headers.get("Authorization"))
        assert "partitions" in request.query
        return await handler(request)

    app = web.Application(middlewares=[guard])
    other = FakeSource(4)
    add_routes(app, other)
    server = TestServer(app)
    await server.start_server()
    other.add_table("t", "key_value", key_value_stores(other, {}))
    pair.give(dict.fromkeys(range(4), str(server.make_url("/"))))
    await get(pair.clients[0], "/tables/t/abc", 404, headers={"Authorization": "Bearer x"})
    assert seen == ["Bearer x"]
    await server.close()


async def test_nobody_makes_a_worker_leave_partitions_out(pair: Pair) -> None:
    """A header that proxies pass on changes nothing. A request for a part gets the named part, or an error."""
    for forwarded in ("", "0", "0,1,2,3", "²"):
        headers = {"X-Streamapp-Forwarded": forwarded}
        for client in pair.clients:
            body = await get(client, "/tables/t/?limit=1000", headers=headers)
            assert [entry["key"] for entry in body["entries"]] == sorted(KEYS)
            for key in KEYS[:5]:
                assert (await get(client, path_of(key), headers=headers))["value"] == key.upper()


async def test_a_part_of_a_table_says_that_it_is_one(pair: Pair) -> None:
    first, second = pair.sources
    body = await get(pair.clients[0], "/tables/t/?limit=1000&partitions=0,2")
    assert [each["partition"] for each in body["partitions"]] == [0, 2]
    assert {entry["partition"] for entry in body["entries"]} == {0, 2}
    reads = first.reads
    for path in ("/tables/t/?limit=5&partitions=1", "/tables/t/?limit=5&partitions=0,1"):
        error = (await get(pair.clients[0], path, 503))["error"]
        assert f"but on {second.worker.url}. " in error
        assert "ask again without this parameter" in error
    assert second.reads == 0
    assert first.reads <= reads + 1


@pytest.mark.parametrize("partitions", ["", "4", "-1", "0,", "0,x", "²", "00", "0 ", "9" * 5_000])
async def test_partitions_that_there_are_not_are_refused(pair: Pair, partitions: str) -> None:
    for path in ("/tables/t/?limit=5", "/tables/t/?newest=true", "/tables/t/?key=a"):
        body = await get(pair.clients[0], f"{path}&partitions={quote(partitions)}", 400)
        assert body["parameter"] == "partitions"


async def test_a_key_is_asked_for_in_its_partition(pair: Pair) -> None:
    source = pair.sources[0]
    here = next(key for key in KEYS if source.partition_for("t", key.encode()) == 0)
    path = path_of(here)
    assert (await get(pair.clients[0], path.with_query(partitions="0")))["value"] == here.upper()
    assert "is in partition 0" in (await get(pair.clients[0], path.with_query(partitions="2"), 400))["error"]
    await get(pair.clients[1], path.with_query(partitions="0"), 503)
