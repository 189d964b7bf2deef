"""Middleware that runs before every page, and refuses requests that another site makes through a user's browser. A URL
whose bytes are no text is refused, too."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

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
    """Middleware that refuses requests with a foreign ``Host``, and requests of other origins that change state.

    The ``Host`` is checked because of DNS rebinding. In this attack, ``evil.example`` resolves to this machine, so a
    browser lets its page read the answers. The request then has ``Host: evil.example``. Allowed hosts are
    ``localhost``, ``*.localhost``, IP addresses (which DNS cannot change), the names of ``own``, and names that match
    ``allowed`` (``views.example``, ``*.svc.cluster.local``, ``*``). ``origins`` gives the other origins (or ``*``)
    whose pages may change state. A URL with bytes that are not UTF-8 gets 400, because aiohttp would read these bytes
    as another key.
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
                    f"{name[:100]!r} is not a name of this worker: use its address, or add the name to "
                    "web_allowed_hosts",
                )
            if request.method not in READS:
                _refuse_other_origins(request, host, origins(request))
            _refuse_other_bytes(request.rel_url.raw_path_qs)
        except Problem as problem:
            return problem_response(problem)
        return await handler(request)

    return middleware


def _host(request: web.Request) -> str:
    hosts = request.headers.getall("Host", [])
    if not hosts and request.version < (1, 1):
        return "localhost"  # HTTP/1.0 of load balancers' probes; no browser sends it
    if len(hosts) != 1 or not hosts[0]:
        raise Problem(400, "the request has no header Host, or several: send one")
    return hosts[0].lower()


def _name(host: str) -> str:
    """The host of an authority, without port, brackets and the dot at the end; "" if the text is no authority.

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


def _refuse_other_bytes(path: str) -> None:
    """Raises `Problem` for a path or query whose bytes are not UTF-8."""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise Problem(
            400,
            f"the URL has bytes that are not UTF-8 (%{error.object[error.start]:02X}): percent-encode the UTF-8 bytes "
            'of a text; in the key of a table, bytes are hex, or {"$base64": ...} in JSON',
        ) from None


def _refuse_other_origins(request: web.Request, host: str, trusted: Collection[str]) -> None:
    """Raises `Problem` for a request by a page of another origin.

    Requests of programs have no origin and are allowed.
    """
    sent = request.headers.getall("Origin", [])
    if "*" in trusted or (len(sent) == 1 and sent[0] in trusted):
        return
    if sent and [each.lower().partition("://")[2] for each in sent] != [host]:
        raise Problem(
            403, f"requests from pages of {', '.join(sent)[:100]!r} are refused: use this worker's own page"
        )
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("none", "same-origin"):
        raise Problem(
            403,
            f"requests from pages of other sites are refused (Sec-Fetch-Site: {site[:20]!r}): "
            "use this worker's own page",
        )
