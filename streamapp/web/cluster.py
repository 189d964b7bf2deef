"""Requests to other workers: one hop, with a time-out, never in a cycle.

A request for rows of another worker names partitions in its URL (``partitions=1,3``). The other worker answers from
its own partitions or refuses the request, and never asks a third worker. So a wrong address cannot make workers ask
each other without end. The partitions are a parameter of the URL and not a header, because proxies may drop headers.
Clients may give the parameter, too, to ask a worker for its own rows only.
"""

from __future__ import annotations

import errno
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from aiohttp.abc import ResolveResult
from yarl import URL

from streamapp.web.caller import CALLER
from streamapp.web.forwarding import HEADER, Signatures
from streamapp.web.problem import Unavailable, problem_response

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

__all__ = [
    "LOGIN",
    "LocalResolver",
    "Peers",
    "local_name",
    "login_headers",
    "open_session",
    "refuse_strangers",
]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_APPLICATION = "X-Streamapp-Application"
_PASSED_ON = ("X-Request-Id", "Traceparent")
LOGIN = ("Authorization", "Cookie")
"""The headers of a request with the login of its client."""
_MOST_BYTES = 256 * 2**20
"""The largest answer that is accepted from another worker. A page has about 4 MiB, or a single larger entry."""


class LocalResolver(aiohttp.ThreadedResolver):
    """Resolves ``<host>.localhost``, the name of a worker that listens on loopback only. Some systems cannot
    resolve this name.

    The name contains the host name of the machine, so that a worker of another machine is not mistaken for a local one.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.endswith(".localhost"):
            if host != local_name():
                # aiohttp shows only the text of the second argument.
                raise OSError(
                    errno.EADDRNOTAVAIL,
                    f"{host} listens on its own machine only: set web_bind and users there (docs/security.md)",
                )
            host = "127.0.0.1"
        return await super().resolve(host, port, family)


def local_name() -> str:
    """The host name under which other workers of this machine know a worker on loopback. A worker of another machine
    refuses to resolve the name."""
    return f"{socket.gethostname().lower()}.localhost"


def open_session() -> aiohttp.ClientSession:
    """The session of Faust's HTTP client (``app.http_client``), which finds workers on loopback, too."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=LocalResolver()))


def refuse_strangers(application_id: str) -> Middleware:
    """Middleware that refuses requests of other applications' workers.

    The address of a lost worker may belong to a worker of another application before the group notices the loss. This
    worker may have a table of the same name, whose rows would be a wrong answer.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.get(_APPLICATION, application_id)
        if asked != application_id:
            return problem_response(
                Unavailable(
                    f"this worker belongs to the application {application_id}, and not to {asked[:100]!r}",
                    retry_after=2,
                )
            )
        return await handler(request)

    return middleware


class Peers:
    """An HTTP client for the views of other workers. ``timeout`` is in seconds, for a whole answer.

    Each request names the application, so that a worker of another application refuses the request.
    With ``signatures``, a request of a web user is signed in the user's name. Then other workers do not get the user's
    password or token. Without web users, ``Authorization`` and ``Cookie`` of a request are passed on.
    """

    def __init__(
        self,
        application_id: str,
        timeout: float = 5.0,
        signatures: Signatures | None = None,
        tls: Callable[[], ssl.SSLContext | bool] = lambda: True,
    ) -> None:
        self._application_id = application_id
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._signatures, self._tls = signatures, tls
        self._session: aiohttp.ClientSession | None = None

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Keeps the session open while the web server is up; for ``web.Application.cleanup_ctx``."""
        connector = aiohttp.TCPConnector(resolver=LocalResolver(), ssl=self._tls())
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as self._session:
            yield
        self._session = None

    async def ask(
        self, worker: str, request: web.Request, partitions: Iterable[int]
    ) -> tuple[int, dict[str, Any]]:
        """Forwards the request to another worker, for these partitions. Returns the status and the JSON of the answer.

        The status is 200 or 404, and the answer names its partitions. Raises `Unavailable` for any other answer, for
        example the 404 of a worker that does not have the table. Raises `Unavailable` also if the worker does not
        answer.
        """
        assert self._session is not None, "the web application has not been started"
        listed = ",".join(map(str, sorted(partitions)))
        path = request.rel_url.raw_path_qs
        asked = f"{path}{'&' if '?' in path else '?'}partitions={listed}"
        url = URL(worker.rstrip("/") + asked, encoded=True)
        headers = self._headers(request, "GET", worker, url)
        where = {"worker": worker, "partitions": [int(each) for each in listed.split(",")]}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                body = await _json(response)
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            why = str(error) or f"no answer within {self._timeout.total:g} s"
            raise Unavailable(
                f"partition {listed} is on {worker}, which cannot be reached: {why}",
                retry_after=2,
                **where,
            ) from error
        if response.status not in (200, 404) or not isinstance(body, dict) or "partitions" not in body:
            reason = body.get("error") if isinstance(body, dict) else None
            wait = body.get("retry_after", 2) if isinstance(body, dict) else 2
            message = f"partition {listed} is on {worker}, which answered {response.status}: {reason}"
            raise Unavailable(message, retry_after=wait, **where)
        return response.status, body

    async def post(self, worker: str, request: web.Request, path: str) -> None:
        """Sends a POST without a body to another worker. Raises `Unavailable` unless the status is 200."""
        assert self._session is not None, "the web application has not been started"
        url = URL(worker.rstrip("/") + path, encoded=True)
        headers = self._headers(request, "POST", worker, url)
        try:
            async with self._session.post(url, headers=headers, allow_redirects=False) as response:
                if response.status != 200:
                    said = (await response.content.read(200)).decode(errors="replace")
                    raise Unavailable(f"it answered {response.status}: {said}")
        except (TimeoutError, aiohttp.ClientError) as error:
            raise Unavailable(str(error) or f"no answer within {self._timeout.total:g} s") from error

    def _headers(self, request: web.Request, method: str, worker: str, url: URL) -> dict[str, str]:
        passed_on = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        login = login_headers(request, self._signatures, method, worker, url)
        return {**passed_on, **login, _APPLICATION: self._application_id}


def login_headers(
    request: web.Request, signatures: Signatures | None, method: str, worker: str, url: URL
) -> dict[str, str]:
    """The login with which a worker sends a client's request on to another worker, at ``url``.

    With web users, the login is a signature for the user of the request, and not the user's password or token. Without
    web users, the login is that of the request (``Authorization``, ``Cookie``).
    """
    identity = CALLER.get().identity
    if identity is None or signatures is None:
        return {name: request.headers[name] for name in LOGIN if name in request.headers}
    return {HEADER: signatures.sign(identity, method, worker, url.raw_path_qs)}


async def _json(response: aiohttp.ClientResponse) -> Any:
    """The JSON of an answer. Raises `ValueError` if the answer is not JSON, or too large."""
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise ValueError(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
    return json.loads(data)
