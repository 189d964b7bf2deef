"""Adds the views and the page to an aiohttp application, and makes this application Faust's web server."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import warnings
from collections.abc import Callable, Collection
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from faust.exceptions import AlreadyConfiguredWarning
from faust.web.drivers.aiohttp import Web
from yarl import URL

from streamapp.desk.desk import FailureDesk
from streamapp.desk.readers import readers_of
from streamapp.desk.trial import Trial, runs_of, tried
from streamapp.records import OutputRecord
from streamapp.web.access import WebAccess, is_loopback
from streamapp.web.agents_source import AgentsSource
from streamapp.web.audit import audited
from streamapp.web.authentication import Authentication
from streamapp.web.cluster import Peers, local_name, refuse_strangers
from streamapp.web.connections import LimitedRunner
from streamapp.web.control import ControlViews
from streamapp.web.desk_views import DeskViews
from streamapp.web.forwarding import Signatures
from streamapp.web.guard import guard
from streamapp.web.metrics import MetricsView
from streamapp.web.problem import problems_as_json
from streamapp.web.sampler import Sampler
from streamapp.web.status import StatusViews
from streamapp.web.table_views import TableViews
from streamapp.web.view_source import ViewSource

__all__ = ["GuardedWeb", "StreamsWeb", "add_routes", "install", "install_guard"]

logger: logging.Logger = logging.getLogger(__name__)

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
    access: WebAccess | None = None,
) -> None:
    """Adds the views and the page (`/`) to an application.

    The views are `/tables/`, `/status`, `/health`, `/metrics`, `/topology`, `/pause` and `/resume`, and with a ``desk``
    also `/dlq`. The views answer in every state of the worker, if necessary with status 503. Audit, guard and
    login cover all routes of the application.

    - ``allowed_hosts``: further host names under which clients reach the application (``*.example.com``). The guard
      already allows IP addresses, ``localhost``, this machine's host name and the host of the source's address.
    - ``origins``: other origins whose pages may call routes of your own that change state. Views accept no such
      request.
    - ``peer_timeout``: seconds for a whole answer of another worker.
    - ``read_timeout``: seconds for one read of a local partition.
    - ``access``: the users and their rights (default: from the environment, docs/security.md).
    """
    access = WebAccess() if access is None else access
    signatures = Signatures(lambda: access.secret)
    peers = Peers(source.application_id, peer_timeout, signatures, access.client_context)
    sampler, status = _add_status(app, source)
    tables = TableViews(source, sampler, status, peers, read_timeout=read_timeout)
    control = ControlViews(source, peers)
    app.cleanup_ctx.append(peers.run)
    if desk is not None:
        app.on_shutdown.append(desk.stop)
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
    _protect(app, access, signatures, lambda: sampler.status.url, allowed_hosts, origins)
    app.middlewares.extend([refuse_strangers(source.application_id), problems_as_json(_VIEWS)])
    app.add_routes(
        [
            web.get("/", partial(_file, "index.html")),
            *(
                web.get(f"/static/{path.name}", partial(_file, path.name))
                for path in sorted(_STATIC.iterdir())
            ),
            web.post("/pause", control.pause),
            web.post("/resume", control.resume),
            web.get("/topology", status.topology),
            web.get("/tables", tables.listing),
            web.get("/tables/", tables.listing),
            web.get("/tables/{name}", tables.table),
            web.get("/tables/{name}/", tables.table),
            web.get(r"/tables/{name}/{key:[\s\S]+}", tables.key),
        ]
    )


def _add_status(
    app: web.Application, source: ViewSource, taken: Collection[str] = ()
) -> tuple[Sampler, StatusViews]:
    """Adds the views that each application has, also one without a topology. Paths in ``taken`` are left out."""
    sampler = Sampler(source)
    status = StatusViews(source, sampler)
    metrics = MetricsView(source.application_id, sampler, status)
    app.cleanup_ctx.append(sampler.run)
    views = {
        "/health/live": status.live,
        "/health/ready": status.ready,
        "/status": status.status,
        "/metrics": metrics.metrics,
    }
    app.add_routes([web.get(path, view) for path, view in views.items() if path not in taken])
    return sampler, status


def _protect(
    app: web.Application,
    access: WebAccess,
    signatures: Signatures,
    own: Callable[[], str],
    allowed_hosts: Collection[str],
    origins: Callable[[], Collection[str]],
) -> None:
    """Makes audit, guard and authentication the first middlewares of an application, in this order."""
    here = socket.gethostname().lower()

    def trusted(request: web.Request) -> Collection[str]:
        return () if request.path.startswith(_VIEWS) else origins()

    in_front = [
        audited(),
        guard(lambda: (here, (URL(own()).host or "").lower()), allowed_hosts, trusted),
        Authentication(access, signatures, own).middleware,
    ]
    app.middlewares[:0] = in_front


async def _file(name: str, _request: web.Request) -> web.FileResponse:
    return web.FileResponse(_STATIC / name, headers=_PAGE_HEADERS)


_TABLES = "streamapp.web.router:blueprint"
"""Faust's page ``/table/``, which never answers with the default value of a table for a key of another worker."""


class GuardedWeb(Web):  # type: ignore[misc]
    """Faust's web server with audit and guard before every page, a login if there are web users, and limits of
    connections (`LimitedRunner`).

    The server has the views `/health`, `/status` and `/metrics`. Faust's pages and the pages of the application are
    protected, too. By default, the server of a `streamapp.App`
    listens on loopback. Another address needs web users (`WebAccess`).
    """

    default_blueprints: ClassVar[Any] = (
        ("/router", "faust.web.apps.router:blueprint"),
        ("/table", _TABLES),
    )
    blueprint_flags: ClassVar[Any] = {**Web.blueprint_flags, _TABLES: "web_tables_enabled"}

    def __init__(self, app: Any, *, allowed_hosts: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._access = WebAccess()
        self._origins = set(self.cors_options)
        self._names = [*allowed_hosts, *filter(None, [app.conf.web_host])]
        self.signatures: Signatures = Signatures(lambda: self._access.secret)
        self._protect()
        self._runner = LimitedRunner(self.web_app, access_log=None)

    def _protect(self) -> None:
        _protect(
            self.web_app,
            self._access,
            self.signatures,
            lambda: str(self.app.conf.canonical_url),
            self._names,
            lambda: self._origins,
        )
        self.web_app.middlewares.append(problems_as_json(("/health/ready",)))

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """TLS for the requests of pages to other workers."""
        return self._access.client_context()

    def init_server(self) -> None:
        super().init_server()
        self._add_views()

    def _add_views(self) -> None:
        """Adds the views of a worker without a topology. A page of the application takes the place of a view."""
        pages = {resource.canonical for resource in self.web_app.router.resources()}
        _add_status(self.web_app, AgentsSource(self.app), pages)

    def prepare(self) -> None:
        """Decides the address that other workers use. Raises `ConfigError` if other machines can reach the server, and
        there are no web users.

        Call this after the options of the command line are applied. Without a web server at a TCP port, nothing
        happens.
        """
        conf = self.app.conf
        if not conf.web_enabled or conf.web_transport.scheme != "tcp":
            return
        self._access.check_address(conf.web_bind)
        _advertise(conf, encrypted=self._access.encrypts or conf.web_ssl_context is not None)

    async def check_port(self) -> None:
        """Raises `OSError` if the server cannot listen on its port.

        The server itself starts later, after the worker has opened topics and state.
        """
        conf = self.app.conf
        if conf.web_enabled and conf.web_transport.scheme == "tcp":
            loop = asyncio.get_running_loop()
            # Faust binds in the same way, so the answer is also right for a host name with several addresses.
            bound = await loop.create_server(
                asyncio.Protocol, conf.web_bind, conf.web_port, start_serving=False
            )
            bound.close()

    async def on_start(self) -> None:
        self.prepare()
        conf = self.app.conf
        if (
            conf.web_transport.scheme == "tcp"
            and not is_loopback(conf.web_bind)
            and conf.canonical_url.scheme != "https"
        ):
            logger.warning(
                "the web server listens at %s without TLS: other machines can read logins (docs/security.md)",
                conf.web_bind,
            )
        await super().on_start()

    def _new_transport_tcp(self) -> web.TCPSite:
        conf, runner = self.app.conf, self._runner
        tls = conf.web_ssl_context or self._access.server_context()
        if tls is not None:
            runner.encrypt(tls)
        return web.TCPSite(runner, conf.web_bind, conf.web_port, backlog=runner.backlog)

    def route(self, pattern: str, handler: Any, cors_options: Any = None) -> None:
        self._origins.update(cors_options or ())
        super().route(pattern, handler, cors_options)


def _advertise(conf: Any, *, encrypted: bool) -> None:
    """Sets the address that other workers use, unless the application has set an address."""
    if str(conf.canonical_url) != f"http://{conf.web_host}:{conf.web_port}":
        return
    host = conf.web_host
    if host == socket.gethostname() and is_loopback(conf.web_bind):
        host = local_name()
    with warnings.catch_warnings():
        # Only this function has read the setting before.
        warnings.simplefilter("ignore", AlreadyConfiguredWarning)
        conf.canonical_url = f"{'https' if encrypted else 'http'}://{host}:{conf.web_port}"


class StreamsWeb(GuardedWeb):
    """A web server with streamapp's views and the protection of `GuardedWeb`. Faust's page of statistics, if it is on,
    moves to ``/faust``.

    Faust's picture of its agents is left out, because this picture needs a library that streamapp does not install.
    """

    production_blueprints: ClassVar[Any] = ()
    debug_blueprints: ClassVar[Any] = (("/faust", "faust.web.apps.stats:blueprint"),)

    def __init__(
        self, app: Any, source: ViewSource, *, allowed_hosts: Collection[str] = (), **kwargs: Any
    ) -> None:
        self._source = source
        super().__init__(app, allowed_hosts=allowed_hosts, **kwargs)

    def _protect(self) -> None:
        add_routes(
            self.web_app,
            self._source,
            allowed_hosts=self._names,
            origins=lambda: self._origins,
            desk=_desk_of(self.app),
            access=self._access,
        )

    def _add_views(self) -> None: ...  # `_protect` has added the views, before all pages of the application


def _desk_of(app: Any) -> DeskViews:
    """The views of an application's dead letters. Each request reads the configuration, which may be set late."""
    return DeskViews(lambda: FailureDesk(app.config, readers_of(app)), partial(attempt, app))


def attempt(app: Any, record: OutputRecord) -> Trial:
    """Runs a record through the topology of an application. Messages mask the record as a worker's log does."""
    return tried(runs_of(app.streams.topology, app.config, record, masked=True))


def install(app: Any, source: ViewSource | None = None, *, allowed_hosts: Collection[str] = ()) -> None:
    """Makes ``app`` (a `streamapp.App`) serve the views. Call this function before the app's web server is first used.

    Without ``source``, the views show ``app.streams``. ``allowed_hosts`` is as in `add_routes`. The app's settings are
    read only when the web server is made, so they may still change.
    """
    from streamapp.web.runtime_source import RuntimeSource

    _refuse_late(app)

    def seen() -> ViewSource:
        return source or RuntimeSource(app.streams, lambda: app.consumers)

    app._new_web = lambda: StreamsWeb(app, seen(), allowed_hosts=allowed_hosts)


def install_guard(app: Any, *, allowed_hosts: Collection[str] = ()) -> None:
    """Gives an application without a topology a `GuardedWeb`, with views of its health, status and metrics."""
    _refuse_late(app)
    app._new_web = lambda: GuardedWeb(app, allowed_hosts=allowed_hosts)


def _refuse_late(app: Any) -> None:
    if "web" in vars(app):
        raise RuntimeError(
            "install(app) comes too late: call it before the first use of the app's web server"
        )
