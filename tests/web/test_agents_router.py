"""The pages of agents' tables while workers come and go."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable
from yarl import URL

from streamapp import App
from streamapp.web.caller import CALLER, Caller
from streamapp.web.router import AgentsRouter

from ..processes import free_port

REQUEST = make_mocked_request("GET", "/table/seen/ann/")


class Router(AgentsRouter):
    """A router for which one worker has all keys."""

    owner: URL

    def key_store(self, table_name: str, key: Any) -> URL:
        return self.owner


def router() -> Router:
    app = App("pages-of-agents", web_port=free_port())
    app.Table("seen")
    found = app.router = Router(app)
    found.owner = URL(app.conf.canonical_url)
    return found


async def test_a_worker_that_has_gone_is_not_available() -> None:
    """The page answered 500 until the group had noticed the end of the worker."""
    asking = router()
    asking.owner = URL(f"http://127.0.0.1:{free_port()}")
    request: Any = REQUEST
    CALLER.set(Caller())
    with pytest.raises(
        ServiceUnavailable, match=f"the worker at {asking.owner}, which has the key, does not answer"
    ):
        await asking.route_req("seen", "ann", asking.app.web, request)
    await asking.app.http_client.close()


async def test_a_page_waits_for_the_restore_of_the_table() -> None:
    """A page with `table_route` answered with the default of the table while the worker restored the row."""
    asking = router()
    request: Any = REQUEST
    with pytest.raises(SameNode):
        await asking.route_req("seen", "ann", asking.app.web, request)
    asking.app.rebalancing = True
    with pytest.raises(ServiceUnavailable, match="restores its tables"):
        await asking.route_req("seen", "ann", asking.app.web, request)


async def test_a_page_of_another_worker_arrives_as_it_is() -> None:
    """A picture answered 500 on a worker without the key, a POST lost its body, and redirects were followed."""
    picture = b"\x89PNG\xff\x00"

    async def page(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.Response(text=f"got {await request.text()}", status=201, headers={"X-Seen": "1"})
        if request.path == "/moved":
            raise web.HTTPFound("/elsewhere")
        return web.Response(body=picture, content_type="image/png", headers={"Cache-Control": "no-store"})

    asking = router()

    async def forward(request: web.Request) -> web.StreamResponse:
        CALLER.set(Caller())
        passed: Any = request
        answer: web.StreamResponse = await asking.route_req("seen", "ann", asking.app.web, passed)
        return answer

    async with TestServer(serving(page)) as owner, TestClient(TestServer(serving(forward))) as client:
        asking.owner = URL(str(owner.make_url("")))
        answer = await client.get("/picture")
        assert (answer.status, answer.content_type, await answer.read()) == (200, "image/png", picture)
        assert answer.headers["Cache-Control"] == "no-store"
        answer = await client.post("/order", data="2 m\u00fcsli")
        assert (answer.status, await answer.text(), answer.headers["X-Seen"]) == (
            201,
            "got 2 m\u00fcsli",
            "1",
        )
        answer = await client.get("/moved", allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")
    await asking.app.http_client.close()


def serving(handler: Any) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path}", handler)
    return app
