"""Pausing and resuming over HTTP and from the command line."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from click.testing import CliRunner

from streamapp.cli import main

from .conftest import Serve
from .fakes import FakeSource


async def both(serve: Serve) -> tuple[list[FakeSource], list[Any]]:
    sources = [FakeSource(), FakeSource()]
    clients = [await serve(source) for source in sources]
    urls = [str(client.make_url("/")) for client in clients]
    for source, url in zip(sources, urls, strict=True):
        source.worker = dataclasses.replace(source.worker, url=url, workers=tuple(urls))
    return sources, clients


async def test_pauses_one_worker_or_all(serve: Serve) -> None:
    sources, clients = await both(serve)
    assert (await clients[0].post("/pause")).status == 200
    assert [source.worker.paused for source in sources] == [True, False]
    status = await (await clients[0].get("/status")).json()
    assert status["paused"] is True
    assert "paused" in status["findings"][0]["message"]
    assert (await clients[0].get("/health/ready")).status == 200  # its tables can be read
    response = await clients[1].post("/pause?workers=all")
    assert len((await response.json())["workers"]) == 2
    assert [source.worker.paused for source in sources] == [True, True]
    await clients[1].post("/resume?workers=all")
    assert [source.worker.paused for source in sources] == [False, False]


async def test_a_worker_that_cannot_be_told_is_named(serve: Serve) -> None:
    (first, _), clients = await both(serve)
    first.worker = dataclasses.replace(first.worker, workers=(first.worker.url, "http://127.0.0.1:9"))
    response = await clients[0].post("/pause?workers=all")
    assert response.status == 503
    body = await response.json()
    assert "http://127.0.0.1:9" in body["error"]
    assert body["workers"] == [first.worker.url]


async def test_a_worker_of_another_application_is_not_paused(serve: Serve) -> None:
    """It may have the address of a lost worker by now."""
    (first, second), clients = await both(serve)
    stranger = FakeSource()
    stranger.application_id = "arrivals"
    client = await serve(stranger)
    url = str(client.make_url("/"))
    first.worker = dataclasses.replace(first.worker, workers=(*first.worker.workers, url))
    response = await clients[0].post("/pause?workers=all")
    assert response.status == 503
    assert f"{url}: it answered 503" in (await response.json())["error"]
    assert [source.worker.paused for source in (first, second, stranger)] == [True, True, False]
    assert (await client.post("/pause")).status == 200  # a client's own request


async def test_pages_of_other_sites_cannot_pause(serve: Serve) -> None:
    (first, _), clients = await both(serve)
    response = await clients[0].post("/pause", headers={"Origin": "http://evil.example"})
    assert response.status == 403
    own = str(clients[0].make_url("/")).rstrip("/")
    assert not first.worker.paused
    assert (await clients[0].post("/pause", headers={"Origin": own})).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/pause?workers=some", 400),
        ("/pause?worker=all", 400),
        ("/pause?workers=all&workers=this", 400),
        ("/pause", 405),
    ],
)
async def test_wrong_requests(serve: Serve, path: str, status: int) -> None:
    _, clients = await both(serve)
    response = await (clients[0].get(path) if status == 405 else clients[0].post(path))
    assert response.status == status
    if status == 405:
        assert "POST" in (await response.json())["error"]


async def test_the_command_tells_all_workers(serve: Serve) -> None:
    sources, clients = await both(serve)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, list(arguments))

    url = str(clients[0].make_url("/"))
    result = await asyncio.to_thread(run, "pause", url)
    assert (result.exit_code, result.output.count("http://")) == (0, 2)
    assert all(source.worker.paused for source in sources)
    result = await asyncio.to_thread(run, "resume", "--only-this", url)
    assert [source.worker.paused for source in sources] == [False, True]
    result = await asyncio.to_thread(run, "pause", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "no worker answers" in result.output
