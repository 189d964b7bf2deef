"""Views over HTTP: tables, health, status, topology, and a page that shows them live."""

from streamapp.web.server import StreamsWeb, add_routes, install
from streamapp.web.view_source import ViewSource

__all__ = ["StreamsWeb", "ViewSource", "add_routes", "install"]
