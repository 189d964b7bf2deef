"""The caller of a request. Middleware sets the caller before the page runs."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from streamapp.web.users import Identity

__all__ = ["CALLER", "Caller"]


@dataclass
class Caller:
    """The user of a request. ``identity`` is None without a login or without web users.

    ``via_worker``: another worker has signed the request for the user.
    """

    identity: Identity | None = None
    via_worker: bool = False
    may_read: bool = True
    """False for a probe without a login. The answer then has the state only, and no details."""


CALLER: ContextVar[Caller] = ContextVar("streamapp_web_caller")
