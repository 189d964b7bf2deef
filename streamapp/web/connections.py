"""Limits on the connections to the web server: their number, the times for requests and answers, and unread bytes.

Without limits, clients that open connections and send nothing could take all file handles of a worker. The limits also
count connections that are in the middle of a TLS handshake. asyncio's own TLS servers do not report such connections.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from streamapp._base.counted import counted

__all__ = ["KEEP_ALIVE_SECONDS", "LINE_BYTES", "LimitedRunner", "most_connections"]

logger: logging.Logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""The longest time for the head of a request, from the start of the connection or (with TLS) the end of the handshake.

For a later request of the connection, the time begins with the first byte. A TLS handshake has the same time."""
LINE_BYTES = 64 * 1024
"""The most bytes of the first line of a request, which has the key or the cursor for a table."""
KEEP_ALIVE_SECONDS = 75.0
"""The longest wait of a connection for its next request. Many load balancers close idle connections after 60 s. This
wait is longer, so that they send no request into a connection that the server closes at this moment."""
BODY_SECONDS = 20.0
"""The longest time for the body of a request."""
BUSY_SECONDS = 15.0
"""The time after its last activity after which a connection with an unanswered request, or an unread answer, may be
closed. The server closes such a connection only if all connections are in use."""
TAKE_SECONDS = 60.0
"""The longest time for which a client may leave more of an answer unread than the connection's buffers hold."""
MOST_UNSENT = 64 * 2**20
"""The most bytes of answers that wait in memory for clients that do not read.

Beyond this limit, connections are closed. The connection that has waited longest comes first.
"""
_LEFT = "Connection lost"
"""aiohttp's message for a client that disconnects while its body is read."""
_LOG_SECONDS = 60.0

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def most_connections() -> int:
    """The default limit: a quarter of the file handles that the process may open, at least 16 and at most 1,024.

    The clients of Kafka and the stores need the other handles.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_024 if soft == resource.RLIM_INFINITY else max(16, min(1_024, soft // 4))


def _server_logger() -> logging.Logger:
    """A logger for failures of the server. Errors of clients are left out, because any client could fill the log."""
    made = logger.getChild("server")
    made.addFilter(_is_no_clients_fault)
    return made


def _is_no_clients_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    left = isinstance(error, ConnectionResetError) and str(error) == _LEFT
    return not (left or isinstance(error, HttpProcessingError))


def _answer_of(error: web.HTTPException) -> web.Response:
    """The answer of an exception, without the exception.

    Frames of aiohttp and of pages keep an exception that is an answer, and the exception keeps these frames. So the
    request and its body would stay in memory until the next garbage collection, which comes seldom in a worker.
    """
    error.__traceback__ = None
    answer = web.Response(status=error.status, reason=error.reason, headers=error.headers, body=error.body)
    answer.cookies.update(error.cookies)
    if error.keep_alive is False:
        answer.force_close()
    return answer


class LimitedRunner(web.AppRunner):
    """Serves an application with at most ``most`` connections.

    At the limit, a new connection takes the place of the connection that has been inactive for longest. So idle clients
    cannot keep out a readiness probe. A connection with an unanswered request or an unread answer is spared until
    15 s after its last activity (`BUSY_SECONDS`). If all connections are spared, the new connection is closed.
    """

    def __init__(self, app: web.Application, *, most: int | None = None, **kwargs: Any) -> None:
        super().__init__(
            app,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_line_size=LINE_BYTES,
            logger=_server_logger(),
            **kwargs,
        )
        most = most_connections() if most is None else most
        self._connections = Connections(most)
        self.backlog: int = max(32, min(128, most // 2))
        """The backlog of the sites. asyncio accepts up to this number of connections before it reports the first."""

    async def setup(self) -> None:
        await super().setup()
        assert self._server is not None
        self._connections.make_handler = self._server
        self._server.request_handler = self._connections.watching(self._server.request_handler)

    async def cleanup(self) -> None:
        await super().cleanup()
        self._connections.close()

    def encrypt(self, tls: ssl.SSLContext) -> None:
        """Makes all new connections speak TLS. The site itself gets no TLS context."""
        self._connections.tls = tls

    @property
    def server(self) -> Any:
        """The factory that sites call for each connection."""
        return None if self._server is None else self._connections


class Connections:
    """The open connections of a server, ordered by their last activity; the longest inactive one comes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.BaseTransport, _Connection] = {}
        self._logged = float("-inf")
        self.tls: ssl.SSLContext | None = None
        self.make_handler: Callable[[], Any]

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self, self.make_handler())

    def watching(self, handler: Handler) -> Handler:
        """Wraps the handler of all requests, and tells connections when a request begins and ends."""

        async def watched(request: web.BaseRequest) -> web.StreamResponse:
            connection = None if request.transport is None else self._open.get(request.transport)
            body_timer = None
            if connection is not None:
                connection.request_begins()
                if request.can_read_body:
                    body_timer = asyncio.get_running_loop().call_later(
                        BODY_SECONDS, connection.close_unless_read, request
                    )
            try:
                if not request.headers.get("Expect", "").isascii():  # aiohttp does not refuse such a header
                    raise web.HTTPExpectationFailed
                return await handler(request)
            except web.HTTPException as error:
                return _answer_of(error)
            finally:
                if body_timer is not None:
                    body_timer.cancel()
                if connection is not None:
                    connection.request_ends()

        return watched

    def add(self, connection: _Connection) -> bool:
        """Adds a connection. At the limit, another connection is closed for it. False: no other one can be closed."""
        if len(self._open) >= self._most:
            self._log()
            for other in self._open.values():
                if other.can_be_closed:
                    other.close()
                    break
            else:
                return False
        self._open[connection.transport] = connection
        return True

    def touch(self, connection: _Connection) -> None:
        if self._open.pop(connection.transport, None) is not None:
            self._open[connection.transport] = connection

    def remove(self, connection: _Connection) -> None:
        self._open.pop(connection.transport, None)

    def close(self) -> None:
        """Closes all connections."""
        for each in tuple(self._open.values()):
            each.close()

    def bound_unsent(self) -> None:
        """Closes connections whose clients do not read, until the unread answers fit into `MOST_UNSENT`."""
        waiting = [each for each in self._open.values() if each.stalled_since is not None]
        unsent = {each: each.transport.get_write_buffer_size() for each in waiting}
        left = sum(unsent.values())
        for each in sorted(waiting, key=lambda each: each.stalled_since or 0.0):
            if left <= MOST_UNSENT:
                return
            left -= unsent[each]
            each.close()

    def _log(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            logger.warning(
                "the web server has %s, its limit: it closes the connections that have been inactive for longest",
                counted(self._most, "connection"),
            )


class _Connection(asyncio.Protocol):
    """A connection with time limits, which passes all its events on to aiohttp's handler of the connection."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections, handler: Any) -> None:
        self._connections, self._handler = connections, handler
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""
        """Bytes of the client that have arrived before `_shake_hands` knows that the handshake is over."""
        self._handled = False
        """True while aiohttp's handler has the connection."""
        self._answering = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None
        self.stalled_since: float | None = None
        """The time since which the client does not read; None if the client reads."""

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        tls = self._connections.tls
        if tls is not None:
            transport.pause_reading()
        else:
            self._begin()
        if not self._connections.add(self):
            transport.abort()
        elif tls is None:
            self._await_head()
        else:
            self._handshake = self._loop.create_task(self._shake_hands(tls))

    async def _shake_hands(self, tls: ssl.SSLContext) -> None:
        raw = self.transport
        try:
            encrypted = await self._loop.start_tls(
                raw, self, tls, server_side=True, ssl_handshake_timeout=HEAD_SECONDS
            )
        except OSError:  # also each error of TLS, and the end of the time
            encrypted = None
        if encrypted is None or raw.is_closing() or encrypted.is_closing():
            self.close()
            return
        self._connections.remove(self)
        self.transport = encrypted
        self._begin()
        if not self._connections.add(self):
            self.close()
            return
        self._await_head()
        if self._early:
            self._handler.data_received(self._early)
            self._early = b""

    def _begin(self) -> None:
        self._handled = True
        self._handler.connection_made(self.transport)

    def data_received(self, data: bytes) -> None:
        if not self._handled:
            self._early += data
            return
        if not self._answering:
            self._await_head()
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handled and bool(self._handler.eof_received())

    def pause_writing(self) -> None:
        self._handler.pause_writing()
        self.stalled_since = self._loop.time()
        self._take_timer = self._loop.call_later(TAKE_SECONDS, self.close)
        self._connections.bound_unsent()

    def resume_writing(self) -> None:
        self._stalls_no_more()
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stalls_no_more()
        self._connections.remove(self)
        if self._handled:
            self._handled = False
            self._handler.connection_lost(exc)

    # Called for requests.

    def request_begins(self) -> None:
        self._stop_timer()
        self._answering += 1
        self._touch()

    def request_ends(self) -> None:
        self._answering -= 1
        self._touch()

    @property
    def can_be_closed(self) -> bool:
        """True if the connection has no request and no unread answer, or no activity for `BUSY_SECONDS`."""
        waits = not self._answering and not self.transport.get_write_buffer_size()
        return waits or self._loop.time() - self._since >= BUSY_SECONDS

    def close(self) -> None:
        self._stop_timer()
        self._stalls_no_more()
        self._connections.remove(self)
        self.transport.abort()

    def close_unless_read(self, request: web.BaseRequest) -> None:
        """Closes the connection if the body of the request is not complete."""
        if not request.content.is_eof():
            self.close()

    def _stalls_no_more(self) -> None:
        self.stalled_since = None
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(HEAD_SECONDS, self.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _touch(self) -> None:
        self._since = self._loop.time()
        self._connections.touch(self)
