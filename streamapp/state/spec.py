"""What a state store is, as data: enough to open it, to name its changelog and to read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from streamapp.serdes.base import Serde

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default; what type checkers know of it is enough

    S = TypeVar("S", default=Any, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S", covariant=True)

__all__ = ["StoreKind", "StoreSpec"]

_MIN_SEGMENT_MS = 60_000

StoreKind = Literal[
    "key_value",
    "timestamped",
    "window",
    "timestamped_window",
    "session",
    "versioned",
    "lru",
    "list",
    "time_ordered_buffer",
    "suppress_buffer",
    "subscription",
]


@dataclass(frozen=True, kw_only=True)
class StoreSpec(Generic[S]):
    """One state store; ``StoreSpec[KeyValueStore[str, int]]`` says as what a processor gets it.

    ``kind``: ``key_value`` holds plain values, ``timestamped`` values with the timestamp of their last update
    (the DSL's tables), ``lru`` is a ``key_value`` store bounded to ``max_entries``; ``window`` and
    ``timestamped_window`` hold (key, window start) rows, ``session`` (key, start, end) rows, ``versioned`` all
    versions of a key within the history retention. ``list`` (outer joins), ``time_ordered_buffer`` (stream-table joins with
    grace), ``suppress_buffer`` and ``subscription`` (foreign-key joins) are internal to the DSL.

    >>> StoreSpec(name="seen", kind="key_value").logged
    True
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent: bool = True
    logged: bool = True
    cached: bool = False
    """Updates reach downstream once a commit, the last one per key (Kafka Streams' record cache)."""
    retention_ms: int = 0
    """Windows, sessions: how long a row is kept after its start (end) by stream time; versioned: history retention; buffer: grace."""
    window_size_ms: int = 0
    segment_interval_ms: int = 0
    """The step in which the store forgets rows; 0: Kafka Streams' default, which `segment_ms` gives."""
    retain_duplicates: bool = False
    keeps_timestamps: bool = True
    """False: a ``timestamped`` store that keeps plain values and shows each with the timestamp -1, unknown."""
    time_ordered: bool = False
    """Window and session stores of ``on_window_close`` aggregations, which are scanned by time."""
    indexed: bool = False
    """A time-ordered window store on disk from which ranges of keys come as from others: those of sliding windows, which have an index by key
    in Kafka Streams."""
    serde_topic: str | None = None
    """Topic, without the application id, that the serdes are bound to; None: the store's changelog, whether or not it is written."""
    max_entries: int = 0
    ttl_ms: int = 0
    """Of a ``timestamped`` store: rows expire once stream time has passed theirs by so much; 0: never."""
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    keeps_headers: bool = False
    """``timestamped_window`` and ``subscription`` stores: rows end with the headers of their records."""
    headers_format: bool = False
    """A table of the DSL on disk with ``dsl_store_format="headers"``: deletions are logged with the headers of the records that caused them."""
    topic_config: dict[str, str] = field(default_factory=dict)

    @property
    def segment_ms(self) -> int:
        """The step in which a store of windows, sessions or versions forgets rows that are older than its retention.

        >>> StoreSpec(name="visits", kind="session", retention_ms=3_600_000).segment_ms
        1800000
        >>> StoreSpec(name="prices", kind="versioned", retention_ms=3_600_000).segment_ms
        300000
        """
        if self.segment_interval_ms:
            return self.segment_interval_ms
        if self.kind == "versioned":
            return _version_segment_ms(self.retention_ms)
        return max(self.retention_ms // 2, _MIN_SEGMENT_MS)


def _version_segment_ms(retention_ms: int) -> int:
    for limit, parts, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if retention_ms <= limit:
            return max(retention_ms // parts, least)
    return max(retention_ms // 24, 300_000)
