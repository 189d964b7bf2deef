"""OAUTHBEARER for aiokafka, with tokens from the same endpoint as librdkafka's (``sasl.oauthbearer.method``: oidc)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaConnectionError

if TYPE_CHECKING:

    class AbstractTokenProvider:
        """A stand-in for type checkers: aiokafka's class has no types."""
else:
    from aiokafka.abc import AbstractTokenProvider

__all__ = ["TokenProvider"]

_SECONDS = 10.0
_RENEW_SECONDS = 30.0
"""The time before the end of a token at which a new token is fetched."""


class TokenProvider(AbstractTokenProvider):
    """Fetches a token with a client's id and secret (OAuth 2.0, ``client_credentials``), and keeps a valid token.

    Raises `KafkaConnectionError` if the endpoint gives no token, because aiokafka logs this error and tries again.
    """

    def __init__(self, endpoint: str, client_id: str, client_secret: str, scope: str | None) -> None:
        self._endpoint, self._scope = endpoint, scope
        self._login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        if time.monotonic() >= self._until:
            self._token, seconds = await asyncio.get_running_loop().run_in_executor(None, self._fetch)
            self._until = time.monotonic() + max(0.0, seconds - _RENEW_SECONDS)
        return self._token

    def _fetch(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        request = urllib.request.Request(
            self._endpoint,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {self._login}", "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                found = json.load(answer)
            return str(found["access_token"]), float(found.get("expires_in", 0))
        except (OSError, ValueError, LookupError, TypeError) as error:
            # The message leaves the answer out, because the answer may have a token.
            why = f"{error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
            raise KafkaConnectionError(
                f"the token endpoint {self._endpoint} gives no token ({why}): check this address, and the client's id "
                "and secret"
            ) from None
