"""Reconciliation: compares the user's list of expected records with a topic. On demand (`republish`), sends the records
that the topic lacks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message

from streamapp.broker.admin import KafkaAdmin
from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError, ConfigError
from streamapp.producer.ledger import Ledger
from streamapp.producer.session import Bookmark, BookmarkedSession
from streamapp.producer.value_field import ValueField
from streamapp.records import NO_HEADERS, Headers, OutputRecord, TopicPartition
from streamapp.serdes.framing import frame_end, framed_value
from streamapp.serdes.schema_registry import SchemaRegistry

__all__ = [
    "OPEN_SECONDS",
    "Identity",
    "Reconciliation",
    "Span",
    "account",
    "count_of",
    "expectation",
    "hidden_records",
    "identified",
    "identity_of",
    "reconcile",
    "republish",
    "source_object",
]

logger: logging.Logger = logging.getLogger(__name__)

_SILENCE_SECONDS = 60.0
_ATTEMPT_SECONDS = 30.0
_MOST_BATCH = 500
OPEN_SECONDS = 70.0
"""The longest wait for the end of open transactions. By default, brokers abort a transaction after 60 s."""
_LOOK_SECONDS = 0.1

Identity = Callable[[bytes | None, bytes | None, int, Headers], str | None]
"""A function that returns the id of a record from its key, value, timestamp (ms) and headers, or None for no id."""


class Reconciliation(NamedTuple):
    """The result of `reconcile`, in numbers of records.

    ``ranges`` has the offsets that were read of each partition: the first one, and the one after the last.
    """

    topic: str
    ranges: dict[int, tuple[int, int]]
    expected: int
    found: int
    missing: int
    """Records of the source that the topic does not have."""
    doubled: int
    """Copies in the topic beyond the number that the source has."""
    unknown: int
    """Records of the topic that the source does not have."""
    unidentified: int
    """Records of the topic without an id. The other numbers do not include these records."""
    framed: int = 0
    """Values of the topic that begin with the id of a schema, or have the id in a header."""

    @property
    def equal(self) -> bool:
        """True if the topic has exactly the records of the source, each as often as the source."""
        return not (self.missing or self.doubled or self.unknown or self.unidentified)


def identity_of(expression: str, registry: SchemaRegistry | None = None) -> Identity:
    """A function that returns the id of a record: the part of the record that ``expression`` names.

    The expression is ``key``, ``header:NAME``, or ``value:FIELD``. For ``value:FIELD``, the value is a JSON object or a
    record of Avro. ``registry`` has the schemas of Avro (default: the registry at ``STREAMAPP_SCHEMA_REGISTRY_URL``).
    Raises `ConfigError` for any other expression.

    >>> identity_of("body")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: an id is key, header:NAME or value:FIELD, not body
    """
    kind, _, name = expression.partition(":")
    if expression == "key":
        return lambda key, value, timestamp, headers: _text(key)
    if kind == "header" and name:
        return lambda key, value, timestamp, headers: _text(dict(headers).get(name))
    if kind == "value" and name:
        field = ValueField(name, registry)
        return lambda key, value, timestamp, headers: field(framed_value(value, headers))
    raise ConfigError(f"an id is key, header:NAME or value:FIELD, not {expression}")


def identified(expression: str, name: str, record: OutputRecord) -> OutputRecord:
    """The record as a republication sends it: a reader finds its id ``name`` in the part that ``expression`` names.

    If the part is a header, the record gets this header. Raises `ConfigError` if key or value have another id, because
    every later comparison would miss the record again.

    >>> identified("header:id", "o1", OutputRecord("orders", None, b"paid", None)).headers
    (('id', b'o1'),)
    """
    kind, _, header = expression.partition(":")
    if kind == "header":
        record = record._replace(headers=((header, name.encode()),))
    found = identity_of(expression)(record.key, record.value, record.timestamp or 0, record.headers)
    if found != name:
        has = "no id" if found is None else f"the id {found!r}"
        raise ConfigError(
            f"the record has {has} in its {expression}, but the line has the id {name!r}: give both the same id"
        )
    return record


def count_of(identity: Identity, window_ms: int) -> Identity:
    """An `Identity`, a function that gives the id of a record, for counts of records by window.

    The new id of a record is the start of its window in ms, a tab, and the id that ``identity`` gives. The timestamp of
    the record decides the window, as for tumbling windows (`TimeWindows`).
    """

    def name(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> str | None:
        of_record = identity(key, value, timestamp, headers)
        return None if of_record is None else f"{timestamp - timestamp % window_ms}\t{of_record}"

    return name


class Span(NamedTuple):
    """The times that a comparison covers, in ms since the epoch: from ``from_ms`` to before ``to_ms`` (None: no limit).

    >>> Span(1_000, None).covers(999), Span(1_000, 2_000).covers(1_999)
    (False, True)
    """

    from_ms: int | None = None
    to_ms: int | None = None

    def covers(self, timestamp: int) -> bool:
        """True if the comparison has records of this time."""
        return (self.from_ms is None or timestamp >= self.from_ms) and (
            self.to_ms is None or timestamp < self.to_ms
        )

    def check_windows(self, window_ms: int) -> None:
        """Raises `ConfigError` if a limit is inside a window of this size, because the source has one count for the
        whole window."""
        for limit in self:
            if limit is not None and limit % window_ms:
                raise ConfigError(
                    f"{limit} is within a window of {window_ms} ms, but the source counts whole windows: end the "
                    f"comparison at {limit - limit % window_ms} or {limit - limit % window_ms + window_ms}"
                )


EVERYTHING = Span()


def expectation(line: str, window_ms: int | None, span: Span = EVERYTHING) -> tuple[str, int] | None:
    """The id in one line of a source, and the number of records with this id; None if the line's time is outside of
    ``span``.

    Without ``window_ms``, a line is an id, or a JSON object with "id". A line that is only an id has no time, so
    ``span`` does not leave the line out. With ``window_ms``, a line is the start of a window, an id and a count,
    separated by tabs. The id in the result is then the start and the id, as `count_of` gives them. Raises `ConfigError`
    for any other line, and for a JSON object without "timestamp" if ``span`` has a limit.

    >>> expectation("o1", None), expectation("3600000\\to1\\t2", 3_600_000)
    (('o1', 1), ('3600000\\to1', 2))
    >>> expectation('{"id": "o2", "timestamp": 5000}', None, Span(to_ms=5_000)) is None
    True
    """
    if window_ms is None:
        if not line.startswith("{"):
            return line, 1
        row = source_object(line, span)
        return None if row is None else (str(row["id"]), 1)
    try:
        start, name, count = line.split("\t")
        found = f"{int(start)}\t{name}", int(count)
    except ValueError:
        raise ConfigError(
            f"{line!r} is not a window's start in ms, an id and a count, separated by tabs"
        ) from None
    return found if span.covers(int(start)) else None


def source_object(line: str, span: Span = EVERYTHING) -> dict[str, Any] | None:
    """The object in a line of JSON, which has "id". None if its "timestamp" is outside of ``span``.

    Raises `ConfigError` for a line that is no such object, and for an object without "timestamp" if ``span`` has a
    limit.

    >>> source_object('{"id": "o2", "timestamp": 5000}')["id"]
    'o2'
    """
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or row.get("id") is None:
        raise ConfigError(f'{line!r} is not a JSON object with "id"')
    if span != EVERYTHING:
        time = row.get("timestamp")
        if type(time) is not int:
            raise ConfigError(
                f'{line!r} needs "timestamp" in ms, because only records of some times are compared'
            )
        if not span.covers(time):
            return None
    return row


def reconcile(
    settings: KafkaSettings,
    topic: str,
    expected: Iterable[tuple[str, int]],
    identity: Identity,
    ledger: Ledger,
    span: Span = EVERYTHING,
) -> Reconciliation:
    """Compares the ids of a source with those of a topic's committed records, up to the topic's present end.

    ``expected`` has each id of the source, and how often the topic should have it. Only records of the topic whose
    timestamps are within ``span`` count. The ids are counted in ``ledger``, on disk, so memory does not grow with the
    topic. Raises `BrokerError` if Kafka does not answer, or if a transaction in the topic stays open.
    """
    for name, times in expected:
        ledger.expect(name, times)
    unidentified = framed = 0
    ranges: dict[int, tuple[int, int]] = {}
    for message in _records(settings, topic, span.from_ms, ranges):
        at = message.timestamp()[1]
        if not span.covers(at):
            continue
        value, headers = message.value(), message.headers() or NO_HEADERS
        framed += value is not None and frame_end(framed_value(value, headers) or b"") > 0
        found_name = identity(message.key(), value, at, headers)
        if found_name is None:
            unidentified += 1
        else:
            ledger.find(found_name)
    totals = [0, 0, 0]
    for difference in ledger.differences():
        totals[0] += max(0, difference.expected - difference.found)
        surplus = max(0, difference.found - difference.expected)
        totals[1 if difference.expected else 2] += surplus
    missing, doubled, unknown = totals
    return Reconciliation(
        topic, ranges, ledger.expected, ledger.found, missing, doubled, unknown, unidentified, framed
    )


def hidden_records(partitions: Iterable[TopicPartition]) -> BrokerError:
    """The error for partitions in which a transaction stays open. Readers of committed records cannot see the records
    behind its first record, so these records would count as missing."""
    return BrokerError(
        f"a transaction stays open in {', '.join(map(str, sorted(partitions)))}, and hides its records and all later "
        "ones: end its producer, or abort a hanging transaction (streamapp doctor names it). Then compare again"
    )


def _settled_ends(admin: KafkaAdmin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of the partitions, after the transactions that are open now have ended."""
    ends = admin.log_end_offsets(partitions)
    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        stable = admin.log_end_offsets(partitions, read_committed=True)
        hidden = [tp for tp, end in ends.items() if stable[tp] < end]
        if not hidden:
            return ends
        if time.monotonic() > deadline:
            raise hidden_records(hidden)
        time.sleep(_LOOK_SECONDS)


def _records(
    settings: KafkaSettings, topic: str, from_ms: int | None, ranges: dict[int, tuple[int, int]]
) -> Iterator[Message]:
    """The committed records of a topic, from the first record at ``from_ms`` or later up to the present end.

    Puts the first offset and the end offset of each partition into ``ranges``.
    """
    admin = KafkaAdmin(settings)
    count = admin.partition_counts([topic]).get(topic)
    if count is None:
        admin.check_shown(topic)
        raise BrokerError(f"there is no topic {topic} at {settings.bootstrap_servers}")
    partitions = [TopicPartition(topic, number) for number in range(count)]
    ends = _settled_ends(admin, partitions)
    starts = admin.log_start_offsets(partitions, from_ms=from_ms)
    begins = {tp: start if start >= 0 else ends[tp] for tp, start in starts.items()}
    consumer = Consumer(
        {
            **settings.librdkafka(),
            "group.id": "streamapp-reconcile",
            "client.id": "streamapp-reconcile",
            **TO_THE_END,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        ranges |= {tp.partition: (begins[tp], ends[tp]) for tp in partitions}
        waiting = {tp: begin for tp, begin in begins.items() if begin < ends[tp]}
        yield from read_to_end(consumer, waiting, _SILENCE_SECONDS, ends)
    finally:
        consumer.close()


def republish(
    session: BookmarkedSession,
    records: Iterable[tuple[str, OutputRecord]],
    ledger: Ledger,
    *,
    per_second: float,
) -> int:
    """Sends those of ``records`` that the topic lacks, in transactions. Returns the number of sent records.

    ``records`` has the id and the record of each. The topic lacks the ids that `reconcile` has not found, as noted in
    ``ledger``. At most ``per_second`` records are sent per second.

    Open ``session`` before `reconcile` reads the topic. A killed republication may have left a transaction open, and
    the opening of a session aborts this transaction. So none of its records can arrive after the topic was read. After
    a kill, run ``streamapp reconcile --republish`` again from the start.
    """
    sent = 0
    began = time.monotonic()
    batch: list[OutputRecord] = []
    most = max(1, min(_MOST_BATCH, int(per_second)))

    def send() -> None:
        nonlocal sent
        wait = sent / per_second - (time.monotonic() - began)
        if wait > 0:
            time.sleep(wait)
        session.send(batch, Bookmark(sent), _ATTEMPT_SECONDS)
        sent += len(batch)
        batch.clear()

    for name, record in records:
        if ledger.is_missing(name):
            ledger.find(name)  # the source may have the name again
            batch.append(record)
            if len(batch) >= most:
                send()
    if batch:
        send()
    return sent


def account(result: Reconciliation, source: str, digest: str | None, republished: int | None) -> str:
    """The report for an auditor, as Markdown. ``digest`` is the source's SHA-256, if it is one file."""
    sealed = "" if digest is None else f" (SHA-256 {digest})"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    verdict = "The topic and the source have the same records." if result.equal else "The accounts differ."
    lines = [
        f"# Reconciliation of {result.topic}",
        "",
        f"Made {now}. {verdict}",
        "",
        f"Source: {source}{sealed}. Topic: committed records of these offsets, the end excluded:",
        "",
        *(
            f"- partition {number}: {first} to {end}"
            for number, (first, end) in sorted(result.ranges.items())
        ),
        "",
        "| | records |",
        "| --- | ---: |",
    ]
    texts = {
        "expected": "in the source",
        "found": "in the topic",
        "missing": "missing in the topic",
        "doubled": "copies beyond those in the source",
        "unknown": "unknown to the source",
        "unidentified": "without an id",
    }
    lines += [f"| {text} | {getattr(result, name):,} |" for name, text in texts.items()]
    if republished is not None:
        lines += [f"| republished | {republished:,} |"]
    return "\n".join([*lines, ""])


def _text(data: Any) -> str | None:
    if data is None:
        return None
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else str(data)
