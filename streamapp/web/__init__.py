"""The web server of a worker: tables, health, status and topology as JSON, and a page that shows them live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamapp.web.server import GuardedWeb, StreamsWeb, add_routes, install, install_guard
    from streamapp.web.view_source import ViewSource

__all__ = ["GuardedWeb", "StreamsWeb", "ViewSource", "add_routes", "install", "install_guard"]


def __getattr__(name: str) -> Any:
    """The names of this package, which import the server only when somebody asks for them. Commands need no server."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamapp.web import server

    return getattr(server, name)
