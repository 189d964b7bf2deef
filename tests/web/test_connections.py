"""Limits of the web server: connections that want nothing do not keep others out, and do not stay."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import faust
import pytest
from aiohttp import web

from streamapp.web import connections
from streamapp.web.connections import LimitedRunner, most_connections
from streamapp.web.server import install
from tests.processes import free_port

from .fakes import FakeSource

Start = Callable[..., Awaitable[int]]
HEAD = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serves an application with a limit; returns the port."""
    runners = []

    async def started(app: web.Application, most: int) -> int:
        runner = LimitedRunner(app, most=most, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        return int(runner.addresses[0][1])

    yield started
    for runner in runners:
        await runner.cleanup()


def answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    return app


async def at_once(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def ask(port: int, path: str = "/") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://localhost:{port}{path}") as response:
        return response.status, await response.text()


async def closed(reader: asyncio.StreamReader) -> bool:
    """True if the server has closed a connection; the data that the server sent before is read."""
    try:
        async with asyncio.timeout(60):
            while await reader.read(65_536):
                pass
    except ConnectionError:
        pass
    return True


async def test_half_open_connections_keep_nobody_out(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    port = await start(answering(at_once), 20)
    halves = []
    with caplog.at_level(logging.WARNING):
        for n in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD[: n % len(HEAD)])
            halves.append((reader, writer))
            if n % 20 == 0:
                assert await ask(port) == (200, "ok")
    assert all([await closed(reader) for reader, _ in halves[:150]])
    assert [record.name for record in caplog.records] == ["streamapp.web.connections"]
    assert "20 connections" in caplog.text
    for _, writer in halves:
        writer.close()
    assert await ask(port) == (200, "ok")


async def test_a_connection_that_is_answered_is_not_closed_for_new_ones(start: Start) -> None:
    go_on = asyncio.Event()
    begun = asyncio.Semaphore(0)

    async def slowly(request: web.Request) -> web.Response:
        begun.release()
        await go_on.wait()
        return web.Response(text="slow")

    port = await start(answering(slowly), 5)
    asked = [asyncio.create_task(ask(port)) for _ in range(5)]
    for _ in asked:
        await begun.acquire()
    with pytest.raises(aiohttp.ClientError):
        await ask(port)
    go_on.set()
    assert await asyncio.gather(*asked) == [(200, "slow")] * 5
    assert await ask(port) == (200, "slow")


async def test_clients_that_do_not_take_their_answer_keep_nobody_out(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.0)

    async def much(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * (20_000_000 if request.path == "/much" else 2))

    port = await start(answering(much), 5)
    streams = []
    for _ in range(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_024)
        writer.write(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(100)
        streams.append(writer)
        assert await ask(port) == (200, "xx")
    for writer in streams:
        writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", HEAD, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD])
async def test_a_request_that_is_not_said_in_time_is_not_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(connections, "KEEP_ALIVE_SECONDS", 0.2)
    port = await start(answering(at_once), 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def trickle() -> None:
        writer.write(sent)
        while True:
            writer.write(b"X-More: x\r\n" if sent else b"\r\n")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert await closed(reader)
    trickling.cancel()
    writer.close()


async def test_a_connection_serves_one_request_after_the_other(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 5.0)
    seen: set[Any] = set()

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.add(request.transport.get_extra_info("peername"))
        return web.Response(text=request.path)

    port = await start(answering(note), 2)
    async with aiohttp.ClientSession() as session:
        for n in range(100):
            async with session.get(f"http://localhost:{port}/{n}") as response:
                assert await response.text() == f"/{n}"
    assert len(seen) == 1


async def test_fausts_web_server_has_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(connections, "most_connections", lambda: 10)
    app = faust.App("t", broker="kafka://localhost:1", web_port=port, web_bind="127.0.0.1")
    install(app, FakeSource())
    app.web.init_server()
    await app.web.start_server()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
    status, _ = await ask(port, "/health/ready")
    assert status == 200
    assert all([await closed(reader) for reader, _ in streams[:40]])
    await app.web.stop_server()


def test_most_file_handles_stay_for_brokers_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    for handles, most in [(1_024, 256), (256, 64), (10, 16), (1_000_000, 1_024), (-1, 1_024)]:
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _, handles=handles: (handles, handles))
        assert most_connections() == most


@pytest.mark.parametrize("head", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)

    async def read(request: web.Request) -> web.Response:
        return web.Response(text=await request.text())

    app = web.Application()
    app.router.add_post("/", read)
    port = await start(app, 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + head)

    async def trickle() -> None:
        while True:
            writer.write(b"1\r\nx\r\n" if b"chunked" in head else b"x")
            await asyncio.sleep(0.05)

    trickling = asyncio.create_task(trickle())
    assert await closed(reader)
    trickling.cancel()
    writer.close()


async def test_answers_that_nobody_takes_have_a_bound_and_a_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsent: list[int] = []

    async def much(request: web.Request) -> web.Response:
        unsent.append(
            sum(each.transport.get_write_buffer_size() for each in runner._connections._open.values())
        )
        return web.Response(body=b"x" * 8_000_000)

    monkeypatch.setattr(connections, "MOST_UNSENT", 20_000_000)
    runner = LimitedRunner(answering(much), most=100, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    streams = []
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(runner.addresses[0][1]), limit=1_024)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(100)
        streams.append((reader, writer))
    assert max(unsent) < 28_000_000
    assert all([await closed(reader) for reader, _ in streams[:15]])
    monkeypatch.setattr(connections, "TAKE_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(runner.addresses[0][1]), limit=1_024)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readexactly(100)
    name = writer.get_extra_info("sockname")
    async with asyncio.timeout(60):
        while any(each.get_extra_info("peername") == name for each in runner._connections._open):
            await asyncio.sleep(0.05)
    for _, each in [*streams, (reader, writer)]:
        each.transport.abort()
    await runner.cleanup()


async def test_a_refused_request_leaves_no_memory(start: Start) -> None:
    """A worker grew by 750 MB after 720 requests with large bodies, because garbage is seldom collected there."""
    asked: list[weakref.ref[web.Request]] = []

    async def read(request: web.Request) -> web.Response:
        asked.append(weakref.ref(request))
        await request.read()
        response = web.HTTPSeeOther("/there")
        response.set_cookie("seen", "1")
        raise response

    app = web.Application()
    app.router.add_post("/", read)
    port = await start(app, 20)
    gc.collect()
    gc.disable()
    try:
        async with aiohttp.ClientSession() as session:
            for size, status in ((2 * 2**20, 413), (10, 303)) * 5:
                async with session.post(
                    f"http://localhost:{port}/", data=b"x" * size, allow_redirects=False
                ) as answer:
                    assert answer.status == status
                    if status == 303:
                        assert (answer.headers["Location"], answer.cookies["seen"].value) == ("/there", "1")
            kept = [each for each in asked if each() is not None]
            assert len(kept) <= 1  # the connection may have the last one
    finally:
        gc.enable()
