"""The users of the web server: names, roles, and hashes of passwords and tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from streamapp.errors import ConfigError

__all__ = ["Identity", "Role", "Users", "make_token", "password_line", "token_line"]

Role = Literal["read", "operate"]
"""``read`` may only send GET, HEAD and OPTIONS. ``operate`` may also change state: pause, replay letters, POST to your
pages."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}", re.ASCII)
_COST, _BLOCK, _PARALLEL = 2**14, 8, 5
"""Parameters of scrypt: a password check takes 16 MiB of memory and about 0.2 s, so guessing is expensive."""
_MOST_COST, _MOST_BLOCK, _MOST_PARALLEL = 2**17, 16, 16
_SCRYPT_BYTES = 512 * 2**20
_REMEMBERED = 1_000
_NOBODY = "scrypt$16384$8$5$" + "A" * 22 + "==$" + "A" * 43 + "="
"""A hash to compare with for an unknown name.

The answer then takes as long as for a known name, and reveals nothing.
"""


@dataclass(frozen=True)
class Identity:
    """The name and the role of a user."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        return self.role in ("operate", role)


def password_line(name: str, role: str, password: str) -> str:
    """The line of a user with a password, for the users file.

    Raises `ConfigError` for an impossible name or role, or a password of fewer than 8 characters.

    >>> password_line("ada", "operate", "lovelace").split("$")[:4]
    ['ada:operate:scrypt', '16384', '8', '5']
    """
    if len(password) < 8:
        raise ConfigError("a password has at least 8 characters")
    salt = secrets.token_bytes(16)
    hashed = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    return _line(name, role, f"scrypt${_COST}${_BLOCK}${_PARALLEL}${_text(salt)}${_text(hashed)}")


def make_token() -> str:
    """A new bearer token of 256 random bits."""
    return f"sat_{secrets.token_urlsafe(32)}"


def token_line(name: str, role: str, token: str) -> str:
    """The line of the users file for a program that logs in with a bearer token.

    A plain SHA-256 is enough, because nobody can guess 256 random bits.
    """
    return _line(name, role, f"sha256${hashlib.sha256(token.encode()).hexdigest()}")


class Users:
    """The users file: a line ``name:role:hash`` for each user or program. A line that begins with ``#`` is a comment.

    >>> users = Users.parse(token_line("prometheus", "read", "sat_x"))
    >>> users.of_token("sat_x"), users.of_token("sat_y")
    (Identity(name='prometheus', role='read'), None)
    """

    def __init__(self, tokens: dict[str, Identity], passwords: dict[str, list[tuple[Identity, str]]]) -> None:
        self._tokens, self._passwords = tokens, passwords
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Identity] = OrderedDict()

    @classmethod
    def parse(cls, text: str) -> Users:
        """The users in a text. Raises `ConfigError` with the number of a wrong line, but not with its text, which
        may have a secret."""
        tokens: dict[str, Identity] = {}
        passwords: dict[str, list[tuple[Identity, str]]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, _, rest = line.partition(":")
            role, _, hashed = rest.partition(":")
            kind, _, digest = hashed.partition("$")
            if not _NAME.fullmatch(name) or role not in get_args(Role):
                raise ConfigError(
                    f"line {number} of the web users is not name:role:hash with the role read or operate; "
                    "`streamapp web user NAME` makes one"
                )
            identity = Identity(name, role)  # type: ignore[arg-type]
            if kind == "sha256" and re.fullmatch("[0-9a-f]{64}", digest):
                tokens[digest] = identity
            elif kind == "scrypt" and _parts(hashed) is not None:
                passwords.setdefault(name, []).append((identity, hashed))
            else:
                raise ConfigError(
                    f"line {number} of the web users has no hash of `streamapp web user` or `streamapp web token`"
                )
        if not tokens and not passwords:
            raise ConfigError("the web users are empty: `streamapp web user NAME` makes a line")
        return cls(tokens, passwords)

    def of_token(self, token: str) -> Identity | None:
        return self._tokens.get(hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest())

    def remembered(self, name: str, password: str) -> Identity | None:
        """The user of a login that was right before, without the slow check; else None."""
        return self._known.get(self._mark(name, password))

    def of_password(self, name: str, password: str) -> Identity | None:
        """The user with this name and password; None if they are wrong.

        A check takes about 0.2 s and 16 MiB, so call this in a thread, one call at a time. The token of a program also
        counts as the program's password, for clients that know only basic authentication.
        """
        of_token = self.of_token(password)
        if of_token is not None and of_token.name == name:
            return of_token
        found = None
        for identity, hashed in self._passwords.get(name, ()):
            if _is_password(password, hashed):
                found = identity
        if name not in self._passwords:
            _is_password(password, _NOBODY)
        if found is not None:
            self._known[self._mark(name, password)] = found
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _mark(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}:{password}".encode(errors="surrogatepass"), "sha256")


def _line(name: str, role: str, hashed: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.80} is no name: 1 to 64 letters, digits, and . _ @ -")
    if role not in get_args(Role):
        raise ConfigError(f"{role!r:.20} is no role: read or operate")
    return f"{name}:{role}:{hashed}"


def _parts(hashed: str) -> tuple[int, int, int, bytes, bytes] | None:
    found = re.fullmatch(r"scrypt\$(\d{1,7})\$(\d{1,3})\$(\d{1,3})\$([^$]+)\$([^$]+)", hashed, re.ASCII)
    if found is None:
        return None
    cost, block, parallel = (int(found[n]) for n in (1, 2, 3))
    if not (2 <= cost <= _MOST_COST and cost & (cost - 1) == 0):
        return None
    if not (1 <= block <= _MOST_BLOCK and 1 <= parallel <= _MOST_PARALLEL):
        return None
    read: Callable[[str], bytes] = lambda text: base64.b64decode(text, validate=True)  # noqa: E731
    try:
        return cost, block, parallel, read(found[4]), read(found[5])
    except ValueError:
        return None


def _is_password(password: str, hashed: str) -> bool:
    parts = _parts(hashed)
    assert parts is not None, "checked by parse"
    cost, block, parallel, salt, wanted = parts
    return hmac.compare_digest(_scrypt(password, salt, cost, block, parallel), wanted)


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    data = password.encode(errors="surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=cost, r=block, p=parallel, maxmem=_SCRYPT_BYTES, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
