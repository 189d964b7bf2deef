"""The topics of a `TopologyTestDriver` that a test writes to and reads from, with serdes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from streamapp._base.names import did_you_mean
from streamapp.records import NO_HEADERS, Headers, OutputRecord, Record
from streamapp.serdes.base import Serde
from streamapp.serdes.framing import Framing

__all__ = ["TestInputTopic", "TestOutputTopic"]

K = TypeVar("K")
V = TypeVar("V")

PipeRaw = Callable[[str, "bytes | None", "bytes | None", int, Headers], None]
"""Processes one record completely: topic, key, value, timestamp in ms, headers."""


class TestInputTopic(Generic[K, V]):
    """Writes typed records into a topic of the driver; made by `TopologyTestDriver.create_input_topic`.

    The examples of the methods use the names of the example below.

    >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
    >>> text, builder = StringSerde(), StreamsBuilder()
    >>> builder.stream("in", key_serde=text, value_serde=text).to("out")
    >>> driver = TopologyTestDriver(builder.build())
    >>> written, read = driver.create_input_topic("in", text, text), driver.create_output_topic("out", text, text)
    >>> written.pipe_input("a", "to", timestamp=5)
    >>> read.read_record()
    Record(key='a', value='to', timestamp=5, headers=())
    """

    __test__ = False

    def __init__(
        self,
        pipe_raw: PipeRaw,
        topic: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_ms: int,
        auto_advance_ms: int,
    ) -> None:
        self.topic = topic
        self._pipe_raw = pipe_raw
        self._key, self._value = key_serde.bind(topic, True), value_serde.bind(topic, False)
        self._framing = Framing(self._key, self._value)
        self._now, self._advance = start_ms, auto_advance_ms

    def pipe_input(
        self, key: K | None, value: V | None, timestamp: int | None = None, headers: Headers = NO_HEADERS
    ) -> None:
        """Writes one record and processes it completely. Without ``timestamp``, the topic's own clock gives the time.

        >>> written.pipe_input("a", None, 5, headers=(("trace", b"1"),))
        >>> read.read_record().headers
        (('trace', b'1'),)
        """
        if timestamp is None:
            timestamp = self._now
            self._now += self._advance
        raw_key = None if key is None else self._key.serialize(key)
        raw_value = None if value is None else self._value.serialize(value)
        raw_key, raw_value, headers = self._framing.parted(raw_key, raw_value, headers)
        self._pipe_raw(self.topic, raw_key, raw_value, timestamp, headers)

    def pipe_values(self, values: Iterable[V | None]) -> None:
        """Writes values without keys.

        >>> written.pipe_values(["to", "be"])
        >>> read.read_key_values()
        [(None, 'to'), (None, 'be')]
        """
        for value in values:
            self.pipe_input(None, value)

    def pipe_key_values(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Writes (key, value) pairs.

        >>> written.pipe_key_values([("a", "to"), ("b", "be")])
        >>> read.read_values()
        ['to', 'be']
        """
        for key, value in pairs:
            self.pipe_input(key, value)

    def advance_time(self, ms: int) -> None:
        """Adds ``ms`` to the topic's own clock, which gives the next record without ``timestamp`` its time.

        >>> written.advance_time(50)
        >>> written.pipe_input("a", "to")
        >>> read.read_record().timestamp
        50
        """
        if ms < 0:
            raise ValueError(f"time cannot go back: {ms} ms")
        self._now += ms


class TestOutputTopic(Generic[K, V]):
    """Reads typed records of a topic, each once; made by `TopologyTestDriver.create_output_topic`.

    The examples of the methods use the names of the example below.

    >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
    >>> text, builder = StringSerde(), StreamsBuilder()
    >>> builder.stream("in", key_serde=text, value_serde=text).to("out")
    >>> driver = TopologyTestDriver(builder.build())
    >>> written, read = driver.create_input_topic("in", text, text), driver.create_output_topic("out", text, text)
    >>> written.pipe_key_values([("a", "to"), ("a", "be")])
    >>> read.queue_size, read.read_key_value(), read.read_value()
    (2, ('a', 'to'), 'be')
    """

    __test__ = False

    def __init__(
        self,
        unread: deque[OutputRecord],
        produced: Mapping[str, Any],
        topic: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
    ) -> None:
        self.topic = topic
        self._unread, self._produced = unread, produced
        self._key, self._value = key_serde.bind(topic, True), value_serde.bind(topic, False)
        self._framing = Framing(self._key, self._value)

    @property
    def queue_size(self) -> int:
        """The number of unread records.

        >>> read.queue_size
        0
        """
        return len(self._unread)

    @property
    def is_empty(self) -> bool:
        """True if all records have been read.

        >>> read.is_empty
        True
        """
        return self.queue_size == 0

    def read_record(self) -> Record[K, V]:
        """The next record. Raises `LookupError` when there is none.

        >>> written.pipe_input("a", "to", 5)
        >>> read.read_record().timestamp
        5
        """
        if self.is_empty:
            raise LookupError(self._nothing_left())
        raw = self._unread.popleft()
        raw_key, raw_value, headers = self._framing.joined(raw.key, raw.value, raw.headers)
        # For type checkers, K and V have no None, as in Kafka Streams: a test knows where it reads a deletion.
        key: Any = None if raw_key is None else self._key.deserialize(raw_key)
        value: Any = None if raw_value is None else self._value.deserialize(raw_value)
        return Record(key, value, raw.timestamp or 0, headers)

    def _nothing_left(self) -> str:
        if self.topic in self._produced:
            return f"no record left to read in topic {self.topic}"
        written = ", ".join(self._produced) or "none"
        meant = did_you_mean(self.topic, self._produced)
        return f"nothing was written to topic {self.topic}; the topics that were written to: {written}{meant}"

    def read_key_value(self) -> tuple[K, V]:
        """Key and value of the next record.

        >>> written.pipe_input("a", "to")
        >>> read.read_key_value()
        ('a', 'to')
        """
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V:
        """The value of the next record.

        >>> written.pipe_input("a", "to")
        >>> read.read_value()
        'to'
        """
        return self.read_record().value

    def read_records(self) -> list[Record[K, V]]:
        """All records that have not been read.

        >>> written.pipe_input("a", "to", 5)
        >>> read.read_records()
        [Record(key='a', value='to', timestamp=5, headers=())]
        """
        return [self.read_record() for _ in range(self.queue_size)]

    def read_key_values(self) -> list[tuple[K, V]]:
        """Keys and values of all records that have not been read.

        >>> written.pipe_key_values([("a", "to"), ("b", "be")])
        >>> read.read_key_values()
        [('a', 'to'), ('b', 'be')]
        """
        return [(r.key, r.value) for r in self.read_records()]

    def read_values(self) -> list[V]:
        """The values of all records that have not been read.

        >>> written.pipe_key_values([("a", "to"), ("b", "be")])
        >>> read.read_values()
        ['to', 'be']
        """
        return [r.value for r in self.read_records()]

    def read_table(self) -> dict[K, V]:
        """The last value of each key among the unread records; a value None deletes the key.

        Raises `ValueError` for a record without key.

        >>> written.pipe_key_values([("a", "to"), ("b", "be"), ("a", None)])
        >>> read.read_table()
        {'b': 'be'}
        """
        table: dict[K, V] = {}
        for record in self.read_records():
            if record.key is None:
                raise ValueError(f"topic {self.topic} has a record without key, which is no row of a table")
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table
