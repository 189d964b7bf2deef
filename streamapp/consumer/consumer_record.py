"""`ConsumerRecord`: a record as the handler of a consumer sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from streamapp.records import NO_HEADERS, Headers

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any, covariant=True)
    V = TypeVar("V", default=Any, covariant=True)
else:
    from typing import TypeVar

    K = TypeVar("K", covariant=True)
    V = TypeVar("V", covariant=True)

__all__ = ["ConsumerRecord"]


@dataclass(frozen=True, slots=True)
class ConsumerRecord(Generic[K, V]):
    """A record with its topic, partition and offset.

    ``timestamp`` is in ms since the epoch. ``attempt`` is 1 in the first call of the handler for this record, and one
    more after each error that the record has caused. An error does not count if a service has failed, or if the call
    had several records.

    >>> ConsumerRecord("orders", 0, 17, 500, "o1", {"state": "paid"}).offset
    17
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: Headers = NO_HEADERS
    attempt: int = 1
