"""`TransactionalChannel`: sends parcels in transactions, in order and exactly once, from memory or from the local log.

Each parcel has a number. A transaction sends the first waiting parcels, and commits the number of the last one as its
bookmark. So after a broken connection, the bookmark tells which parcels brokers have.

The thread "sender" sends, and waits for brokers. With a local log, the thread "spiller" moves parcels from memory into
the log when the sender takes too long. The spiller may do so during a transaction, because the outcome of a transaction
is only a number.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from streamapp._base.counted import counted
from streamapp._base.failpoints import hit
from streamapp._base.repeated_failures import RepeatedFailures
from streamapp.broker.refused import advised
from streamapp.errors import BrokerError, ProcessorStateError
from streamapp.producer.buffer import Buffer
from streamapp.producer.counts import Counts
from streamapp.producer.options import ProducerOptions
from streamapp.producer.outcomes import Outcomes
from streamapp.producer.parcel import Batched, Parcel, Reports
from streamapp.producer.report import DeliveryError
from streamapp.producer.session import Bookmark, BookmarkedSession, RecordsRefused, UnknownTopics, Unsettled
from streamapp.producer.spill_log import SpillLog

__all__ = ["TransactionalChannel"]

logger: logging.Logger = logging.getLogger(__name__)

_ATTEMPT_SECONDS = 10.0
_TRANSACTION_TIMEOUT_MS = 30_000
_PAUSE_SECONDS = 0.2
_LOOK_SECONDS = 0.02
_IDLE_SECONDS = 1.0
_MOST_PARCELS = 10_000
_MOST_BYTES = 8 << 20
_LEAST_PARCELS = 10
_GATHER_MS = 5


class TransactionalChannel:
    """A `Channel` whose records arrive exactly once, even after broken connections; with a log also after a kill."""

    def __init__(
        self,
        options: ProducerOptions,
        name: str,
        buffer: Buffer,
        counts: Counts,
        outcomes: Outcomes,
        log: SpillLog | None,
    ) -> None:
        self._options, self._name, self._buffer, self._counts = options, name, buffer, counts
        self._outcomes, self._log = outcomes, log
        # The channel itself waits `linger_ms` before a transaction. Within one, librdkafka waits only briefly.
        linger = {"linger.ms": min(options.linger_ms, _GATHER_MS)}
        self._settings, self._group_settings = options.producer() | linger, options.client()
        self._pending: deque[Parcel] = deque()
        """Parcels in memory, in the order of their numbers. All numbers in the log are smaller."""
        self._lock = threading.Lock()
        """A lock for the parcels in memory. A Ctrl-C at the begin of ``with self._work`` would leave it locked."""
        self._work = threading.Condition(self._lock)
        self._moving = threading.Lock()
        """A lock, held while parcels move into the log or get their outcomes, so that the outcomes keep the order. A
        thread that needs both locks takes this one before `_lock`."""
        self._next = 1
        self._session: BookmarkedSession | None = None
        self._unknown = UnknownTopics()
        self._waiting_since: float | None = None
        """The time of the last progress while there was work."""
        self._alone_through = 0
        """Parcels up to this number are sent one by one, to find the parcel that brokers refuse."""
        self._limit = _MOST_PARCELS
        self._closing = self._closed = False
        self._flushing = 0
        """The number of calls of `flush` that still wait. Meanwhile, transactions do not wait for more records
        (``linger_ms``)."""
        self._ending = threading.Event()
        if log is not None:
            counts.inherited(log.records)
        self._sender = threading.Thread(target=self._send_all, name="producer-sender", daemon=True)
        self._spiller = threading.Thread(target=self._spill_all, name="producer-spiller", daemon=True)
        self._sender.start()
        if log is not None:
            self._spiller.start()

    def put(self, parcel: Parcel) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._log is None:
                parcel.number = self._next
                self._next += 1
            else:
                parcel.number = self._log.take_number()
            parcel.taken = True
            self._pending.append(parcel)
            # The sender waits for the first parcel, and lingers for a full batch.
            if len(self._pending) in (1, self._limit):
                self._work.notify_all()
        return True

    def flush(self, seconds: float | None) -> bool:
        with self._lock:
            self._flushing += 1
            self._work.notify_all()
        try:
            return self._counts.settled(seconds)
        finally:
            with self._lock:
                self._flushing -= 1

    def close(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        with self._lock:
            self._closing = True
            self._work.notify_all()
        while self._sender.is_alive() and time.monotonic() < deadline and not (self._log and self._away):
            self._sender.join(_LOOK_SECONDS)
        self._closed = True
        self._ending.set()
        with self._lock:
            self._work.notify_all()
        if self._log is not None:
            self._spiller.join()
            self._close_log(self._log)
        with self._moving, self._lock:
            lost, self._pending = self._pending, deque()
        for parcel in lost:
            topic = parcel.records[0].topic
            stopped = DeliveryError(topic, "the producer stopped before brokers confirmed it", None)
            self._outcomes.failed(parcel, stopped)
        return sum(parcel.count for parcel in lost)

    def _close_log(self, log: SpillLog) -> None:
        with self._moving:
            with suppress(ProcessorStateError):
                self._spill(log, everything=True)
            if log.records:
                logger.warning(
                    "%s stopped with %s in %s, not confirmed by a broker: the next producer of that spill_dir sends "
                    "them", self._options.name, counted(log.records, "record"), log.path,
                )  # fmt: skip
            log.close()

    @property
    def _away(self) -> bool:
        """True if records have waited for ``spill_after_ms`` without any progress: brokers seem to be away."""
        since = self._waiting_since
        return since is not None and time.monotonic() - since > self._options.spill_after_ms / 1000

    # The sender.

    def _send_all(self) -> None:
        trouble = RepeatedFailures(logger, self._options.name)
        while batch := self._next_batch():
            try:
                self._send(batch)
            except RecordsRefused as exc:
                self._session = None
                self._blame(batch, exc)
            except Exception as exc:  # without this thread, records would wait for ever
                if self._closed:
                    break
                self._session = None
                self._limit = max(_LEAST_PARCELS, self._limit // 2)
                self._counts.retried(1)
                unforeseen = None if isinstance(exc, BrokerError) else exc
                trouble.failed(str(exc), unforeseen)
                self._ending.wait(_PAUSE_SECONDS)
            else:
                self._limit = min(_MOST_PARCELS, self._limit * 2)
                trouble.over()
        if self._session is not None:
            self._session.abandon()

    def _next_batch(self) -> Sequence[Batched]:
        """Waits for parcels, and returns the first of them. The result is empty if the channel is closed."""
        while (found := self._wait_for_work()) is None:
            pass
        if not found:
            return ()
        if self._log is None or not self._log.records:
            self._linger()
        with self._moving:
            if self._closed:
                return ()
            if self._log is not None and self._log.records:
                batch: Sequence[Batched] = self._log.head(self._limit, _MOST_BYTES)
            else:
                batch = self._first_pending()
        return batch[:1] if batch and batch[0].number <= self._alone_through else batch

    def _wait_for_work(self) -> bool | None:
        """Waits a moment for parcels. True: parcels wait. False: the channel closes. None: neither."""
        self._outcomes.look()
        with self._lock:
            if self._closed or (self._log and self._log.records) or self._pending:
                if self._waiting_since is None:
                    self._waiting_since = time.monotonic()
                return True
            self._waiting_since = None
            if self._closing:
                return False
            self._work.wait(_IDLE_SECONDS)
            if self._session is not None:
                self._session.idle()
            return None

    def _linger(self) -> None:
        """Waits up to ``linger_ms`` for more records, because larger transactions are cheaper."""
        until = time.monotonic() + self._options.linger_ms / 1000
        with self._lock:
            while len(self._pending) < self._limit and not (self._closing or self._flushing):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._work.wait(left)

    def _first_pending(self) -> list[Parcel]:
        found: list[Parcel] = []
        size = 0
        with self._lock:
            for parcel in self._pending:
                size += parcel.size
                if found and (size > _MOST_BYTES or len(found) >= self._limit):
                    break
                found.append(parcel)
        return found

    def _send(self, batch: Sequence[Batched]) -> None:
        session = self._session
        if session is not None and session.outdated():
            session.abandon()
            session = self._session = None
        if session is None:
            session = self._open()
            # The last transaction may have been committed. Its first parcel is still the first one in memory or in the
            # log.
            found = max((mark.number for mark in self._marks(session, batch)), default=0)
            self._session = session
            if found >= batch[0].number:
                self._settle(found, ())
                return
        records = [record for parcel in batch for record in parcel.records]
        last = batch[-1].number
        places = session.send(records, Bookmark(last), _ATTEMPT_SECONDS)
        self._settle(last, places)

    def _open(self) -> BookmarkedSession:
        return BookmarkedSession(
            self._name,
            self._settings,
            self._group_settings,
            seconds=_ATTEMPT_SECONDS,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            unknown=self._unknown,
            retried=self._counts.retried,
        )

    def _marks(self, session: BookmarkedSession, batch: Sequence[Batched]) -> list[Bookmark]:
        marks = session.bookmarks([batch[0].records[0].topic], _ATTEMPT_SECONDS)
        given = self._log.next_number if self._log is not None else self._next
        if any(mark.number >= given for mark in marks):
            raise Unsettled(
                f"another producer has used the name {self._name}: a spill_dir was copied. Empty the copy, so that it "
                "gets a name of its own"
            )
        return marks

    def _settle(self, through: int, places: Sequence[tuple[int | None, int | None]]) -> None:
        """Removes all parcels up to this number, because brokers have them, and sets their reports.

        ``places`` has partition and offset of each record; empty if they are not known.
        """
        with self._moving:
            if self._closed and self._log is not None:
                return  # the next process finds the bookmark
            done: list[Parcel] = []
            with self._lock:
                while self._pending and self._pending[0].number <= through:
                    done.append(self._pending.popleft())
            removed = self._log.remove_through(through) if self._log is not None else 0
            hit("spill-removed")
            if removed:
                self._outcomes.confirmed_spilled(removed)
            # Parcels that are still in memory are the last of the batch.
            begin = len(places) - sum(len(parcel.records) for parcel in done)
            confirmed: list[tuple[Parcel, Reports]] = []
            for parcel in done:
                end = begin + len(parcel.records)
                confirmed.append((parcel, parcel.reports(tuple(places[begin:end]) if places else None)))
                begin = end
            self._outcomes.confirmed(confirmed)
        self._waiting_since = time.monotonic()

    def _blame(self, batch: Sequence[Batched], refused: RecordsRefused) -> None:
        """Finds the parcel that brokers refuse, and sets its report to the error.

        The error does not tell which parcel of a transaction brokers refuse. So after a transaction with several
        parcels, each of them is sent alone.
        """
        if len(batch) > 1:
            self._alone_through = batch[-1].number
            return
        number, error = batch[0].number, next(iter(refused.errors.values()))
        topic = batch[0].records[min(refused.errors)].topic
        reason = advised(error, topic)
        with self._moving:
            if self._closed:
                return
            with self._lock:
                failed = (
                    self._pending.popleft() if self._pending and self._pending[0].number == number else None
                )
            aside = self._log.refuse(number, f"{topic}: {reason}") if self._log is not None else 0
            if aside:
                self._outcomes.failed_spilled(aside)
            if failed is not None:
                self._outcomes.failed(failed, DeliveryError(topic, reason, False, refused=True))
        self._waiting_since = time.monotonic()
        if aside and self._log is not None:
            logger.error(
                "%s: brokers refuse %s for %s: %s. Refused records are kept aside: streamapp spill list %s",
                self._options.name, counted(aside, "spilled record"), topic, reason, self._log.path,
            )  # fmt: skip

    # The spiller.

    def _spill_all(self) -> None:
        log = self._log
        assert log is not None
        told = False
        while not self._closed:
            try:
                with self._moving:
                    if self._spill(log, everything=False):
                        told = False
            except ProcessorStateError as exc:
                if not told:
                    logger.error("%s cannot spill: %s. Records wait in memory", self._options.name, exc)
                told = True
            self._ending.wait(_LOOK_SECONDS)

    def _spill(self, log: SpillLog, *, everything: bool) -> bool:
        """Moves all parcels of the memory into the log if brokers take too long, or the buffer is nearly full.

        Returns True if parcels were moved.
        """
        with self._lock:
            parcels = list(self._pending)
        if not parcels or (log.full and not everything):
            return False
        late = time.monotonic() - parcels[0].born > self._options.spill_after_ms / 1000
        pressed = self._options.when_full == "spill" and self._buffer.pressed
        if not (everything or late or pressed or self._away):
            return False
        log.append(parcels)
        hit("spill-written")
        with self._lock:
            for _ in parcels:
                self._pending.popleft()
        self._outcomes.spilled(parcels)
        return True
