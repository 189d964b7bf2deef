"""Signatures of requests between workers. They prove that a worker sent the request, and for which user."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from streamapp.web.users import Identity

__all__ = ["HEADER", "Signatures"]

HEADER = "X-Streamapp-Forwarded"
_VALID_SECONDS = 30
"""The age in seconds up to which a signature counts. The clocks of two workers may differ by no more than this."""
_FORM = re.compile(
    r"v1:(\d{1,12}):([0-9a-f]{32}):(read|operate):([0-9a-f]{64}):([A-Za-z0-9_.@-]{1,64})", re.ASCII
)


class Signatures:
    """Signs and checks requests of workers with a secret that all of them have (HMAC-SHA-256).

    A signature is valid for one receiver, one method and one path with its query, for 30 s. A receiver accepts a
    request that changes state only once, so that nobody can repeat a recorded request. A restarted process does not
    know the requests that it accepted earlier, so it accepts no request that changes state from before its start. In
    the example, worker b knows the user of the request. Worker c, to which nobody has sent the request, gets None.

    >>> signatures, ada = Signatures(lambda: b"s" * 32), Identity("ada", "read")
    >>> header = signatures.sign(ada, "GET", "http://b:6066", "/tables/t/?partitions=1")
    >>> signatures.identity(header, "GET", "http://b:6066", "/tables/t/?partitions=1")
    Identity(name='ada', role='read')
    >>> signatures.identity(header, "GET", "http://c:6066", "/tables/t/?partitions=1")
    """

    def __init__(self, secret: Callable[[], bytes | None], now: Callable[[], float] = time.time) -> None:
        self._secret, self._now = secret, now
        self._began = int(now())
        self._seen: OrderedDict[str, float] = OrderedDict()

    def sign(self, identity: Identity, method: str, receiver: str, path: str) -> str:
        """The header of a request to the worker at ``receiver``. ``path`` includes the query, exactly as it is sent."""
        secret = self._secret()
        assert secret is not None, "users and secret come together"
        when, nonce = str(int(self._now())), secrets.token_hex(16)
        mac = _mac(secret, when, nonce, identity, method, receiver, path)
        return f"v1:{when}:{nonce}:{identity.role}:{mac}:{identity.name}"

    def identity(self, header: str, method: str, receiver: str, path: str) -> Identity | None:
        """The user of a signed request; None if the request must be refused.

        A request is refused if its signature is wrong, or if the time of the signature is more than 30 s away from this
        clock. In two further cases, only GET and HEAD are allowed: the signature was used before, or is older than this
        object.
        """
        found, secret = _FORM.fullmatch(header), self._secret()
        if found is None or secret is None:
            return None
        when, nonce, role, mac, name = found.groups()
        identity = Identity(name, "operate" if role == "operate" else "read")
        wanted = _mac(secret, when, nonce, identity, method, receiver, path)
        now = self._now()
        if not hmac.compare_digest(mac, wanted) or abs(now - int(when)) > _VALID_SECONDS:
            return None
        if method in ("GET", "HEAD"):
            return identity
        return identity if int(when) >= self._began and self._first(nonce, now) else None

    def _first(self, nonce: str, now: float) -> bool:
        """True if the nonce is new; the nonce is then remembered.

        Callers check the signature first, so strangers cannot fill the memory with nonces. A nonce is forgotten only
        after its signature is too old.
        """
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if nonce in self._seen:
            return False
        self._seen[nonce] = now + 2 * _VALID_SECONDS
        return True


def _mac(
    secret: bytes, when: str, nonce: str, identity: Identity, method: str, receiver: str, path: str
) -> str:
    said = "\n".join((HEADER, when, nonce, identity.role, identity.name, method, receiver.rstrip("/"), path))
    return hmac.digest(secret, said.encode(errors="surrogatepass"), "sha256").hex()
