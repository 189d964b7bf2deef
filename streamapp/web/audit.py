"""The audit log: a line for each request that would change something, and for each read with a wrong login.

A rate limit leaves out some lines about requests of strangers that fail (`audited`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from streamapp.web.authentication import READS
from streamapp.web.caller import CALLER, Caller
from streamapp.web.rates import Buckets, address_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

__all__ = ["AUDIT", "audited"]

AUDIT: logging.Logger = logging.getLogger("streamapp.audit")
"""The log of changes: user, address, request and outcome. A handler of its own can keep the log apart."""
_MOST_PATH = 300

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def audited() -> Middleware:
    """Middleware around all other middlewares, so that the log also has the changes that these refuse.

    Reads cause a line only after status 401 with an ``Authorization`` header, so a read that the guard refuses causes
    none. Each request gets a `Caller` here.

    For requests that fail and have no user, each address may cause 20 lines at once and one line a second. So a
    stranger cannot fill the log. An IPv6 address counts by its network of 64 bits.
    """
    refusals = Buckets(per_second=1, burst=20)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        outcome, caller = 500, Caller()
        CALLER.set(caller)
        try:
            response = await handler(request)
            outcome = response.status
            return response
        except web.HTTPException as answer:
            outcome = answer.status
            raise
        finally:
            wrong_login = outcome == 401 and "Authorization" in request.headers
            stranger = outcome >= 400 and caller.identity is None
            if (request.method not in READS or wrong_login) and (
                not stranger or refusals.take(address_of(request.remote))
            ):
                _log(request, caller, outcome)

    return middleware


def _log(request: web.Request, caller: Caller, outcome: int) -> None:
    identity = caller.identity
    AUDIT.info(
        "who=%s role=%s from=%s via=%s method=%s path=%s outcome=%d",
        "-" if identity is None else identity.name,
        "-" if identity is None else identity.role,
        request.remote or "-",
        "worker" if caller.via_worker else "client",
        _printable(request.method[:20]),
        _printable(request.raw_path[:_MOST_PATH]),
        outcome,
    )


def _printable(text: str) -> str:
    """The text without line breaks and blanks, so that a client cannot forge a line of the log."""
    return "".join(each if "!" <= each <= "~" else f"\\x{ord(each):02x}" for each in text)
