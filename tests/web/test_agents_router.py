"""The pages of agents' tables while workers come and go."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
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
