"""Bearer tokens of an identity provider (OpenID Connect), verified with the keys that the provider publishes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from streamapp._base.extras import require_oidc
from streamapp.errors import ConfigError
from streamapp.web.users import Identity, Role

__all__ = ["Oidc", "OidcSettings", "ProviderSilent"]

logger: logging.Logger = logging.getLogger(__name__)

_PREFIX = "STREAMAPP_WEB_OIDC_"
_ISSUER, _KEYS, _AUDIENCE, _ROLES = (
    f"{_PREFIX}{name}" for name in ("ISSUER", "JWKS_URL", "AUDIENCE", "ROLES_CLAIM")
)
_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
"""The accepted algorithms, all of them signatures with a private key. The keys of the provider are public, so anybody
could make an HMAC with such a key, or a token without a signature."""
_ROLE_NAMES: Mapping[str, Role] = {"streamapp-read": "read", "streamapp-operate": "operate"}
_LEEWAY_SECONDS = 30
_MOST_KEYS = 1 << 20
_KEEP_SECONDS = 600.0
_PAUSE_SECONDS = 10.0
"""The least time between two requests for the keys. Without this limit, tokens with unknown keys, which cost a stranger
nothing, would cause many requests."""
_TIMEOUT_SECONDS = 5.0
_ODD = re.compile(r"[^A-Za-z0-9_.@-]", re.ASCII)


class ProviderSilent(Exception):
    """The identity provider has not given its keys."""


@dataclass(frozen=True)
class OidcSettings:
    """The provider, and the claim with the roles: ``roles``, or a path such as ``realm_access.roles``."""

    issuer: str
    keys_url: str
    audience: str
    roles_claim: str = "roles"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> OidcSettings | None:
        """None: no provider is set. Raises `ConfigError`, and `MissingExtraError` without the extra ``oidc``."""
        given = {name: environ.get(name) or "" for name in (_ISSUER, _KEYS, _AUDIENCE)}
        if not any(given.values()):
            if environ.get(_ROLES):
                raise ConfigError(
                    f"{_ROLES} is set, and {_ISSUER} is not: set {_ISSUER}, {_KEYS} and {_AUDIENCE}, too, or none of "
                    "the four"
                )
            return None
        missing = [name for name, value in given.items() if not value]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: an identity provider needs "
                f"{_ISSUER}, {_KEYS} and {_AUDIENCE}"
            )
        url = URL(given[_KEYS])
        if url.scheme != "https" and not (
            url.scheme == "http" and url.host in ("127.0.0.1", "localhost", "::1")
        ):
            raise ConfigError(
                f"{_KEYS} has to begin with https://; without TLS, a stranger could change the keys on the way"
            )
        require_oidc("joserfc")
        return cls(given[_ISSUER], given[_KEYS], given[_AUDIENCE], environ.get(_ROLES) or "roles")


class Oidc:
    """Verifies tokens of one provider: signature, issuer, audience, times. For one event loop."""

    def __init__(
        self,
        settings: OidcSettings,
        context: Callable[[], ssl.SSLContext],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._context, self._clock = settings, context, clock
        self._keys: Any = None
        self._fetched = self._asked = -_KEEP_SECONDS
        self._fetching = asyncio.Lock()

    async def identity(self, token: str) -> Identity | None:
        """The user of a token; None: the token is wrong, or has no role here. Raises `ProviderSilent`."""
        if token.count(".") != 2:
            return None
        for anew in (False, True):
            keys = await self._current(anew)
            if keys is None:
                raise ProviderSilent(
                    f"{self._settings.keys_url} has not given the keys of {self._settings.issuer}"
                )
            claims = self._verified(token, keys)
            if claims is not None:
                return self._user(claims)
        return None

    def _verified(self, token: str, keys: Any) -> Mapping[str, Any] | None:
        from joserfc import jwt
        from joserfc.errors import JoseError

        expected = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            expected.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError):
            return None
        return claims

    def _user(self, claims: Mapping[str, Any]) -> Identity | None:
        found: Any = claims
        for part in self._settings.roles_claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        names = found if isinstance(found, list) else str(found).split() if isinstance(found, str) else []
        roles = {_ROLE_NAMES[name] for name in names if isinstance(name, str) and name in _ROLE_NAMES}
        if not roles:
            return None
        return Identity(_ODD.sub("_", str(claims["sub"]))[:64], "operate" if "operate" in roles else "read")

    async def _current(self, anew: bool) -> Any:
        """The provider's keys. With ``anew``, the keys are fetched again, because they may lack the key of a token.

        No fetch begins within 10 s of the one before.
        """
        if self._keys is not None and not anew and self._fetching.locked():
            return self._keys  # a provider that hangs holds up no token whose key is known
        async with self._fetching:
            now = self._clock()
            old = now - self._fetched > _KEEP_SECONDS
            if (old or anew) and now - self._asked >= _PAUSE_SECONDS:
                self._asked = now
                await self._fetch()
            return self._keys

    async def _fetch(self) -> None:
        from joserfc.errors import JoseError

        url = self._settings.keys_url
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)) as session,
                session.get(url, ssl=self._context(), allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}")
                body = b""
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_KEYS:
                        raise ValueError("more than 1 MiB")
            self._keys = _key_set(json.loads(body)["keys"])
            self._fetched = self._clock()
        except (
            aiohttp.ClientError,
            TimeoutError,
            OSError,
            JoseError,
            ValueError,
            TypeError,
            KeyError,
        ) as error:
            logger.warning("the keys of %s were not read: %s: %s", url, type(error).__name__, error)


def _key_set(found: Any) -> Any:
    """The keys that this version understands. All other keys are ignored, as RFC 7517, section 5, demands."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    keys: list[Any] = []
    for each in found:
        try:
            keys += KeySet.import_key_set({"keys": [each]}).keys
        except (JoseError, ValueError, TypeError, KeyError) as error:
            logger.info("a key of the identity provider is not used: %s: %s", type(error).__name__, error)
    # A shared secret among the keys verifies nothing.
    keys = [key for key in keys if key.key_type != "oct"]
    if not keys:
        raise ValueError("there is no key that verifies a signature")
    return KeySet(keys)
