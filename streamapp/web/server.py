"""The views and the page on an aiohttp application, and that application as Faust's web server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from faust.web.drivers.aiohttp import Web
from yarl import URL

from streamapp.desk.desk import FailureDesk
from streamapp.desk.trial import Trial, try_record
from streamapp.records import OutputRecord
from streamapp.web.cluster import Peers
from streamapp.web.connections import LimitedRunner
from streamapp.web.control import ControlViews
from streamapp.web.desk_views import DeskViews
from streamapp.web.guard import guard
from streamapp.web.metrics import MetricsView
from streamapp.web.problem import problems_as_json
from streamapp.web.sampler import Sampler
from streamapp.web.status import StatusViews
from streamapp.web.table_views import TableViews
from streamapp.web.view_source import ViewSource

__all__ = ["StreamsWeb", "add_routes", "install"]

_STATIC = Path(__file__).parent / "static"
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_VIEWS = ("/tables", "/status", "/health", "/metrics", "/topology", "/pause", "/resume", "/dlq")


def add_routes(
    app: web.Application,
    source: ViewSource,
    *,
    allowed_hosts: Collection[str] = (),
    origins: Callable[[], Collection[str]] = lambda: (),
    peer_timeout: float = 5.0,
    read_timeout: float = 5.0,
    desk: DeskViews | None = None,
) -> None:
    """Adds the views (`/tables/`, `/status`, `/health`, `/topology`, with a ``desk`` `/dlq`) and the page (`/`) to an application.

    They answer as soon as the application runs, in every state of the worker. Time-outs are in seconds: of a
    whole answer of another worker, and of one read of a local partition. The guard covers all routes of the
    application: ``allowed_hosts`` are names (``*.example.com``) under which it is asked beside those of this machine and
    of the source's address, ``origins`` gives those whose pages may change something at routes other than these.
    """
    sampler, peers = Sampler(source), Peers(peer_timeout)
    status = StatusViews(source, sampler)
    tables = TableViews(source, sampler, status, peers, read_timeout=read_timeout)
    control = ControlViews(source, peers)
    metrics = MetricsView(source.application_id, sampler, status)
    app.cleanup_ctx.extend([sampler.run, peers.run])
    if desk is not None:
        app.add_routes(
            [
                web.get("/dlq", desk.listing),
                web.post("/dlq/replay", desk.replay),
                web.post("/dlq/discard", desk.discard),
                web.get("/dlq/{letter}", desk.letter),
                web.post("/dlq/{letter}", desk.edit),
                web.post("/dlq/{letter}/try", desk.attempt),
            ]
        )
    here = socket.gethostname().lower()

    def trusted(request: web.Request) -> Collection[str]:
        return () if request.path.startswith(_VIEWS) else origins()

    app.middlewares.insert(
        0, guard(lambda: (here, (URL(sampler.status.url).host or "").lower()), allowed_hosts, trusted)
    )
    app.middlewares.append(problems_as_json(_VIEWS))
    app.add_routes(
        [
            web.get("/", partial(_file, "index.html")),
            *(
                web.get(f"/static/{path.name}", partial(_file, path.name))
                for path in sorted(_STATIC.iterdir())
            ),
            web.get("/health/live", status.live),
            web.get("/health/ready", status.ready),
            web.get("/status", status.status),
            web.get("/metrics", metrics.metrics),
            web.post("/pause", control.pause),
            web.post("/resume", control.resume),
            web.get("/topology", status.topology),
            web.get("/tables", tables.listing),
            web.get("/tables/", tables.listing),
            web.get("/tables/{name}", tables.table),
            web.get("/tables/{name}/", tables.table),
            web.get("/tables/{name}/{key:.+}", tables.key),
        ]
    )


async def _file(name: str, _request: web.Request) -> web.FileResponse:
    return web.FileResponse(_STATIC / name, headers=_PAGE_HEADERS)


class StreamsWeb(Web):  # type: ignore[misc]
    """Faust's web server with the views on it, for as many connections as it can bear (`LimitedRunner`).

    Faust's own statistics and graph move to ``/faust``. All its pages have the guard of the views.
    """

    default_blueprints: ClassVar[Any] = (
        ("/router", "faust.web.apps.router:blueprint"),
        ("/table", "streamapp.web.router:blueprint"),
    )
    production_blueprints: ClassVar[Any] = ()
    debug_blueprints: ClassVar[Any] = (
        ("/faust/graph", "faust.web.apps.graph:blueprint"),
        ("/faust", "faust.web.apps.stats:blueprint"),
    )

    def __init__(
        self, app: Any, source: ViewSource, *, allowed_hosts: Collection[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(app, **kwargs)
        self._origins = set(self.cors_options)
        names = [*allowed_hosts, *filter(None, [app.conf.web_host])]
        add_routes(
            self.web_app, source, allowed_hosts=names, origins=lambda: self._origins, desk=_desk_of(app)
        )
        self._runner = LimitedRunner(self.web_app, access_log=None)

    def _new_transport_tcp(self) -> web.TCPSite:
        conf, runner = self.app.conf, self._runner
        return web.TCPSite(
            runner, conf.web_bind, conf.web_port, ssl_context=conf.web_ssl_context, backlog=runner.backlog
        )

    def route(self, pattern: str, handler: Any, cors_options: Any = None) -> None:
        self._origins.update(cors_options or ())
        super().route(pattern, handler, cors_options)


def _desk_of(app: Any) -> DeskViews:
    """The desk of an application; each question reads its configuration anew."""

    def attempt(record: OutputRecord) -> Trial:
        time = record.timestamp or 0
        return try_record(
            app.streams.topology, app.config, record.topic, record.key, record.value, time, record.headers
        )

    return DeskViews(lambda: FailureDesk(app.config), attempt)


def install(app: Any, source: ViewSource | None = None, *, allowed_hosts: Collection[str] = ()) -> None:
    """Makes ``app`` (a `streamapp.App`) serve the views; call it before the app's web server is first used.

    Without ``source`` the views show ``app.streams``. ``allowed_hosts`` as in `add_routes`. Nothing of the app's settings is
    read yet.
    """
    from streamapp.web.runtime_source import RuntimeSource

    if "web" in vars(app):
        raise RuntimeError("install(app) comes too late: the app's web server exists already")

    def seen() -> ViewSource:
        return source or RuntimeSource(app.streams, lambda: app.consumers)

    app._new_web = lambda: StreamsWeb(app, seen(), allowed_hosts=allowed_hosts)
