"""Pages whose requests go on to the worker that has a key of a Faust table (``@app.table_route``, ``/table/``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from faust.web import View
from yarl import URL

from streamapp.app import App
from streamapp.web.access import WebAccess
from tests.processes import free_port

from .conftest import Serve
from .test_authentication import AS_BOB, ENVIRON
from .test_tls import environ_of, pem, put

__all__ = ["pem"]  # the fixture

LOGIN = {**AS_BOB, "Cookie": "session=planted"}


@pytest.fixture
async def pair(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts two workers of which the second has all keys; returns a function that asks the first for a page."""

    async def start(environ: dict[str, str]) -> Any:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        access, ports, clients = WebAccess(environ), [free_port(), free_port()], []
        scheme = "https" if access.encrypts else "http"
        for number, port in enumerate(ports):
            app = App("t", datadir=tmp_path / str(number), bootstrap_servers="localhost:1")
            app.conf.canonical_url = URL(f"{scheme}://127.0.0.1:{port}")
            seen = app.Table("seen", default=int)

            @app.page("/headers/{key}/")
            class Headers(View):  # type: ignore[misc]
                @app.table_route(table=seen, match_info="key")  # type: ignore[untyped-decorator]
                async def get(self, request: Any, key: str) -> Any:
                    return self.json({**request.headers, "key": key, "path": request.path_qs})

            @app.page("/by-query/")
            class ByQuery(View):  # type: ignore[misc]
                @app.table_route(table=seen, query_param="key")  # type: ignore[untyped-decorator]
                async def get(self, request: Any) -> Any:
                    return self.json({"key": request.query["key"]})

            @app.page("/by-topic/")
            class ByTopic(View):  # type: ignore[misc]
                @app.topic_route(topic=app.topic("t"), query_param="key")  # type: ignore[untyped-decorator]
                async def get(self, request: Any) -> Any:
                    raise AssertionError("no request has a key")

            monkeypatch.setattr(app.router, "key_store", lambda *_: URL(f"{scheme}://127.0.0.1:{ports[1]}"))
            app.web.init_server()
            server = TestServer(app.web.web_app, port=port, scheme=scheme)
            await server.start_server(ssl=access.server_context())
            clients.append(await serve(None, server))
        return partial(clients[0].get, ssl=access.client_context())

    return start


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_worker_sends_no_password_to_another_worker(
    pair: Any, pem: Path, tmp_path: Path, encrypted: bool
) -> None:
    """Faust sent all headers of the request on, so a member of the group could get passwords. Faust did not know the
    authorities of the workers' certificates.
    """
    put(pem, tmp_path)
    ask = await pair(environ_of(tmp_path) if encrypted else ENVIRON)
    answer = await ask("/headers/a%2Fb/?x=%20y", headers={**LOGIN, "X-Mine": "1"})
    assert answer.status == 200
    heard = await answer.json()
    assert (heard["key"], heard["path"], heard["X-Mine"]) == ("a/b", "/headers/a%2Fb/?x=%20y", "1")
    assert not {"Authorization", "Cookie"} & heard.keys()
    assert ":bob" in heard["X-Streamapp-Forwarded"]
    assert (await ask("/headers/a/")).status == 401


async def test_without_users_a_request_keeps_its_login_and_gets_the_host_of_the_other_worker(
    pair: Any,
) -> None:
    ask = await pair({})
    heard = await (await ask("/headers/a/", headers={**LOGIN, "Host": "localhost"})).json()
    assert {name: heard[name] for name in LOGIN} == LOGIN
    assert heard["Host"] != "localhost"


async def test_a_request_without_the_key_is_refused(pair: Any) -> None:
    """The answer was 500."""
    ask = await pair({})
    assert (await (await ask("/by-query/?key=")).json())["key"] == ""
    for path in ("/by-query/", "/by-topic/"):
        answer = await ask(f"{path}?k=1")
        assert (answer.status, f"{path}?key=KEY" in (await answer.json())["error"]) == (400, True)
