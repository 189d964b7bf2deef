"""Limits on the rate of requests, or of wrong logins, of one address: token buckets in a bounded amount of memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

__all__ = ["Buckets", "address_of"]

_MOST = 4_096


class Buckets:
    """A token bucket for each key: at most ``burst`` tokens. ``per_second`` tokens come back each second.

    Keys that were not used for longest are forgotten if there are too many.

    >>> buckets = Buckets(per_second=1, burst=2, now=lambda: 0.0)
    >>> [buckets.take("10.0.0.1") for _ in range(3)], buckets.take("10.0.0.2")
    ([True, True, False], True)
    """

    def __init__(self, *, per_second: float, burst: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._now = per_second, burst, now
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def has(self, key: str) -> bool:
        """True if `take` would succeed."""
        return self._level(key) >= 1

    def take(self, key: str) -> bool:
        """Takes a token. False: there is none."""
        level = self._level(key)
        enough = level >= 1
        self._filled[key] = (level - enough, self._now())
        self._filled.move_to_end(key)
        while len(self._filled) > _MOST:
            self._filled.popitem(last=False)
        return enough

    def seconds(self, key: str) -> float:
        """The time until a token is there."""
        return max(0.0, 1 - self._level(key)) / self._per_second

    def _level(self, key: str) -> float:
        level, since = self._filled.get(key, (self._burst, self._now()))
        return min(self._burst, level + (self._now() - since) * self._per_second)


def address_of(remote: str | None) -> str:
    """The address by which a client is counted. For IPv6 this is its network of 64 bits, because a client may have all
    addresses of its network.

    >>> address_of("2001:db8::1"), address_of("::ffff:10.0.0.1"), address_of("10.0.0.1"), address_of(None)
    ('2001:db8::', '10.0.0.1', '10.0.0.1', '?')
    """
    try:
        address = ip_address((remote or "").partition("%")[0])
    except ValueError:
        return "?"
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
