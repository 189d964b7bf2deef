"""The guard: a page of another site reads nothing and changes nothing, whatever name resolves to this worker."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import faust
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from faust.web import View
from yarl import URL

from streamapp.app import App
from streamapp.dsl import StreamsBuilder
from streamapp.errors import ConfigError
from streamapp.serdes import StringSerde
from streamapp.web.server import add_routes, install

from .conftest import Serve
from .fakes import FakeSource, key_value_stores

READS = [
    "/",
    "/static/page.js",
    "/status",
    "/tables/",
    "/tables/t/a",
    "/metrics",
    "/topology",
    "/health/ready",
]


def flights() -> FakeSource:
    source = FakeSource(url="http://worker-1.example:6066")
    source.add_table("t", "key_value", key_value_stores(source, {"a": 1}))
    return source


@pytest.mark.parametrize("path", [*READS, "/nothing"])
async def test_a_name_that_somebody_made_resolve_to_this_worker_reads_nothing(
    serve: Serve, path: str
) -> None:
    client = await serve(flights())
    answer = await client.get(path, headers={"Host": "evil.example:6066"})
    assert answer.status == 403
    assert "web_allowed_hosts" in (await answer.json())["error"]


async def test_a_name_that_somebody_made_resolve_to_this_worker_changes_nothing(serve: Serve) -> None:
    source = flights()
    client = await serve(source)
    headers = {
        "Host": "evil.example:6066",
        "Origin": "http://evil.example:6066",
        "Sec-Fetch-Site": "same-origin",
    }
    assert (await client.post("/pause", headers=headers)).status == 403
    assert not source.worker.paused


@pytest.mark.parametrize(
    "host",
    [
        "localhost:1", "LOCALHOST", "app.localhost:80", "127.0.0.1:6066", "10.1.2.3", "[::1]:6066", "[fe80::1]",
        "worker-1.example:9", "Worker-1.Example.", socket.gethostname(), "views.example:443", "a.b.svc.local",
    ],
)  # fmt: skip
async def test_the_workers_own_names_and_addresses_are_served(serve: Serve, host: str) -> None:
    client = await serve(flights(), allowed_hosts=["Views.example", "*.svc.local"])
    assert (await client.get("/status", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "localhost.evil.example", "worker-1.example.evil", "127.0.0.1.evil.example", "127.1",
        "svc.local", "xsvc.local", "views.example.evil", "[::1].evil", "[", "²", "127.0.0.²", "evil@localhost",
    ],
)  # fmt: skip
async def test_other_names_are_refused(serve: Serve, host: str) -> None:
    client = await serve(flights(), allowed_hosts=["views.example", "*.svc.local"])
    answer = await client.get("/status", headers={"Host": host})
    assert 400 <= answer.status < 500, await answer.text()


async def test_an_old_client_without_a_host_is_served(serve: Serve) -> None:
    client = await serve(flights())
    for version, status in [("1.0", "200"), ("1.1", "400")]:
        with socket.create_connection((client.host, client.port)) as connection:
            connection.setblocking(False)
            request = f"GET /health/ready HTTP/{version}\r\nConnection: close\r\n\r\n".encode()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, request)
            assert status.encode() in (await loop.sock_recv(connection, 100)).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Origin": ""},
        {"Origin": "²"},
        {"Origin": "http://{host}:1@evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "x", "Origin": "http://{host}"},
    ],
)
async def test_pages_of_other_origins_change_nothing(serve: Serve, headers: dict[str, str]) -> None:
    source = flights()
    client = await serve(source)
    host = f"{client.host}:{client.port}"
    sent = {name: value.format(host=host) for name, value in headers.items()}
    answer = await client.post("/pause", headers=sent)
    assert answer.status == 403
    assert "refused" in (await answer.json())["error"]
    assert not source.worker.paused
    for allowed in (
        {},
        {"Origin": f"http://{host}"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert (await client.post("/pause", headers=allowed)).status == 200


async def test_fausts_pages_and_those_of_the_application_have_the_same_guard(serve: Serve) -> None:
    app = faust.App("t", broker="kafka://localhost:1", debug=True)
    install(app, flights(), allowed_hosts=["views.example"])
    changed: list[str] = []

    @app.page("/mine/")
    class Mine(View):  # type: ignore[misc]
        async def get(self, request: Any) -> Any:
            return self.json({})

        async def post(self, request: Any) -> Any:
            changed.append("mine")
            return self.json({})

    @app.page("/shared/", cors_options={"https://friend.example": faust.web.base.ResourceOptions()})
    class Shared(View):  # type: ignore[misc]
        async def post(self, request: Any) -> Any:
            changed.append("shared")
            return self.json({})

    app.web.init_server()
    client = await serve(None, TestServer(app.web.web_app))
    for path in ("/", "/faust/", "/router/", "/table/", "/mine/", "/graph", "/nothing"):
        assert (await client.get(path, headers={"Host": "evil.example"})).status == 403, path
    assert (await client.get("/mine/", headers={"Host": "views.example"})).status == 200
    for origin, path, status in [
        ("https://evil.example", "/mine/", 403),
        ("https://friend.example", "/shared/", 200),
        ("https://evil.example", "/shared/", 403),
        ("https://friend.example", "/pause", 403),
    ]:
        headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        assert (await client.post(path, headers=headers)).status == status, (origin, path)
    assert changed == ["shared"]


async def test_a_guard_covers_the_other_routes_of_an_application(serve: Serve) -> None:
    async def secret(request: web.Request) -> web.Response:
        return web.Response(text="secret")

    app = web.Application()
    app.router.add_get("/secret", secret)
    add_routes(app, flights())
    client = await serve(None, TestServer(app))
    assert (await client.get("/secret")).status == 200
    assert (await client.get("/secret", headers={"Host": "evil.example"})).status == 403


def nothing(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to("out")


async def test_an_app_is_told_the_names_that_it_is_asked_by(serve: Serve, tmp_path: Path) -> None:
    app = App(
        "t",
        topology=nothing,
        datadir=tmp_path,
        bootstrap_servers="localhost:1",
        canonical_url="http://worker-7.example:6066",
        web_allowed_hosts=["*.views.example"],
    )
    app.web.init_server()
    client = await serve(None, TestServer(app.web.web_app))
    for host, status in [("worker-7.example", 200), ("a.views.example", 200), ("views.example", 403)]:
        assert (await client.get("/health/live", headers={"Host": host})).status == status


@pytest.mark.parametrize(
    "names", ["views.example", ["http://views.example"], ["views.example:80"], [1], [""], 5]
)
def test_wrong_names_are_refused_when_the_app_is_made(names: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="web_allowed_hosts"):
        App("t", topology=nothing, datadir=tmp_path, web_allowed_hosts=names)


@pytest.mark.parametrize(
    "path",
    [
        "/tables/t/?key=%ff",
        "/tables/t/%ff",
        "/tables/t/%C3%A9%C3",
        "/tables/t/?prefix=%ed%a0%80&limit=1",
        "/?%fe=1",
    ],
)
async def test_bytes_that_are_no_text_ask_for_nothing(serve: Serve, path: str) -> None:
    """The answer was for the key U+FFFD, or for the key "%ff"."""
    source = FakeSource()
    source.add_table("t", "key_value", key_value_stores(source, {"\ufffd": 1, "%ff": 2, "é": 3}))
    client = await serve(source)
    answer = await client.get(URL(path, encoded=True))
    assert (answer.status, "not UTF-8" in (await answer.json())["error"]) == (400, True)
    for key, text in [("%EF%BF%BD", "\ufffd"), ("%25ff", "%ff"), ("%c3%a9", "é")]:
        for known in (f"/tables/t/{key}", f"/tables/t/?key={key}"):
            assert (await (await client.get(URL(known, encoded=True))).json())["key"] == text
