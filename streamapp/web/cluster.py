"""Asking the other workers: one hop, with a time-out, never in a cycle.

A question to another worker names the partitions that it is about (``partitions=1,3``), in its URL, where no proxy takes it away and
anybody may write it. A worker answers such a question from its own partitions or refuses, and never asks on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from streamapp.web.problem import Unavailable

__all__ = ["Peers"]

_PASSED_ON = ("Authorization", "Cookie", "X-Request-Id", "Traceparent")


class Peers:
    """HTTP client for the views of other workers. ``timeout`` is in seconds, for a whole answer."""

    def __init__(self, timeout: float = 5.0) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """For ``web.Application.cleanup_ctx``."""
        async with aiohttp.ClientSession(timeout=self._timeout) as self._session:
            yield
        self._session = None

    async def ask(
        self, worker: str, request: web.Request, partitions: Iterable[int]
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON of another worker's answer to the same request about some partitions; raises `Unavailable`.

        200 and 404 are answers; anything else means that the worker cannot say.
        """
        assert self._session is not None, "the web application has not been started"
        listed = ",".join(map(str, sorted(partitions)))
        path = request.rel_url.raw_path_qs
        asked = f"{path}{'&' if '?' in path else '?'}partitions={listed}"
        url = URL(worker.rstrip("/") + asked, encoded=True)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        where = {"worker": worker, "partitions": [int(each) for each in listed.split(",")]}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                body = await response.json()
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            why = str(error) or f"no answer within {self._timeout.total:g} s"
            raise Unavailable(
                f"partition {listed} is held by {worker}, which cannot be reached: {why}",
                retry_after=2,
                **where,
            ) from error
        if response.status not in (200, 404) or not isinstance(body, dict):
            reason = body.get("error") if isinstance(body, dict) else None
            wait = body.get("retry_after", 2) if isinstance(body, dict) else 2
            message = f"partition {listed} is held by {worker}, which answered {response.status}: {reason}"
            raise Unavailable(message, retry_after=wait, **where)
        return response.status, body

    async def post(self, worker: str, request: web.Request, path: str) -> None:
        """Sends a request without a body to another worker; raises `Unavailable` unless the answer is 200."""
        assert self._session is not None, "the web application has not been started"
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        try:
            async with self._session.post(
                worker.rstrip("/") + path, headers=headers, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise Unavailable(f"it answered {response.status}: {(await response.text())[:200]}")
        except (TimeoutError, aiohttp.ClientError) as error:
            raise Unavailable(str(error) or f"no answer within {self._timeout.total:g} s") from error
