"""`POST /pause` and `POST /resume` (KIP-834): of this worker, or with ``?workers=all`` of all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from streamapp.web.cluster import Peers
from streamapp.web.problem import BadParameter, Unavailable, check_parameters, json_response
from streamapp.web.view_source import ViewSource

__all__ = ["ControlViews"]


class ControlViews:
    """The handlers of `/pause` and `/resume`. An answer does not wait until a data plane has paused.

    With ``workers=all``, a worker first pauses or resumes itself, then tells the others, and waits for their answers.
    If a worker cannot be reached, the answer is 503 and names the workers that were reached.
    """

    def __init__(self, source: ViewSource, peers: Peers) -> None:
        self._source, self._peers = source, peers

    async def pause(self, request: web.Request) -> web.Response:
        return await self._set(request, True)

    async def resume(self, request: web.Request) -> web.Response:
        return await self._set(request, False)

    async def _set(self, request: web.Request, paused: bool) -> web.Response:
        check_parameters(request, ["workers"])
        which = request.query.get("workers", "this")
        if which not in ("this", "all"):
            raise BadParameter("workers", f"workers={which!r:.20}: expected this or all", example="all")
        status = self._source.status()
        others = [url for url in status.workers if url != status.url] if which == "all" else []
        if paused:
            self._source.pause()
        else:
            self._source.resume()
        told = await asyncio.gather(
            *(self._peers.post(url, request, request.path) for url in others), return_exceptions=True
        )
        failed = {url: str(error) for url, error in zip(others, told, strict=True) if error is not None}
        answer: dict[str, Any] = {"paused": paused, "workers": [status.url, *others]}
        if failed:
            reached = [url for url in answer["workers"] if url not in failed]
            listed = "; ".join(f"{url}: {why}" for url, why in failed.items())
            raise Unavailable(f"the request did not reach all workers: {listed}", workers=reached)
        return json_response(answer)
