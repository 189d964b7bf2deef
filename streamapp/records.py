"""The types of records: `Record`, which processors and tests see, and the types that runners and the engine
exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # this one has defaults; only type checkers import it

    K = TypeVar("K", default=Any, covariant=True)
    V = TypeVar("V", default=Any, covariant=True)
else:
    from typing import TypeVar

    K = TypeVar("K", covariant=True)
    V = TypeVar("V", covariant=True)
K2 = TypeVar("K2")
V2 = TypeVar("V2")

__all__ = [
    "NO_HEADERS",
    "Headers",
    "OutputRecord",
    "Record",
    "RecordBatch",
    "RecordContext",
    "RecordSource",
    "TopicPartition",
    "Windowed",
    "batch_bytes",
    "create_time",
]

Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers in order; immutable, so that they can be handed on without a copy."""

NO_HEADERS: Headers = ()

MAX_LONG = 2**63 - 1
"""The largest number of 64 bits, and so the largest timestamp in ms."""
_RECORD_BYTES = 200
"""The assumed bytes in memory of a record without its value: key, numbers, and Python's objects."""


def check_headers(headers: object) -> None:
    """Raises `TypeError` unless ``headers`` is a tuple of pairs of text and bytes (or None).

    >>> check_headers({"trace": b"1"})
    Traceback (most recent call last):
    ...
    TypeError: headers are a tuple of pairs of text and bytes, as in (("trace", b"1"),), not {'trace': b'1'}
    """
    pairs = headers if isinstance(headers, tuple) else (headers,)
    for pair in pairs:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], bytes | None)
        ):
            raise TypeError(
                f'headers are a tuple of pairs of text and bytes, as in (("trace", b"1"),), not {headers!r}'
            )


def check_timestamp(timestamp: object) -> None:
    """Raises `TypeError` unless ``timestamp`` is an int, and `ValueError` unless it has at most 64 bits.

    >>> check_timestamp(1.5)
    Traceback (most recent call last):
    ...
    TypeError: a timestamp is an int, ms since the epoch, not 1.5
    >>> check_timestamp(-(2**63))
    """
    if not isinstance(timestamp, int):
        raise TypeError(f"a timestamp is an int, ms since the epoch, not {timestamp!r}")
    if not -MAX_LONG - 1 <= timestamp <= MAX_LONG:
        raise ValueError(f"a timestamp has at most 64 bits, ms since the epoch, so {timestamp} is none")


class TopicPartition(NamedTuple):
    """One partition of one topic.

    >>> str(TopicPartition("flights", 3))
    'flights-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordBatch(NamedTuple):
    """Records of one topic partition in the order of their offsets, as columns: each field is a list with one entry for
    each record.

    Keys and values are bytes or None, as in Kafka. Timestamps are in ms. ``headers`` is None if no record of the batch
    has headers.

    >>> RecordBatch([b"N1"], [b"late"], [500], [7]).headers is None
    True
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None = None


def batch_bytes(batch: RecordBatch) -> int:
    """The rough size of a batch in memory.

    >>> batch_bytes(RecordBatch([b"N1", b"N1"], [b"late", None], [500, 501], [7, 8]))
    404
    """
    return sum(map(len, filter(None, batch.values))) + _RECORD_BYTES * len(batch.offsets)


class RecordContext(NamedTuple):
    """The source of a record: topic, partition and offset, with timestamp (ms since the epoch) and headers.

    ``source_raw_key`` and ``source_raw_value`` are the bytes of the source record. Both are None for a record that
    waited in a window or a buffer, because the bytes are not kept there. A record cache keeps them only if the
    application may make dead letters. A punctuator runs without a record, so ``topic`` is None, and ``partition`` and
    ``offset`` are -1. Source: ``org.apache.kafka.streams.processor.RecordContext``, KIP-1034.

    >>> RecordContext("flights", 3, 81, 500).offset
    81
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers = NO_HEADERS
    source_raw_key: bytes | None = None
    source_raw_value: bytes | None = None


class RecordSource(Protocol):
    """A `RecordContext`, or a row of a record cache, which has the same six fields but changes them in place."""

    @property
    def topic(self) -> str | None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def source_raw_key(self) -> bytes | None: ...
    @property
    def source_raw_value(self) -> bytes | None: ...


def create_time(timestamp: int | None) -> int:
    """The timestamp for librdkafka, in ms. For None the result is 0, which to librdkafka means the present time.

    A record with the timestamp 0 therefore gets the timestamp 1.

    >>> create_time(1_700_000_000_000), create_time(0), create_time(None)
    (1700000000000, 1, 0)
    """
    return timestamp or (0 if timestamp is None else 1)


def payload_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes of a record's key, value and headers.

    >>> payload_bytes(b"N1", None, (("from", b"JFK"),))
    9
    """
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size


class OutputRecord(NamedTuple):
    """One record to be written, with key and value in bytes. If ``partition`` is None, Kafka's default partitioner
    chooses.

    >>> OutputRecord("delays", b"N1", b"15", timestamp=500).partition is None
    True
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers = NO_HEADERS
    partition: int | None = None


class Record(NamedTuple, Generic[K, V]):
    """A record with decoded key and value, as processors and the test driver see it; ``timestamp`` is in ms.

    A record is immutable. Each ``with_`` method returns a copy with one field changed.

    >>> Record("N1", "late", 500).with_value("on time").with_timestamp(600)
    Record(key='N1', value='on time', timestamp=600, headers=())
    """

    key: K
    value: V
    timestamp: int = 0
    headers: Headers = NO_HEADERS

    def with_key(self, key: K2) -> Record[K2, V]:
        """A copy with another key, which may be of another type."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """A copy with another value, which may be of another type."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """A copy with another timestamp, in ms. Raises `TypeError` if the timestamp is no int, and `ValueError` if the
        timestamp is negative."""
        check_timestamp(timestamp)
        if timestamp < 0:
            raise ValueError(f"the timestamp of a record must not be negative, and {timestamp} is")
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """A copy with these headers instead of the present ones. Raises `TypeError` unless they are a tuple of pairs of
        text and bytes (or None)."""
        check_headers(headers)
        return Record(self.key, self.value, self.timestamp, headers)


class Windowed(NamedTuple, Generic[K]):
    """A key together with the window that it was aggregated in; ``start`` and ``end`` are ms since the epoch.

    As in Kafka Streams, tumbling, hopping and unlimited windows do not contain the millisecond ``end``. Sliding windows
    and sessions contain this millisecond, too.

    >>> print(Windowed("JFK", 0, 3_600_000))
    [JFK@0/3600000]
    """

    key: K
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.key}@{self.start}/{self.end}]"
