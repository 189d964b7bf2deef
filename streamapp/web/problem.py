"""Errors of the web server as JSON, with the reason and the next step."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

from aiohttp import web

from streamapp.web.view_source import NotAvailable

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

__all__ = [
    "BadParameter",
    "NotFound",
    "Problem",
    "Unavailable",
    "check_parameters",
    "check_repeated",
    "json_response",
    "problem_response",
    "problems_as_json",
]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Problem(Exception):
    """An answer other than 200: a status, a sentence for people, and details for programs."""

    def __init__(
        self, status: int, message: str, *, headers: dict[str, str] | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.message: str = message
        self.headers: dict[str, str] = headers or {}
        self.details: dict[str, Any] = details


class BadParameter(Problem):
    """Status 400: a parameter is wrong. The answer has its name, the expected form, and often an example."""

    def __init__(self, parameter: str, message: str, *, example: str | None = None) -> None:
        super().__init__(400, message, parameter=parameter, example=example)


class NotFound(Problem):
    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(404, message, **details)


class Unavailable(Problem):
    """Status 503: the answer cannot be given now, for example during a restore. ``retry_after`` is in seconds."""

    def __init__(self, message: str, *, retry_after: int = 1, **details: Any) -> None:
        super().__init__(
            503, message, headers={"Retry-After": str(retry_after)}, retry_after=retry_after, **details
        )


def check_parameters(request: web.Request, known: Collection[str], several: Collection[str] = ()) -> None:
    """Raises `BadParameter` for a parameter that is not ``known``, and as `check_repeated`.

    A request with a filter that nobody reads would choose too much.
    """
    for name in request.query:
        if name not in known:
            listed = ", ".join(sorted(known)) or "no parameter"
            raise BadParameter(name, f"unknown parameter {name!r:.40}: {request.path} takes {listed}")
    check_repeated(request, several)


def check_repeated(request: web.Request, several: Collection[str] = ()) -> None:
    """Raises `BadParameter` for a parameter that stands several times in the URL, unless ``several`` has its name."""
    for name in request.query:
        if name not in several and len(request.query.getall(name)) > 1:
            raise BadParameter(name, f"{name} stands several times in the URL: give it once")


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    try:
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a pair (a surrogate), which only an escape can show
        data = json.dumps(body, allow_nan=False).encode()
    return web.Response(
        body=data,
        status=status,
        content_type="application/json",
        charset="utf-8",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} | (headers or {}),
    )


def problems_as_json(
    prefixes: tuple[str, ...],
) -> Middleware:
    """Middleware for paths that begin with ``prefixes``. Answers to refused requests are JSON.

    An answer is ``{"error": ..., "status": ...}`` with further fields. Exceptions that no view expects pass through.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(prefixes):
            return await handler(request)
        try:
            return await handler(request)
        except Problem as problem:
            return problem_response(problem)
        except NotAvailable as error:
            return problem_response(Unavailable(error.reason, retry_after=error.retry_after))
        except web.HTTPMethodNotAllowed as error:
            allowed = sorted(error.allowed_methods)
            if "GET" in allowed:
                message = f"{error.method} is not possible here: the views are read-only, use GET"
            else:
                message = f"{error.method} is not possible here: use {' or '.join(allowed)}"
            return problem_response(
                Problem(405, message, headers={"Allow": ", ".join(allowed)}, allowed=allowed)
            )
        except web.HTTPNotFound:
            return problem_response(
                NotFound(f"there is nothing at {request.path}; the tables are listed at /tables/")
            )

    return middleware


def problem_response(problem: Problem) -> web.Response:
    """An error as its answer."""
    return json_response(
        {"error": problem.message, "status": problem.status} | problem.details,
        problem.status,
        problem.headers,
    )
