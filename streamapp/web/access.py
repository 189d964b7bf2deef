"""Settings that protect the web server, from the environment and from files: users, OIDC, the workers' secret, TLS."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, TypeVar

from streamapp._base.secrets import from_environment
from streamapp.broker.certificates import stamps
from streamapp.errors import ConfigError
from streamapp.web.oidc import OidcSettings
from streamapp.web.users import Users

__all__ = ["WebAccess", "is_loopback"]

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_USERS, _SECRET = "STREAMAPP_WEB_USERS", "STREAMAPP_WEB_CLUSTER_SECRET"
_CERTIFICATE, _KEY = "STREAMAPP_WEB_SSL_CERTIFICATE_LOCATION", "STREAMAPP_WEB_SSL_KEY_LOCATION"
_AUTHORITIES = "STREAMAPP_WEB_SSL_CA_LOCATION"
_LEAST_SECRET = 32
_LOOK_SECONDS = 1.0
"""The shortest time between two looks at a file for changes. A request causes the look."""


def is_loopback(address: str) -> bool:
    """True for an address that only this machine reaches.

    >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "worker-1")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class WebAccess:
    """The settings that protect the web server, from the environment. Raises `ConfigError` for settings that cannot
    work.

    Users, of a file or of an identity provider, need the cluster's secret, because workers sign their requests to each
    other with this secret. A secret without users is an error, too. The files of users and secret may change while the
    worker runs. The worker uses the new text for requests that come at least a second later. If the new text is wrong,
    the worker logs an error, and keeps the earlier text.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._users = _Watched(environ, _USERS, Users.parse)
        self._secret = _Watched(environ, _SECRET, _checked_secret)
        self.provider: OidcSettings | None = OidcSettings.from_env(environ)
        """The identity provider whose tokens are taken, beside those of the users file."""
        if (self.users is None) != (self._secret.get() is None):
            known = _USERS if self.provider is None else "An identity provider"
            there, missing = (known, _SECRET) if self._secret.get() is None else (_SECRET, _USERS)
            how = "`streamapp web secret`" if missing == _SECRET else "`streamapp web user NAME`"
            raise ConfigError(
                f"{there} is set, and {missing} is not: users and the workers' secret come together. Set {missing} or "
                f"{missing}_FILE; {how} makes one (docs/security.md)"
            )
        self._certificate, self._key = environ.get(_CERTIFICATE) or None, environ.get(_KEY) or None
        self._authorities = environ.get(_AUTHORITIES) or None
        if (self._certificate is None) != (self._key is None):
            raise ConfigError(f"{_CERTIFICATE} and {_KEY} only work together: set both")
        for name, path in (
            (_CERTIFICATE, self._certificate),
            (_KEY, self._key),
            (_AUTHORITIES, self._authorities),
        ):
            if path is not None and not Path(path).is_file():
                raise ConfigError(f"{name} is {path}, and there is no such file")

    @property
    def users(self) -> Users | None:
        """The users, or None if there are none. Then everybody who can reach the port may do everything."""
        found = self._users.get()
        return Users({}, {}) if found is None and self.provider is not None else found

    @property
    def secret(self) -> bytes | None:
        """The secret with which workers sign their requests to each other, or None."""
        return self._secret.get()

    @property
    def encrypts(self) -> bool:
        return self._certificate is not None

    def check_address(self, address: str) -> None:
        """Raises `ConfigError` if other machines can reach this address and there are no users."""
        if not is_loopback(address) and self.users is None:
            raise ConfigError(
                f"the web server would listen at {address}, and serve everybody without a login. Set {_USERS}_FILE and "
                f"{_SECRET}_FILE, or leave web_bind at 127.0.0.1. `streamapp web user NAME` and `streamapp web secret` "
                "make the contents of the files (docs/security.md)"
            )

    def server_context(self) -> ssl.SSLContext | None:
        """TLS for the server, or None. Each new connection gets the present certificate of the files."""
        if self._certificate is None:
            return None
        current, files = self._load(), stamps(self._certificate, self._key)

        def choose(
            connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
        ) -> None:
            nonlocal current, files
            now = stamps(self._certificate, self._key)
            if now != files:
                files = now
                try:
                    current = self._load()
                    logger.info("the certificate of the web server was read anew")
                except ConfigError as error:
                    logger.error("%s. The previous certificate stays in use", error)
            connection.context = current

        asked = self._load()
        asked.sni_callback = choose
        return asked

    def client_context(self) -> ssl.SSLContext:
        """TLS for requests to other workers and to the identity provider."""
        return ssl.create_default_context(cafile=self._authorities)

    def _load(self) -> ssl.SSLContext:
        assert self._certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password, OpenSSL would ask the terminal for one.
            context.load_cert_chain(self._certificate, self._key, "")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{_CERTIFICATE} and {_KEY} are not PEM files that match, the key without a password: {error}"
            ) from None
        return context


class _Watched(Generic[T]):
    """A text from the environment or from a file. After a change of the file, the text is read again."""

    def __init__(self, environ: Mapping[str, str], name: str, parse: Callable[[str], T]) -> None:
        self._environ, self._name, self._parse = environ, name, parse
        self._path = environ.get(f"{name}_FILE") or None
        text = from_environment(environ, name)
        self._value = None if text is None else parse(text)
        self._stamps = stamps(self._path)
        self._looked = time.monotonic()

    def get(self) -> T | None:
        now = time.monotonic()
        if self._path is not None and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            seen = stamps(self._path)
            if seen != self._stamps:
                self._stamps = seen
                self._read_anew()
        return self._value

    def _read_anew(self) -> None:
        try:
            text = from_environment(self._environ, self._name)
            assert text is not None
            self._value = self._parse(text)
            logger.info("%s_FILE was read anew", self._name)
        except ConfigError as error:
            logger.error("%s. The previous contents of the file stay in use", error)


def _checked_secret(text: str) -> bytes:
    if len(text) < _LEAST_SECRET:
        raise ConfigError(
            f"{_SECRET} needs at least {_LEAST_SECRET} characters; `streamapp web secret` makes such a secret"
        )
    return text.encode()
