"""The buffered records of one input partition of a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from streamapp.records import NO_HEADERS, Headers, RecordBatch, TopicPartition
from streamapp.serdes.framing import Framing
from streamapp.topology.nodes import SourceNode

__all__ = ["ConsumedRecord", "DecodedRecord", "RecordQueue"]

_FEW_KEYS = 512
"""The number of keys up to which decoded keys are remembered. A larger dictionary does not fit into the cache of the
CPU, so a look-up would take longer than to decode the key again."""

DecodedRecord = tuple[Any, Any, int, Headers]
"""Key, value, the timestamp that the extractor gave (ms), headers."""


class ConsumedRecord:
    """The record that a timestamp extractor gets, with decoded key and value."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "topic", "value")

    def __init__(
        self, topic: str, partition: int, offset: int, timestamp: int, key: Any, value: Any, headers: Headers
    ) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self.offset: int = offset
        self.timestamp: int = timestamp
        """The record's own time in ms; -1: the record has none."""
        self.key: Any = key
        self.value: Any = value
        self.headers: Headers = headers

    def __repr__(self) -> str:
        return (
            f"record of {self.topic}-{self.partition} at offset {self.offset} "
            f"(timestamp {self.timestamp}, key {self.key!r}, value {self.value!r})"
        )


class _Remembered(dict[bytes, Any]):
    """Decoded keys by their bytes.

    If a topic has few keys, each comes again and again. The same object for the same key saves decoding, and Python's
    dictionaries find a key faster if it is the same object.
    """

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self.decode = decode

    def __missing__(self, data: bytes) -> Any:
        key = self[data] = self.decode(data)
        return key


class RecordQueue:
    """The records of one input partition that wait to be processed, as batches, first in, first out.

    ``batch`` is the first batch, and ``at`` the index of its next record (the head). The task's loop reads the columns
    of the batch directly. ``key_of`` and ``value_of`` decode keys and values. The queue binds its serdes only once,
    because a serde may generate code for its topic. Immutable keys are decoded once, as long as there are few keys.

    ``head`` is the decoded head, if the source has a timestamp extractor. The extractor may need the value, so the
    record is decoded before its turn. In a queue without extractor, ``decodable`` is the offset of the last head that
    `try_head` could decode.

    ``passed_over`` is true if all records were dropped before their turn, for example because they cannot be decoded.
    Until its turn, such a queue counts as a queue with one record, as in Kafka Streams (``CorruptedRecord``). ``bytes``
    is the sum of the sizes that `add` got, over all batches that wait.
    """

    __slots__ = (
        "_key_serde",
        "_value_serde",
        "at",
        "batch",
        "bytes",
        "decodable",
        "extractor",
        "framing",
        "head",
        "idle_deadline",
        "key_of",
        "keys",
        "partition",
        "partition_time",
        "passed_over",
        "process",
        "size",
        "sizes",
        "source",
        "value_of",
        "waiting",
    )

    def __init__(
        self,
        partition: TopicPartition,
        source: SourceNode,
        process: Callable[..., None],
        extractor: Callable[..., int] | None,
    ) -> None:
        self.partition: TopicPartition = partition
        self.source: SourceNode = source
        self._key_serde = source.key_serde.bind(partition.topic, True)
        self._value_serde = source.value_serde.bind(partition.topic, False)
        self.framing: Framing = Framing(self._key_serde, self._value_serde)
        self.keys: _Remembered = _Remembered(self._key_serde.decoder())
        self.key_of: Callable[[bytes], Any] = (
            self.keys.__getitem__ if source.key_serde.immutable else self.keys.decode
        )
        self.value_of: Callable[[bytes], Any] = self._value_serde.decoder()
        self.process: Callable[..., None] = process
        self.extractor: Callable[..., int] | None = extractor
        self.waiting: deque[RecordBatch] = deque()
        self.batch: RecordBatch | None = None
        self.at: int = 0
        self.size: int = 0
        self.bytes: int = 0
        self.sizes: deque[int] = deque()
        self.partition_time: int = -1
        self.idle_deadline: int | None = None
        self.head: DecodedRecord | None = None
        self.passed_over: bool = False
        self.decodable: int = -1

    def add(self, batch: RecordBatch, size: int = 0) -> None:
        """Takes a batch. ``size`` is its bytes."""
        count = len(batch.offsets)
        if not count:
            return
        if batch.headers is not None and self.framing.joins:
            batch = self.framing.join(batch)
        self.size += count
        self.bytes += size
        self.sizes.append(size)
        if len(self.keys) > _FEW_KEYS:
            self.key_of = self.keys.decode
            self.keys.clear()
        if self.batch is None:
            self.batch, self.at = batch, 0
        else:
            self.waiting.append(batch)

    def explain(self, key: bytes | None, value: bytes | None, error: Exception) -> Exception:
        """The serdes' own error for a record that cannot be decoded, or ``error`` if the serdes raise none.

        The fast decoders ``key_of`` and ``value_of`` may raise errors that say less.
        """
        try:
            if key is not None:
                self._key_serde.deserialize(key)
            if value is not None:
                self._value_serde.deserialize(value)
        except Exception as explained:
            return explained
        return error

    def advance(self, count: int) -> None:
        """Removes ``count`` processed records from the head of the queue."""
        batch = self.batch
        assert batch is not None
        self.at += count
        self.size -= count
        if self.at >= len(batch.offsets):
            self.bytes -= self.sizes.popleft()
            self.batch = self.waiting.popleft() if self.waiting else None
            self.at = 0

    def raw_headers(self) -> Headers:
        assert self.batch is not None
        return NO_HEADERS if self.batch.headers is None else self.batch.headers[self.at]
