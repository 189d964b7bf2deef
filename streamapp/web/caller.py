"""The caller of a request. Middleware finds the caller before the page runs, and keeps the caller until the
response."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from streamapp.web.users import Identity

__all__ = ["CALLER", "Caller"]


@dataclass
class Caller:
    """``identity`` is None for a stranger, and where there are no users; ``via_worker``: another worker asks for it."""

    identity: Identity | None = None
    via_worker: bool = False
    may_read: bool = True
    """False for a probe without a login: its answer says little."""


CALLER: ContextVar[Caller] = ContextVar("streamapp_web_caller")
