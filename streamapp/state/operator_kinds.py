"""The kinds of stores that only operators of the DSL choose. Most of these stores are internal to their operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from streamapp.state.buffers import OuterJoinStore, SuppressBuffer, TimeOrderedBuffer
from streamapp.state.headers import HeadersSubscriptionStore, HeadersWindowStore
from streamapp.state.key_value import SubscriptionStore
from streamapp.state.kinds import TimestampedWindow
from streamapp.state.store import Store
from streamapp.state.store_kind import StoreKind, register

__all__ = [
    "HeadersSubscriptions",
    "HeadersWindow",
    "OuterJoin",
    "Subscriptions",
    "Suppression",
    "TimeOrdered",
]


@dataclass(frozen=True, kw_only=True)
class HeadersWindow(TimestampedWindow):
    """The records of one side of a stream-stream join, with their headers."""

    store_class: ClassVar[Callable[..., Store]] = HeadersWindowStore
    keeps_headers = True


@register
@dataclass(frozen=True, kw_only=True)
class OuterJoin(StoreKind):
    """The records of an outer or left stream-stream join that have no match yet, ordered by time."""

    persistent_name = "list"
    store_class: ClassVar[Callable[..., Store]] = OuterJoinStore


@register
@dataclass(frozen=True, kw_only=True)
class TimeOrdered(StoreKind):
    """The stream records of a stream-table join that wait ``grace_ms`` for a versioned table."""

    persistent_name = "time_ordered_buffer"
    store_class: ClassVar[Callable[..., Store]] = TimeOrderedBuffer

    grace_ms: int

    @property
    def retention_ms(self) -> int:
        """The grace period, as snapshots remember it."""
        return self.grace_ms


@register
@dataclass(frozen=True, kw_only=True)
class Suppression(StoreKind):
    """The updates that a suppression holds back, in memory."""

    persistent_name = "suppress_buffer"
    store_class: ClassVar[Callable[..., Store]] = SuppressBuffer


@register
@dataclass(frozen=True, kw_only=True)
class Subscriptions(StoreKind):
    """The subscriptions of a foreign-key join."""

    persistent_name = "subscription"
    store_class: ClassVar[Callable[..., Store]] = SubscriptionStore


@dataclass(frozen=True, kw_only=True)
class HeadersSubscriptions(Subscriptions):
    """The subscriptions of a foreign-key join, with the headers of their records."""

    store_class: ClassVar[Callable[..., Store]] = HeadersSubscriptionStore
    keeps_headers = True
