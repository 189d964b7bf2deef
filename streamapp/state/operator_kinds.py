"""The kinds of stores that only operators of the DSL choose: no user names them, and most are internal to their operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from streamapp.state.buffers import OuterJoinStore, SuppressBuffer, TimeOrderedBuffer
from streamapp.state.headers import HeadersSubscriptionStore, HeadersWindowStore
from streamapp.state.key_value import SubscriptionStore
from streamapp.state.kinds import TimestampedWindow
from streamapp.state.store_kind import StoreKind, register
from streamapp.state.write_behind import Store

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
    """The records that a stream-stream join keeps with their headers."""

    store_class: ClassVar[Callable[..., Store]] = HeadersWindowStore
    keeps_headers = True


@register
@dataclass(frozen=True, kw_only=True)
class OuterJoin(StoreKind):
    """Records of an outer or left stream-stream join that have no match yet, by time."""

    persistent_name = "list"
    store_class: ClassVar[Callable[..., Store]] = OuterJoinStore


@register
@dataclass(frozen=True, kw_only=True)
class TimeOrdered(StoreKind):
    """Stream records that wait ``grace_ms`` for a versioned table."""

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
    """The same with the headers of the records."""

    store_class: ClassVar[Callable[..., Store]] = HeadersSubscriptionStore
    keeps_headers = True
