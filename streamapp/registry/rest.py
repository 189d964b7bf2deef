"""Requests to a schema registry over HTTP, and the meaning of each answer."""

from __future__ import annotations

import base64
import json
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any
from urllib.parse import quote

import urllib3

from streamapp.errors import ConfigError, SchemaRegistryError
from streamapp.registry.registry_settings import RegistrySettings
from streamapp.serdes.schema_registry import MAX_ID

__all__ = ["ForeignAnswer", "RegistryAway", "RegistryMistrusted", "RegistryRefusal", "RestClient", "path_of"]

logger: logging.Logger = logging.getLogger(__name__)

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_CONNECT_SECONDS = 3.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_MOST_BYTES = 16 * 2**20
_MOST_TEXT = 2_000
_ANYTHING: Mapping[str, type] = {}
_AGAIN = (408, 425, 429)
"""HTTP statuses below 500 after which the same request may succeed later."""
_UNEXPLAINED = {500, 50001}
"""Error codes with which a registry may also answer a request that will never succeed. Other codes name a fault that
passes, for example 50004 that the registry has no leader."""


class RegistryAway(SchemaRegistryError):
    """No server of the registry has given a usable answer.

    ``codes`` are the error codes of the servers that have answered at all.
    """

    def __init__(self, message: str, codes: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.codes: frozenset[int] = frozenset(codes)


class RegistryRefusal(SchemaRegistryError):
    """The registry has refused a request. ``status`` is the HTTP status, ``code`` Confluent's error code."""

    def __init__(self, message: str, status: int, code: int, said: str) -> None:
        super().__init__(message)
        self.status: int = status
        self.code: int = code
        self.said: str = said


class RegistryMistrusted(SchemaRegistryError, ConfigError):
    """The certificates of client and registry do not go together.

    A certificate may expire while a worker runs. So this error is also a `SchemaRegistryError`, and no record is
    skipped because of it.
    """


class ForeignAnswer(SchemaRegistryError):
    """A server has answered, but not in the form of a schema registry. The address is probably wrong."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status: int = status


def path_of(*parts: str | int) -> str:
    """The path of a URL. Each part is percent-encoded, so a slash inside a part begins no new part.

    >>> path_of("subjects", "a/b-value", "versions", 3)
    '/subjects/a%2Fb-value/versions/3'
    """
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


class RestClient:
    """Sends requests to the servers of one registry.

    Threads may share a client. Connections open at the first request.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings: RegistrySettings = settings
        self.sleep: Callable[[float], None] = sleep
        self.clock: Callable[[], float] = clock
        self._pool: urllib3.PoolManager | None = None
        self._lock = threading.Lock()
        self._first = 0

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        patient: bool = True,
        has: Mapping[str, type] = _ANYTHING,
        in_trouble: Callable[[], None] = lambda: None,
    ) -> Any:
        """Sends a request, and returns the JSON of the answer.

        ``has`` names the fields that every answer of a registry to this request has, with their types.

        While no server answers, the request is repeated for ``patience_ms``. Then the call raises `RegistryAway`. With
        ``patient=False``, the request is not repeated. If a server answers 500 without a known fault, ``in_trouble`` is
        called before the first repetition, and may raise a better error. Raises `RegistryRefusal` at once if the
        registry refuses the request, and `ForeignAnswer` for an answer that is not a registry's. Raises
        `RegistryMistrusted` for certificates that do not go together.
        """
        deadline = self.clock() + self.settings.patience_ms / 1000
        pause, warned = _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                return self._ask_all(method, path, body, has)
            except RegistryAway as error:
                if not patient or self.clock() + pause > deadline:
                    raise
                if not warned:
                    if error.codes & _UNEXPLAINED:
                        in_trouble()
                    logger.warning("%s; asking again for %g s", error, self.settings.patience_ms / 1000)
                    warned = True
            self.sleep(pause * random.uniform(0.75, 1.0))
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    def _ask_all(self, method: str, path: str, body: Any, has: Mapping[str, type]) -> Any:
        """Asks the servers in turn until one answers, each once, beginning with the server that has answered last."""
        urls, failed = self.settings.urls, list[RegistryAway]()
        for turn in range(len(urls)):
            number = (self._first + turn) % len(urls)
            try:
                answer = self._ask_one(urls[number], method, path, body, has)
            except RegistryAway as error:
                failed.append(error)
                continue
            self._first = number
            return answer
        raise RegistryAway("; ".join(map(str, failed)), chain.from_iterable(each.codes for each in failed))

    def _ask_one(self, url: str, method: str, path: str, body: Any, has: Mapping[str, type]) -> Any:
        headers = {"Accept": _ACCEPT}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
            data = json.dumps(body).encode()
        try:
            answer = self._connections().request(
                method,
                url + path,
                body=data,
                headers=headers | self._login(),
                preload_content=False,
                redirect=False,
            )
            try:
                text = answer.read(_MOST_BYTES + 1)
            finally:
                answer.release_conn()
        except urllib3.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise RegistryMistrusted(
                    f"the certificate of the schema registry {url} is not trusted ({error}): set ssl.ca.location"
                ) from None
            raise RegistryAway(f"the schema registry {url} cannot be reached: {_short(error)}") from None
        except urllib3.exceptions.HTTPError as error:
            raise RegistryAway(f"the schema registry {url} does not answer: {_short(error)}") from None
        if len(text) > _MOST_BYTES:
            raise SchemaRegistryError(f"the answer of {url}{path} has more than {_MOST_BYTES >> 20} MiB")
        return _understood(url, path, answer.status, text, has)

    def _login(self) -> dict[str, str]:
        if self.settings.bearer_auth_token is not None:
            return {"Authorization": f"Bearer {self.settings.bearer_auth_token}"}
        if self.settings.basic_auth_user_info is not None:
            login = base64.b64encode(self.settings.basic_auth_user_info.encode()).decode()
            return {"Authorization": f"Basic {login}"}
        return {}

    def _connections(self) -> urllib3.PoolManager:
        with self._lock:
            if self._pool is None:
                seconds = self.settings.request_timeout_ms / 1000
                self._pool = urllib3.PoolManager(
                    timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds),
                    retries=False,
                    ssl_context=_tls(self.settings),
                )
            return self._pool


def _tls(settings: RegistrySettings) -> ssl.SSLContext | None:
    if all(url.startswith("http:") for url in settings.urls):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location)
        if settings.ssl_certificate_location is not None:
            # If a key needs a password that was not given, OpenSSL would ask for it on the terminal.
            password = settings.ssl_key_password or ""
            context.load_cert_chain(settings.ssl_certificate_location, settings.ssl_key_location, password)
    except ssl.SSLError as error:
        raise RegistryMistrusted(
            "the files of ssl.ca.location, ssl.certificate.location and ssl.key.location are not PEM files that match, "
            f"or ssl.key.password is not the key's: {error}"
        ) from error
    return context


def _understood(url: str, path: str, status: int, text: bytes, has: Mapping[str, type]) -> Any:
    try:
        answer = json.loads(text) if text else None
    except (ValueError, RecursionError):
        answer = text
    if status in (200, 201, 204) and _has(answer, has):
        return answer
    code, said = status, ""
    if isinstance(answer, dict):
        said = str(answer.get("message", ""))[:_MOST_TEXT]
        if type(answer.get("error_code")) is int:
            code = answer["error_code"]
    if status >= 500 or status in _AGAIN:
        raise RegistryAway(
            f"the schema registry {url} answers {status}: {said or 'no reason given'}", (code,)
        )
    if status in (401, 403):
        raise RegistryRefusal(
            f"the schema registry {url} refuses these credentials ({status}): "
            "check basic.auth.user.info or bearer.auth.token",
            status,
            status,
            said,
        )
    # Refusals have a text, and codes of five digits. An answer of a successful request that comes here lacks a field.
    if status < 400 or not said or code == 404:
        raise ForeignAnswer(
            f"{url}{path} answers {status}, but not as a schema registry does. Is the path right? "
            "Apicurio Registry has Confluent's interface below /apis/ccompat/v7",
            status,
        )
    raise RegistryRefusal(f"the schema registry {url} says {code}: {said}", status, code, said)


def _has(answer: Any, fields: Mapping[str, type]) -> bool:
    """True if the answer is JSON, with fields of these types. A proxy may answer for the registry with other JSON."""
    if not fields:
        return not isinstance(answer, bytes)
    return isinstance(answer, dict) and all(
        type(answer.get(name)) is kind and (kind is not int or 0 <= answer[name] <= MAX_ID)
        for name, kind in fields.items()
    )


def _short(error: Exception) -> str:
    text = str(error)
    return text.rpartition(": ")[2] if len(text) > 200 else text
