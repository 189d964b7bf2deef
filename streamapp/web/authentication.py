"""Authenticates each request before its page runs, if there are web users.

Reads (GET, HEAD, OPTIONS) need the role ``read`` or ``operate``, all other requests ``operate``. Only probes
(``/health/live``, ``/health/ready``) and preflight requests of browsers need no login.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from streamapp.web.access import WebAccess
from streamapp.web.caller import CALLER, Caller
from streamapp.web.forwarding import HEADER, Signatures
from streamapp.web.oidc import Oidc, ProviderSilent
from streamapp.web.problem import Problem, problem_response
from streamapp.web.rates import Buckets, address_of
from streamapp.web.users import Identity, Users

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

__all__ = ["READS", "Authentication"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

READS = frozenset({"GET", "HEAD", "OPTIONS"})
_PROBES = ("/health/live", "/health/ready")
_CHALLENGE = 'Basic realm="streamapp", charset="UTF-8"'
_MOST_WAITING = 16
_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE = 1_000, 2_000
_FAILURES_PER_SECOND, _FAILURES_AT_ONCE = 0.2, 10


class Authentication:
    """The middleware that finds out who makes a request.

    Each client address may make 1,000 requests a second (2,000 at once). Further requests get status 429. Each address
    may also send one wrong login in 5 s (10 at once). Beyond this limit, wrong logins get status 429, and so do
    passwords that this worker has not checked before. Valid tokens still pass.

    ``own`` returns the address under which other workers reach this one.
    """

    def __init__(self, access: WebAccess, signatures: Signatures, own: Callable[[], str]) -> None:
        self._access, self._signatures, self._own = access, signatures, own
        self._requests = Buckets(per_second=_REQUESTS_PER_SECOND, burst=_REQUESTS_AT_ONCE)
        self._failures = Buckets(per_second=_FAILURES_PER_SECOND, burst=_FAILURES_AT_ONCE)
        provider = access.provider
        self._provider = None if provider is None else Oidc(provider, access.client_context)
        self._comparing = asyncio.Lock()
        self._waiting = 0

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                await self._admit(request)
            except Problem as problem:
                return problem_response(problem)
            return await handler(request)

        return middleware

    async def _admit(self, request: web.Request) -> None:
        address = address_of(request.remote)
        if not self._requests.take(address):
            raise _too_many("too many requests from this address", self._requests.seconds(address))
        users = self._access.users
        if users is None:
            return
        caller = CALLER.get()
        caller.may_read = False
        caller.identity = identity = await self._identity(request, caller, users, address)
        caller.may_read = identity is not None
        if identity is None:
            if not _is_open(request):
                raise _unknown("this worker needs a login: basic authentication, or a bearer token")
        elif not identity.may("read" if request.method in READS else "operate"):
            raise Problem(403, f"{identity.name} may read only; {request.method:.20} needs the role operate")

    async def _identity(
        self, request: web.Request, caller: Caller, users: Users, address: str
    ) -> Identity | None:
        """The user of the request, or None without a login. Raises `Problem` for a wrong login."""
        forwarded = request.headers.getall(HEADER, [])
        if forwarded:
            found = None
            if len(forwarded) == 1 and not request.can_read_body:
                path = request.raw_path
                found = self._signatures.identity(forwarded[0], request.method, self._own(), path)
            if found is None:
                # The sender is probably a worker with a wrong secret, which asks again later. So this is no wrong
                # login, after which the address would have to wait.
                raise _unknown(
                    f"{HEADER} is not signed for this worker: workers need the same STREAMAPP_WEB_CLUSTER_SECRET, "
                    "and clocks that agree within 30 s"
                )
            caller.via_worker = True
            return found
        said = request.headers.getall("Authorization", [])
        if not said:
            return None
        found = await self._by_credentials(said[0], users, address) if len(said) == 1 else None
        if found is None:
            if not self._failures.take(address):
                raise _too_many("too many wrong logins", self._failures.seconds(address))
            raise _unknown("wrong name, password or token")
        return found

    async def _by_credentials(self, said: str, users: Users, address: str) -> Identity | None:
        scheme, _, given = said.partition(" ")
        if scheme.lower() == "bearer":
            return users.of_token(given.strip()) or await self._of_provider(given.strip())
        if scheme.lower() != "basic":
            return None
        try:
            name, found, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        if not found or len(password) > 1_024:
            return None
        # A login that was right before costs nothing and is never locked out by another client of its address.
        return users.remembered(name, password) or await self._compare(users, name, password, address)

    async def _of_provider(self, token: str) -> Identity | None:
        if self._provider is None:
            return None
        try:
            return await self._provider.identity(token)
        except ProviderSilent as silent:
            raise Problem(503, f"{silent}: ask again later", headers={"Retry-After": "10"}) from None

    async def _compare(self, users: Users, name: str, password: str, address: str) -> Identity | None:
        if not self._failures.has(address) or self._waiting >= _MOST_WAITING:
            raise _too_many("too many wrong logins", max(1.0, self._failures.seconds(address)))
        self._waiting += 1
        try:
            async with self._comparing:  # one at a time: a comparison takes a core and 16 MiB
                if not self._failures.has(address):
                    raise _too_many("too many wrong logins", self._failures.seconds(address))
                return await asyncio.to_thread(users.of_password, name, password)
        finally:
            self._waiting -= 1


def _is_open(request: web.Request) -> bool:
    """True for requests without a login: probes, and the preflight request (CORS) of a browser for another origin."""
    if request.method == "OPTIONS":
        return "Access-Control-Request-Method" in request.headers
    return request.method in READS and request.path in _PROBES


def _unknown(message: str) -> Problem:
    return Problem(401, message, headers={"WWW-Authenticate": _CHALLENGE})


def _too_many(message: str, seconds: float) -> Problem:
    wait = max(1, math.ceil(seconds))
    return Problem(
        429, f"{message}: ask again in {wait} s", headers={"Retry-After": str(wait)}, retry_after=wait
    )
