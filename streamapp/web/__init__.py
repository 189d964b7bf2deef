"""The web server of a worker: tables, health, status and topology as JSON, and a page that shows them live."""

from streamapp.web.server import GuardedWeb, StreamsWeb, add_routes, install, install_guard
from streamapp.web.view_source import ViewSource

__all__ = ["GuardedWeb", "StreamsWeb", "ViewSource", "add_routes", "install", "install_guard"]
