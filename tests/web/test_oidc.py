"""Tokens of an identity provider: a small issuer in a process of its own, with real keys."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from streamapp.errors import ConfigError
from streamapp.web import oidc
from streamapp.web.access import WebAccess
from streamapp.web.oidc import Oidc, OidcSettings

from ..processes import free_port, until
from .conftest import Serve
from .test_authentication import SECRET, WATCH, flights

ISSUER, AUDIENCE = "https://issuer.example", "streamapp"
RSA = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
STRANGE = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


class Issuer:
    """A web server with the keys in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.publish(RSA)
        self.log = folder.parent / "issuer.log"
        command = [sys.executable, "-u", "-m", "http.server", str(self.port), "--bind", "127.0.0.1"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        until(lambda: "Serving" in self.log.read_text(), 30, self.log.read_text)

    def publish(self, *keys: Any) -> None:
        (self.folder / "keys").write_text(json.dumps(KeySet([*keys]).as_dict(private=False)))

    @property
    def asked(self) -> int:
        return self.log.read_text().count("GET /keys")

    @property
    def environ(self) -> dict[str, str]:
        return {
            "STREAMAPP_WEB_OIDC_ISSUER": ISSUER,
            "STREAMAPP_WEB_OIDC_JWKS_URL": f"http://127.0.0.1:{self.port}/keys",
            "STREAMAPP_WEB_OIDC_AUDIENCE": AUDIENCE,
            "STREAMAPP_WEB_CLUSTER_SECRET": SECRET,
        }

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    (tmp_path / "issuer").mkdir()
    issuer = Issuer(tmp_path / "issuer")
    yield issuer
    issuer.stop()


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> dict[str, str]:
    """The header of a request with a token; a claim None is left out."""
    now = int(time.time())
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": now + 300,
        "roles": ["streamapp-operate"],
        **claims,
    }
    header = {"alg": algorithm, "kid": kid or key.kid}
    text = jwt.encode(
        header, {name: value for name, value in given.items() if value is not None}, key, [algorithm]
    )
    return {"Authorization": f"Bearer {text}"}


def bearer(header: Mapping[str, str]) -> str:
    return header["Authorization"].removeprefix("Bearer ")


def verifier(issuer: Issuer, clock: Callable[[], float] = time.monotonic) -> Oidc:
    settings = OidcSettings.from_env(issuer.environ)
    assert settings is not None
    return Oidc(settings, ssl.create_default_context, clock)


async def test_a_token_has_the_role_of_its_claim(serve: Serve, issuer: Issuer, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "streamapp.audit")
    client = await serve(flights(), access=WebAccess(issuer.environ))
    assert (await client.get("/status")).status == 401
    for _ in range(3):
        assert (await client.get("/status", headers=token())).status == 200
    assert issuer.asked == 1, "the keys are kept"
    reader = token(roles=["other", "streamapp-read"])
    assert (await client.get("/status", headers=reader)).status == 200
    assert (await client.post("/pause", headers=reader)).status == 403
    assert (await client.post("/pause", headers=token(sub="ada lovelace\nwho=eve"))).status == 200
    (line,) = [text for text in caplog.messages if "outcome=200" in text]
    assert line.startswith("who=ada_lovelace_who_eve role=operate")


def _by_hand(algorithm: str, sign: Callable[[bytes], bytes]) -> dict[str, str]:
    """A token that no library makes."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "eve",
        "exp": time.time() + 99,
        "roles": ["streamapp-operate"],
    }
    parts = [json.dumps(part).encode() for part in ({"alg": algorithm, "kid": "one"}, claims)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return {"Authorization": f"Bearer {b'.'.join((signed, sign(signed))).decode()}"}


def _none() -> dict[str, str]:
    return _by_hand("none", lambda signed: b"")


def _confused() -> dict[str, str]:
    """An HMAC whose secret is the public key."""
    secret = RSA.as_pem(private=False)
    return _by_hand(
        "HS256", lambda signed: base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: token(STRANGE),
        lambda: token(EC, "ES256"),
        lambda: token(exp=int(time.time()) - 60),
        lambda: token(exp=None),
        lambda: token(nbf=int(time.time()) + 600),
        lambda: token(iss="https://other.example"),
        lambda: token(iss=None),
        lambda: token(aud="another application"),
        lambda: token(aud=None),
        lambda: token(sub=None),
        lambda: token(roles=None),
        lambda: token(roles=["operate"]),
        lambda: token(roles={"streamapp-operate": True}),
        _none,
        _confused,
        lambda: {"Authorization": "Bearer a.b.c"},
    ],
)  # fmt: skip
async def test_any_other_token_is_refused(serve: Serve, issuer: Issuer, made: Any) -> None:
    client = await serve(flights(), access=WebAccess(issuer.environ))
    answer = await client.get("/status", headers=made())
    assert answer.status == 401
    assert (await client.get("/status", headers=token())).status == 200


async def test_new_keys_count_when_a_token_needs_them_and_not_more_often_than_that(
    serve: Serve, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(oidc.Oidc.__init__, "__defaults__", (lambda: now,))
    client = await serve(flights(), access=WebAccess(issuer.environ))
    assert (await client.get("/status", headers=token())).status == 200
    issuer.publish(RSA, EC)
    for _ in range(3):
        assert (await client.get("/status", headers=token(EC, "ES256"))).status == 401
    assert issuer.asked == 1, "strangers make nobody ask"
    now += 11
    assert (await client.get("/status", headers=token(EC, "ES256"))).status == 200
    assert issuer.asked == 2
    issuer.publish(EC)
    now += 700
    assert (await client.get("/status", headers=token())).status == 401, "a key that is withdrawn"
    issuer.stop()
    now += 700
    assert (await client.get("/status", headers=token(EC, "ES256"))).status == 200, "the keys before count"


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "P-999", "kid": "new", "x": "aa", "y": "bb"},
        {"kty": "OKP", "crv": "X448", "kid": "new", "x": "aa"},
        {"kty": "RSA", "kid": "broken", "n": "AQAB", "e": "AQAB"},
        {"kty": [], "kid": "broken"},
        {"kid": "without"},
        "a text",
    ],
)
async def test_a_key_that_nobody_understands_spoils_no_other(issuer: Issuer, odd: Any) -> None:
    """RFC 7517, section 5: such keys are to be ignored."""
    keys = KeySet([RSA]).as_dict(private=False)["keys"]
    (issuer.folder / "keys").write_text(json.dumps({"keys": [odd, *keys, {"kty": "oct", "k": "A" * 22}]}))
    assert await verifier(issuer).identity(bearer(token())) is not None


async def test_a_provider_that_hangs_holds_up_no_token_whose_key_is_known(issuer: Issuer) -> None:
    now = 1_000.0
    known = verifier(issuer, lambda: now)
    assert await known.identity(bearer(token())) is not None
    now += 11
    issuer.process.send_signal(signal.SIGSTOP)
    try:
        unknown = asyncio.ensure_future(known.identity(bearer(token(EC, "ES256"))))
        await asyncio.sleep(0)
        assert await known.identity(bearer(token())) is not None
        assert not unknown.done()
    finally:
        issuer.process.send_signal(signal.SIGCONT)
    assert await unknown is None


async def test_a_provider_that_does_not_answer_is_told_and_other_logins_go_on(
    serve: Serve, issuer: Issuer
) -> None:
    issuer.stop()
    client = await serve(flights(), access=WebAccess({**issuer.environ, "STREAMAPP_WEB_USERS": WATCH}))
    answer = await client.get("/status", headers=token())
    assert answer.status == 503
    assert "has not given the keys" in await answer.text()
    assert (await client.get("/status", headers={"Authorization": "Bearer sat_watch"})).status == 200


async def test_roles_may_be_in_a_claim_of_a_claim(serve: Serve, issuer: Issuer) -> None:
    environ = {**issuer.environ, "STREAMAPP_WEB_OIDC_ROLES_CLAIM": "realm_access.roles"}
    client = await serve(flights(), access=WebAccess(environ))
    assert (await client.get("/status", headers=token())).status == 401
    nested = token(roles=None, realm_access={"roles": ["streamapp-read"]})
    assert (await client.get("/status", headers=nested)).status == 200


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"STREAMAPP_WEB_OIDC_AUDIENCE": ""}, "STREAMAPP_WEB_OIDC_AUDIENCE is not set"),
        ({"STREAMAPP_WEB_OIDC_JWKS_URL": "http://issuer.example/keys"}, "has to begin with https://"),
        ({"STREAMAPP_WEB_CLUSTER_SECRET": ""}, "STREAMAPP_WEB_CLUSTER_SECRET is not"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, str], says: str) -> None:
    environ = {
        "STREAMAPP_WEB_OIDC_ISSUER": ISSUER,
        "STREAMAPP_WEB_OIDC_JWKS_URL": "https://issuer.example/keys",
        "STREAMAPP_WEB_OIDC_AUDIENCE": AUDIENCE,
        "STREAMAPP_WEB_CLUSTER_SECRET": SECRET,
        **change,
    }
    with pytest.raises(ConfigError, match=says):
        WebAccess(environ)
