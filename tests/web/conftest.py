from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from streamapp.web.server import add_routes

Serve = Callable[..., Awaitable[TestClient[web.Request, web.Application]]]


@asynccontextmanager
async def serving() -> AsyncIterator[Serve]:
    """Starts the views over a source (or a server that a test made); returns a client."""
    clients: list[TestClient[web.Request, web.Application]] = []

    async def start(source: Any, server: TestServer | None = None, **options: Any) -> Any:
        if server is None:
            app = web.Application()
            add_routes(app, source, **options)
            server = TestServer(app)
        client = TestClient(server)
        await client.start_server()
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with serving() as start:
        yield start
