"""The kinds of stores that users choose with `Stores` and `Materialized`.

`operator_kinds.py` has the kinds that only operators use. The fields of a kind are its parameters. Times are in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streamapp.state import row_shape
from streamapp.state.cache import CachedStore
from streamapp.state.cached_sessions import CachedSessionStore
from streamapp.state.cached_tables import (
    CachedKeyValueStore,
    CachedLruStore,
    CachedPlainTableStore,
    CachedTimestampedLruStore,
    CachedTimestampedStore,
)
from streamapp.state.cached_windows import CachedTimestampedWindowStore, CachedWindowStore
from streamapp.state.expiring import ExpiringStore
from streamapp.state.key_value import (
    KeyValueStore,
    PlainTableStore,
    TimestampedKeyValueStore,
)
from streamapp.state.lru import LruStore, TimestampedLruStore
from streamapp.state.row_shape import RowShape
from streamapp.state.session_store import SessionStore
from streamapp.state.store import Store
from streamapp.state.store_kind import StoreKind, register, registered
from streamapp.state.versioned import VersionedStore
from streamapp.state.window import TimestampedWindowStore, WindowStore

__all__ = [
    "ExpiringTable",
    "KeyValue",
    "Lru",
    "LruTable",
    "PlainTable",
    "Session",
    "Table",
    "TimestampedWindow",
    "Versioned",
    "Window",
    "same_changelog",
]

_VALUES_BY_KEY = "values by key"
_CHANGELOG_RETENTION_MS = -1
"""No limit, because brokers would delete by the wall clock, and windows expire by stream time. Workers delete the
records of expired rows (`Store.needless_below`).

See docs/decisions/window-changelogs-keep-records.md.
"""
_MIN_SEGMENT_MS = 60_000
_MOST_BUCKETS = 1_000
"""The approximate limit for the number of buckets of a store with tumbling or hopping windows and final results."""


def same_changelog(one: str, other: str) -> bool:
    """True if the kinds with these persistent names can restore from each other's changelogs.

    >>> same_changelog("key_value", "versioned"), same_changelog("key_value", "session")
    (True, False)
    """
    formats = [kind.changelog_format or name for name in (one, other) if (kind := registered(name))]
    return len(formats) == 2 and formats[0] == formats[1]


# ---------------------------------------------------------------------- by key


@register
@dataclass(frozen=True, kw_only=True)
class KeyValue(StoreKind):
    """One value for each key."""

    persistent_name = "key_value"
    changelog_format = _VALUES_BY_KEY
    shape: ClassVar[RowShape | None] = row_shape.BY_KEY
    store_class: ClassVar[Callable[..., Store]] = KeyValueStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedKeyValueStore


@register
@dataclass(frozen=True, kw_only=True)
class Lru(StoreKind):
    """One value for each of the ``max_entries`` keys that were used last."""

    persistent_name = "lru"
    shape: ClassVar[RowShape | None] = row_shape.BY_KEY
    store_class: ClassVar[Callable[..., Store]] = LruStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedLruStore
    latest_is_enough = False
    drops_rows = True

    max_entries: int


@register
@dataclass(frozen=True, kw_only=True)
class Table(StoreKind):
    """One value for each key, with the timestamp of its last update, for tables of the DSL and for processors."""

    persistent_name = "timestamped"
    changelog_format = _VALUES_BY_KEY
    shape: ClassVar[RowShape | None] = row_shape.BY_KEY_TIMESTAMPED
    store_class: ClassVar[Callable[..., Store]] = TimestampedKeyValueStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedTimestampedStore
    headers_format = True


@dataclass(frozen=True, kw_only=True)
class PlainTable(Table):
    """A table on disk that keeps no timestamps, and shows each row with the timestamp -1 (unknown)."""

    store_class: ClassVar[Callable[..., Store]] = PlainTableStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedPlainTableStore
    headers_format = False

    @property
    def layout_details(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True)
class LruTable(Table):
    """A table of the ``max_entries`` keys that were used last."""

    store_class: ClassVar[Callable[..., Store]] = TimestampedLruStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedTimestampedLruStore
    latest_is_enough = False
    drops_rows = True

    max_entries: int


@dataclass(frozen=True, kw_only=True)
class ExpiringTable(Table):
    """A table whose rows expire when their timestamp is ``expires_after_ms`` behind stream time."""

    store_class: ClassVar[Callable[..., Store]] = ExpiringStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = None
    drops_rows = True

    expires_after_ms: int

    @property
    def ttl_ms(self) -> int:
        return self.expires_after_ms

    def layout(self, persistent: bool) -> str:
        return f"expiring {super().layout(persistent)}"


# ---------------------------------------------------------------------- by key and time


@dataclass(frozen=True, kw_only=True)
class _ByTime(StoreKind):
    """Rows that expire when their start (windows) or end (sessions) is ``retention_ms`` behind stream time.

    ``segment_interval_ms=0`` means Kafka Streams' default. ``time_ordered`` is true for the store of an aggregation
    with final results, which looks by time for the windows that have closed.
    """

    headers_format = True

    retention_ms: int
    segment_interval_ms: int = 0
    time_ordered: bool = False

    @property
    def segment_ms(self) -> int:
        return self.segment_interval_ms or max(self.retention_ms // 2, _MIN_SEGMENT_MS)

    @property
    def bucket_ms(self) -> int:
        """The time in ms whose rows are together on disk."""
        return self.segment_ms

    @property
    def time_index(self) -> bool:
        """True if the store has an index of its rows by time, because the windows of a bucket close at many times."""
        return self.time_ordered

    @property
    def store_options(self) -> Mapping[str, Any]:
        return {
            "retention_ms": self.retention_ms,
            "segment_ms": self.segment_ms,
            "bucket_ms": self.bucket_ms,
            "time_ordered": self.time_ordered,
            "time_index": self.time_index,
        }

    def layout(self, persistent: bool) -> str:
        return super().layout(persistent) + " with a time index" * self.time_index

    @property
    def topic_config(self) -> dict[str, str]:
        return super().topic_config | {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(_CHANGELOG_RETENTION_MS),
        }


@register
@dataclass(frozen=True, kw_only=True)
class Window(_ByTime):
    """One value for each key and window start; with ``retain_duplicates``, each put adds a row.

    ``indexed`` is true if Kafka Streams' store has an index by key. ``fetch_range`` of a time-ordered store on disk
    then has the order of the index: segment, key bytes, start. ``advance_ms`` is the time from the start of a window to
    the start of the next; 0 means that windows may start at any time.
    """

    persistent_name = "window"
    drops: ClassVar[tuple[str, ...]] = ("expired",)
    shape: ClassVar[RowShape | None] = row_shape.WINDOWS
    store_class: ClassVar[Callable[..., Store]] = WindowStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedWindowStore

    size_ms: int
    retain_duplicates: bool = False
    indexed: bool = False
    advance_ms: int = 0

    @property
    def bucket_ms(self) -> int:
        if not self.time_ordered or not self.advance_ms:
            return self.segment_ms
        # Windows that close together are one bucket, so final results read few other rows. A read of a key takes about
        # 5 us for each bucket.
        return min(max(self.advance_ms, -(-self.retention_ms // _MOST_BUCKETS)), self.segment_ms)

    @property
    def time_index(self) -> bool:
        return self.time_ordered and not self.advance_ms

    @property
    def changelog_rows(self) -> str:
        if self.retain_duplicates:
            return "records by time"  # their operator decides about windows when it reads them
        kind = "sliding windows" if self.indexed else "windows"
        every = f" every {self.advance_ms} ms" if 0 < self.advance_ms != self.size_ms else ""
        return f"{kind} of {self.size_ms} ms{every}"

    @property
    def window_size_ms(self) -> int:
        return self.size_ms

    @property
    def store_options(self) -> Mapping[str, Any]:
        return {
            **super().store_options,
            "size_ms": self.size_ms,
            "retain_duplicates": self.retain_duplicates,
            "indexed": self.indexed,
        }

    @property
    def layout_details(self) -> str:
        return f"{self.size_ms}/{self.retain_duplicates}"


@register
@dataclass(frozen=True, kw_only=True)
class TimestampedWindow(Window):
    """One value with the timestamp of its last update for each key and window start, for the DSL and for processors."""

    persistent_name = "timestamped_window"
    shape: ClassVar[RowShape | None] = row_shape.WINDOWS_TIMESTAMPED
    store_class: ClassVar[Callable[..., Store]] = TimestampedWindowStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedTimestampedWindowStore


@register
@dataclass(frozen=True, kw_only=True)
class Session(_ByTime):
    """One value for each key and session (start, end)."""

    persistent_name = "session"
    drops: ClassVar[tuple[str, ...]] = ("expired",)
    shape: ClassVar[RowShape | None] = row_shape.SESSIONS
    store_class: ClassVar[Callable[..., Store]] = SessionStore
    cached_class: ClassVar[Callable[..., CachedStore] | None] = CachedSessionStore


@register
@dataclass(frozen=True, kw_only=True)
class Versioned(StoreKind):
    """All versions of a key's value that were valid within the last ``retention_ms`` of stream time (KIP-889).

    The latest version of a key never expires. Earlier versions expire together by the segment, a span of time, in which
    they ended. So a version stays up to ``segment_ms`` longer than the retention. By default the length of a segment
    depends on the retention. For a retention of 1 hour, for example, a segment has 5 minutes; for 24 hours, 1 hour.

    >>> [Versioned(retention_ms=hours * 3_600_000).segment_ms for hours in (1, 24)]
    [300000, 3600000]
    """

    persistent_name = "versioned"
    drops: ClassVar[tuple[str, ...]] = ("late",)
    changelog_format = _VALUES_BY_KEY
    shape: ClassVar[RowShape | None] = row_shape.VERSIONS
    store_class: ClassVar[Callable[..., Store]] = VersionedStore
    latest_is_enough = False
    # Every version is a record, but compaction keeps only the last record of a key, so it must never begin. With a
    # shorter lag, brokers would compact old versions at once, because they compare timestamps with their clock.
    changelog_settings: ClassVar[Mapping[str, str]] = {"min.compaction.lag.ms": str(2**63 - 1)}
    """The settings by which the changelog differs from that of a table without history."""

    retention_ms: int
    segment_interval_ms: int = 0

    @property
    def history_ms(self) -> int:
        return self.retention_ms

    @property
    def segment_ms(self) -> int:
        if self.segment_interval_ms:
            return self.segment_interval_ms
        for limit, parts, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
            if self.retention_ms <= limit:
                return max(self.retention_ms // parts, least)
        return max(self.retention_ms // 24, 300_000)

    @property
    def store_options(self) -> Mapping[str, Any]:
        return {"retention_ms": self.retention_ms, "segment_ms": self.segment_ms}

    @property
    def topic_config(self) -> dict[str, str]:
        return {**super().topic_config, **self.changelog_settings}
