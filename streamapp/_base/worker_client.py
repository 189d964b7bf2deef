"""A client for a worker's web server, for commands, the doctor and tests. The login comes from the environment."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any
from urllib.parse import urlsplit

from streamapp._base.secrets import from_environment
from streamapp.errors import ConfigError

__all__ = ["LOGIN", "open_worker", "worker_address"]

_TOKEN, _USER, _PASSWORD = "STREAMAPP_WEB_TOKEN", "STREAMAPP_WEB_USER", "STREAMAPP_WEB_PASSWORD"
_AUTHORITIES = "STREAMAPP_WEB_SSL_CA_LOCATION"

LOGIN = f"Set {_TOKEN}_FILE, or {_USER} and {_PASSWORD}_FILE (docs/security.md)"


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that the login goes only to the worker in the URL."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def worker_address(given: str) -> str:
    """The address of a worker that a command is given, with ``http://`` if it has no scheme. Raises `ConfigError` for
    a URL of something else.

    >>> worker_address("localhost:6066/")
    'http://localhost:6066'
    """
    url = given if "://" in given else f"http://{given}"
    if not url.startswith(("http://", "https://")) or "?" in url or "#" in url:
        raise ConfigError(
            f"{given} is not the address of a worker: give its URL without parameters, such as http://localhost:6066"
        )
    return url.rstrip("/")


def open_worker(
    url: str, *, method: str = "GET", seconds: float, environ: Mapping[str, str] | None = None
) -> Any:
    """The answer of a worker, as ``urllib.request.urlopen`` gives it. The login comes from the environment.

    Raises `OSError` as urlopen does, also for an answer that is not HTTP. Raises `ConfigError` if the variables of the
    login are incomplete or contradict each other, or if a file that a variable names cannot be read.
    """
    environ = os.environ if environ is None else environ
    host = urlsplit(url).hostname or ""
    if host.endswith(".localhost"):  # a worker of this machine, under a name that not every system knows
        url = url.replace(host, "127.0.0.1", 1)
    request = urllib.request.Request(url, method=method, headers=_login(environ))
    handlers: list[urllib.request.BaseHandler] = [_Stays()]
    authorities = environ.get(_AUTHORITIES)
    if authorities and url.startswith("https:"):
        try:
            context = ssl.create_default_context(cafile=authorities)
        except OSError as error:
            raise ConfigError(
                f"{_AUTHORITIES} is {authorities}, which is not a file of certificates: {error}"
            ) from None
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=seconds)
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError):
            raise
        raise ConnectionError(
            f"{error.reason}. Set {_AUTHORITIES} to the file with the authority that has signed the certificate of the "
            "worker"
        ) from error
    except http.client.HTTPException as error:
        # A host that is no name raises this, too, and so does another kind of server.
        raise ConnectionError(f"{type(error).__name__}: {error}") from error


def _login(environ: Mapping[str, str]) -> dict[str, str]:
    token, password = from_environment(environ, _TOKEN), from_environment(environ, _PASSWORD)
    user = environ.get(_USER) or None
    if (user is None) != (password is None):
        raise ConfigError(f"{_USER} and {_PASSWORD} only work together: set both")
    if token is not None and user is not None:
        raise ConfigError(f"{_TOKEN} and {_USER} exclude each other: set one of them")
    if token is not None:
        return {"Authorization": f"Bearer {token.strip()}"}
    if user is None:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
