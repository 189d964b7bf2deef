"""The relay of an outbox: sends the rows of the table to Kafka, in order and once. Refused rows stay in the table.

A Kafka transaction has the records of some rows, and their ids in a bookmark (an offset with metadata that the same
transaction commits). The relay deletes the rows after the transaction. At its start, a relay first reads the bookmarks
of all topics in the table, and deletes the rows that the bookmarks name. A bookmark also has a checksum of the rows, so
that other rows with their ids stay. So no row is lost or committed twice, even if the relay, the database or the
brokers are killed at any moment.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from confluent_kafka import KafkaError

from streamapp._base.failpoints import hit
from streamapp._base.prometheus import Metric, metrics_text
from streamapp._base.repeated_failures import RepeatedFailures
from streamapp.broker.refused import OF_THE_TOPIC, advised
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError
from streamapp.producer.databases import OutboxDatabase, OutboxRow, UnreadableRow, as_ranges, of_ranges
from streamapp.producer.options import ProducerOptions
from streamapp.producer.session import Bookmark, BookmarkedSession, RecordsRefused, UnknownTopics, Unsettled

__all__ = ["OUTBOX", "OutboxRelay", "RelayMetrics"]

logger: logging.Logger = logging.getLogger(__name__)

OUTBOX = "-outbox-"
"""The middle part of the transactional id of a relay. The consumer group with the bookmarks has the same name as this
id.

The name of the relay stands before this part, and the random name of the table (`OutboxDatabase.identity`) behind it.
"""
_ATTEMPT_SECONDS = 10.0
_TRANSACTION_TIMEOUT_MS = 30_000
_PAUSE_SECONDS = 0.5
_MOST_ROWS = 1_000
_NO_TABLE = " (`streamapp outbox create` creates the table)"
_NOTE_BYTES = 3_500
"""The largest size of a bookmark's note. Brokers refuse more than 4,096 bytes (``offset.metadata.max.bytes``)."""
_DIGEST = "-0"
"""The end of a checksum in the note of a bookmark."""


class RelayMetrics(NamedTuple):
    """The counts of a relay since its start."""

    relayed: int
    """Rows that were committed to Kafka and deleted."""
    found_sent: int
    """Rows that an earlier relay had sent but not deleted. This relay has deleted them, and has not sent them again."""
    refused: int
    """Rows that brokers refuse. They stay in the table, with the reason in the column ``refused``."""
    failures: int
    """Errors of brokers or of the database after which the relay tried again."""
    stalled_seconds: float = 0.0
    """The time since the relay last committed rows, found no row that waits, or found another relay at work."""


class OutboxRelay:
    """Sends the rows of an outbox table to Kafka, in the order of their ids.

    Consumers with ``isolation.level=read_committed`` read each row exactly once. A row that brokers refuse for good
    stays in the table, and the relay goes on with the next one. Run a relay as a process (`streamapp outbox relay`), in
    a thread (``with``), or with `run`. With PostgreSQL, a second relay of the same table waits for the first one. With
    SQLite, a second relay of the same name fences the first one, which then gets errors. Never change ``name``: the
    bookmarks of sent rows are kept under this name. A relay of another name sends rows again that were sent and not yet
    deleted. So does a relay that starts after brokers have forgotten the bookmarks (``offsets.retention.minutes``, 7
    days).

    ``bootstrap_servers`` and ``client_properties`` are those of `StreamsConfig`. ``compression_type`` is that of
    Kafka's producers. If the table is empty, the relay looks again after ``poll_interval_ms``.

    >>> from streamapp.producer import SqliteOutbox
    >>> OutboxRelay("orders-service", SqliteOutbox("orders.db")).metrics.relayed
    0
    """

    def __init__(
        self,
        name: str,
        database: OutboxDatabase,
        *,
        bootstrap_servers: str | None = None,
        client_properties: Mapping[str, Any] | None = None,
        compression_type: str = "lz4",
        poll_interval_ms: int = 100,
    ) -> None:
        self._options = ProducerOptions(
            name=name,
            bootstrap_servers=bootstrap_servers,
            client_properties=client_properties or {},
            linger_ms=0,
            compression_type=compression_type,
        )
        self._database = database
        self._poll_seconds = poll_interval_ms / 1000
        self._passing: tuple[type[Exception], ...] = (BrokerError, *database.errors)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._unknown = UnknownTopics()
        self._alone_through = 0
        """The largest id of the rows that go out alone, because one of them was refused; 0: none."""
        self._most_rows = _MOST_ROWS
        self._relayed = self._found_sent = self._refused = self._failures = 0
        self._trouble = RepeatedFailures(logger, f"relay {name}")
        self._working_since: float | None = None
        """The time at which the present work on rows began, while `run` runs."""

    @property
    def config(self) -> StreamsConfig:
        """The settings of the cluster and its login, for ``streamapp acls``."""
        return self._options.config

    @property
    def metrics(self) -> RelayMetrics:
        """The counts at this moment."""
        since = self._working_since
        stalled = 0.0 if since is None else time.monotonic() - since
        return RelayMetrics(self._relayed, self._found_sent, self._refused, self._failures, stalled)

    def exposition(self) -> str:
        """The counts in Prometheus' text format. For several relays on a page, call `metrics_text`."""
        return metrics_text(self)

    def _families(self) -> Iterable[Metric]:
        counts, labels = self.metrics, {"relay": self._options.name}
        for name in ("relayed", "found_sent", "refused", "failures"):
            text = f"Outbox rows or attempts: {name}."
            yield Metric(f"outbox_{name}_total", "counter", text, [(labels, getattr(counts, name))])
        yield Metric(
            "outbox_stalled_seconds", "gauge",
            "Time since the relay committed rows, found no row, or found another relay at work.",
            [(labels, counts.stalled_seconds)],
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="outbox-relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.run()
        except Exception as exc:
            logger.exception("relay %s has ended", self._options.name)
            self._failure = exc

    def stop(self) -> None:
        """Asks `run` to end after its present transaction. Any thread may call this method."""
        self._stopping.set()

    def run(self) -> None:
        """Relays rows until `stop`. If brokers or the database fail, the relay tries again until they are back.

        Raises `ConfigError` at once for an SQLite file that does not exist, or that the process cannot write.
        """
        self._database.check()
        self._working_since = time.monotonic()
        try:
            with closing(self._database):  # of PostgreSQL: the end of the connection lets another relay lead
                while not self._stopping.is_set():
                    try:
                        self._relay()
                    except self._passing as exc:
                        self._failures += 1
                        advice = _NO_TABLE if self._database.is_no_table(exc) else ""
                        self._trouble.failed(str(exc).strip() + advice)
                        self._stopping.wait(_PAUSE_SECONDS)
        finally:
            self._working_since = None

    def _relay(self) -> None:
        """Sends rows until an error, or until brokers refuse a row.

        After an error, the last transaction may be committed or not. So each call begins with the bookmarks.
        """
        database = self._database
        while not database.lead():
            self._note_work()
            if self._stopping.wait(_PAUSE_SECONDS):
                return
        session = BookmarkedSession(
            f"{self._options.name}{OUTBOX}{database.identity()}",
            self._options.producer(),
            self._options.client(),
            seconds=_ATTEMPT_SECONDS,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            unknown=self._unknown,
        )
        try:
            for mark in session.bookmarks(database.topics(), _ATTEMPT_SECONDS):
                self._found_sent += self._delete_sent(mark.note)
            while not self._stopping.is_set():
                try:
                    rows = database.first(1 if self._alone_through else self._most_rows)
                except UnreadableRow as exc:
                    self._refuse(exc.row, exc.reason)
                    continue
                if rows:
                    if not self._send(session, rows):
                        return
                else:
                    self._note_work()
                    session.idle()
                    self._stopping.wait(self._poll_seconds)
        finally:
            session.abandon()

    def _send(self, session: BookmarkedSession, rows: Sequence[OutboxRow]) -> bool:
        """Sends the first rows in one transaction. Returns False if brokers refuse a row; the session is then over."""
        if rows[0].id > self._alone_through:
            self._alone_through = 0
        ids = [row.id for row in rows]
        while len(note := as_ranges(ids)) > _NOTE_BYTES:
            del ids[len(ids) // 2 :]
        rows = rows[: len(ids)]
        mark = Bookmark(ids[-1], f"{note},{_digest(rows)}")
        try:
            session.send([row.record for row in rows], mark, _ATTEMPT_SECONDS)
        except Unsettled:  # perhaps the brokers are too slow for so many rows
            self._most_rows = max(1, len(rows) // 2)
            raise
        except RecordsRefused as exc:
            topics = {
                rows[index].record.topic: error
                for index, error in exc.errors.items()
                if error.code() in OF_THE_TOPIC
            }
            if topics:
                for row in rows:
                    if row.record.topic in topics:
                        self._refuse_record(row, topics[row.record.topic])
            elif len(rows) > 1:
                self._alone_through = ids[-1]
            else:
                self._refuse_record(rows[0], exc.errors[0])
            return False
        self._database.delete(ids)
        self._note_work()
        hit("outbox-deleted")
        self._most_rows = min(2 * self._most_rows, _MOST_ROWS)
        self._relayed += len(ids)
        return True

    def _note_work(self) -> None:
        """Notes that the relay has nothing to wait for: neither the database nor brokers."""
        self._working_since = time.monotonic()
        self._trouble.over()

    def _delete_sent(self, note: str) -> int:
        """Deletes the rows of a committed bookmark that are still in the table, and returns their number.

        A restored backup, or a copy that became primary, may give the ids of sent rows to other rows. These rows stay.
        """
        ids, digest = of_ranges(note), note.rpartition(",")[2]
        if digest.endswith(_DIGEST):  # the notes of earlier releases have none
            try:
                rows = self._database.rows(ids)
            except UnreadableRow:  # no relay has sent such a row
                return 0
            if not rows:
                return 0
            if _digest(rows) != digest:
                logger.warning(
                    "relay %s: rows with the ids %d to %d were sent before; these rows have other content, and are "
                    "sent, too",
                    self._options.name,
                    rows[0].id,
                    rows[-1].id,
                )
                return 0
        return self._database.delete(ids)

    def _refuse_record(self, row: OutboxRow, error: KafkaError) -> None:
        topic = row.record.topic
        self._refuse(row.id, f"a record for {topic}: {advised(error, topic)}")

    def _refuse(self, row: int, reason: str) -> None:
        logger.error("relay %s cannot send row %d: %s", self._options.name, row, reason)
        self._database.refuse(row, reason)
        self._refused += 1


def _digest(rows: Sequence[OutboxRow]) -> str:
    """A checksum of the rows, as an empty range of ids: earlier releases, which know only ranges, pass over it."""
    content = [
        (id, at.topic, at.key, at.value, at.timestamp, at.headers, at.partition) for id, at in rows
    ]  # not the records themselves, which may have further fields in a later release
    return f"{zlib.crc32(msgspec.msgpack.encode(content)) or 1}{_DIGEST}"
