"""The guard in front of all pages: a browser must not be made to ask this worker on behalf of another site."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from streamapp.web.authentication import READS
from streamapp.web.problem import Problem, problem_response

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

__all__ = ["guard"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_AUTHORITY = re.compile(r"(\[(?P<address>[^\[\]]*)\]|(?P<name>[^:\[\]]+))(:\d*)?", re.ASCII)


def guard(
    own: Callable[[], Collection[str]],
    allowed: Collection[str] = (),
    origins: Callable[[web.Request], Collection[str]] = lambda request: (),
) -> Middleware:
    """Middleware that refuses requests with the ``Host`` of another site, and state changes by pages of another origin.

    A page of ``evil.example`` that has its name resolve to this machine (DNS rebinding) sends ``Host: evil.example``.
    Addresses are no names, so nobody can have them resolve to something else: they pass, as ``localhost`` does,
    the names ``own`` gives, and those that match ``allowed`` (``views.example``, ``*.svc.cluster.local``, ``*``).
    ``origins`` gives the origins (or ``*``) whose pages may change something with this request, beside its own.
    """
    patterns = [name.lower().rstrip(".") for name in allowed]

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            host = _host(request)
            name = _name(host)
            if not (_is_local(name) or name in own() or any(fnmatchcase(name, each) for each in patterns)):
                raise Problem(
                    403,
                    f"this worker is not called {name[:100]!r}: use its address, or add the name to web_allowed_hosts",
                )
            if request.method not in READS:
                _refuse_other_origins(request, host, origins(request))
        except Problem as problem:
            return problem_response(problem)
        return await handler(request)

    return middleware


def _host(request: web.Request) -> str:
    hosts = request.headers.getall("Host", [])
    if not hosts and request.version < (1, 1):
        return "localhost"  # no browser; load balancers look after a worker like that
    if len(hosts) != 1 or not hosts[0]:
        raise Problem(400, "a request names one host, in its header Host")
    return hosts[0].lower()


def _name(host: str) -> str:
    """The host of an authority, without port, brackets and a dot at its end; "" if it is no authority.

    >>> _name("views.example.:6066"), _name("[::1]:6066"), _name("[::1].evil.example")
    ('views.example', '::1', '')
    """
    found = _AUTHORITY.fullmatch(host)
    return "" if found is None else (found["name"] or found["address"]).rstrip(".")


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _refuse_other_origins(request: web.Request, host: str, trusted: Collection[str]) -> None:
    """Browsers say where a request comes from; programs do not, and are let through."""
    sent = request.headers.getall("Origin", [])
    if "*" in trusted or (len(sent) == 1 and sent[0] in trusted):
        return
    if sent and [each.lower().partition("://")[2] for each in sent] != [host]:
        raise Problem(403, f"requests from pages of {', '.join(sent)[:100]!r} are refused")
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("none", "same-origin"):
        raise Problem(403, f"requests from pages of other sites are refused (Sec-Fetch-Site: {site[:20]!r})")
