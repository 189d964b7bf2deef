"""`Verdicts`: the answer to each record of a call that raised: retry, skip, dead letter or fail
(`streamapp.on_error`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamapp._base.counted import counted
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.lanes import Item, Unit
from streamapp.consumer.outputs import Letter
from streamapp.engine.collector import ResultRefused
from streamapp.engine.judging import (
    SERVICE_FAILED,
    ProcessingFailed,
    dead_letter,
    going_on,
    hides_text,
    judge,
    letter_refused,
    record_at,
    said,
    service_failed,
    short,
)
from streamapp.errors import BrokerError, ProcessorStateError, StreamsError
from streamapp.on_error import ANSWERS, FAILURES, Answer, Chooser, ErrorContext
from streamapp.records import OutputRecord, TopicPartition

__all__ = ["HandlerTimeout", "Settled", "Verdicts"]

logger: logging.Logger = logging.getLogger(__name__)

_FAILED = "failed"
_UNDECODABLE = "could not be deserialized"
_FULL = "found no room behind a record that waits for a retry"


class HandlerTimeout(StreamsError):
    """A call of the handler took longer than ``handler_timeout_ms``."""


@dataclass(slots=True)
class Settled:
    """The outcome of one call of the handler. Each record of the call is in one of the fields ``done``, ``skipped``,
    ``dead`` and ``back``."""

    done: list[Item] = field(default_factory=list)
    skipped: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    back: list[Item] = field(default_factory=list)
    """Records that need another call. They go back to the front of their lanes."""
    letters: list[Letter] = field(default_factory=list)
    """Dead letters. Brokers must confirm them before the outcome counts, or a crash would lose their records. With
    `KafkaOutput`, they are committed with the positions instead."""
    outputs: list[OutputRecord] = field(default_factory=list)
    """Outputs to commit in one transaction with the positions."""
    delay_ms: int | None = None
    """The time until the next attempt for the records ``back``; None means at once."""
    pause: Exception | None = None
    """The error of a service that fails, for the circuit breaker."""
    pause_ms: int = 0
    """The time until the next attempt for the records ``back`` after this error, if the circuit breaker stays
    closed."""
    fail: Exception | None = None
    """The error that ends the consumer."""


class Verdicts:
    """Decides the outcome of calls, with the settings of one consumer. Several threads may share a `Verdicts`."""

    def __init__(self, options: ConsumeOptions) -> None:
        self._options, self._config = options, options.config
        services: tuple[type[Exception], ...] = (BrokerError, ProcessorStateError)
        if options.offsets is not None:
            services += options.offsets.failures
        self._failures = services + (FAILURES if options.retry is None else options.retry.failures)

    def _service_failed(self, error: BaseException) -> bool:
        offsets = self._options.offsets
        mistake = offsets is not None and offsets.is_mistake(error)
        return not mistake and service_failed(error, self._failures)

    def settle(
        self,
        unit: Unit,
        called: Sequence[Item],
        error: Exception | None,
        undecodable: Iterable[tuple[Item, Exception]] = (),
        clock_ms: float = 0.0,
    ) -> Settled:
        """The outcome of a call that got the records ``called``. ``error`` is the exception of the handler, if any.

        ``undecodable`` are records that the handler did not get. ``clock_ms`` is the time, for the age of retries.
        """
        settled = Settled()
        try:
            for item, wrong in undecodable:
                if self._service_failed(wrong):
                    self._service(settled, [item], wrong, unit)
                else:
                    self._give_up(settled, unit, item, wrong, self._options.undecodable_answer, _UNDECODABLE)
            if error is None:
                settled.done += called
            else:
                self._raised(settled, unit, called, error, clock_ms)
        except ProcessingFailed as fatal:
            settled.fail = settled.fail or fatal
        if settled.fail is not None:
            answered = {*settled.done, *settled.skipped, *settled.dead}
            settled.back = [item for item in unit.items if item not in answered]
        return settled

    def no_room(self, unit: Unit) -> Settled:
        """The outcome of a record that may not wait behind a failed one, because the limit of `Retry` is reached."""
        retry, settled = self._options.retry, Settled()
        assert retry is not None
        assert retry.when_full != "wait"
        parked = counted(unit.partition.parked, "record", "records")
        error = OverflowError(
            f"{parked} of {unit.partition.source} wait for a retry, which is the limit of the consumer's Retry"
        )
        try:
            for item in unit.items:
                self._give_up(settled, unit, item, error, retry.when_full, _FULL)
        except ProcessingFailed as fatal:
            settled.fail, settled.back = fatal, unit.items
        return settled

    def refused(self, unit: Unit, error: ResultRefused, topic: str, clock_ms: float) -> Settled:
        """The outcome of the only record of a call whose output brokers refuse for good.

        With a `Retry`, ``back`` has the record: the same outputs are sent again after ``delay_ms``.
        """
        settled, what = Settled(), f"gave an output that {topic} does not take"
        (item,) = unit.items
        answer = "fail" if error.final else self._options.production_answer
        try:
            if error.final:
                self._give_up(settled, unit, item, error, answer, what)
            else:
                self._error(settled, unit, item, error, clock_ms, answer, what)
        except ProcessingFailed as fatal:
            settled.fail = fatal
        if settled.fail is not None:
            settled.back = [item]
        return settled

    def letter_lost(self, unit: Unit, error: Exception, letter: Letter) -> ProcessingFailed:
        """The error that ends the consumer if brokers do not take this dead letter of a call."""
        record = self._record(unit, letter.item)
        failed = letter_refused(record, letter.record.topic, error, letter.cause, self._config)
        failed.__cause__ = error
        return failed

    def _raised(
        self, settled: Settled, unit: Unit, called: Sequence[Item], error: Exception, clock_ms: float
    ) -> None:
        once = self._options.guarantee == "at_most_once"
        if self._service_failed(error):
            self._service(settled, called, error, unit)
        elif len(called) > 1 and not once:
            # The exception does not say which record is to blame, so each gets a call of its own.
            for item in called:
                item.alone = True
            settled.back += called
        else:
            for item in called:
                answer = self._options.processing_answer
                self._error(settled, unit, item, error, clock_ms, answer, _FAILED)

    def _service(self, settled: Settled, items: Sequence[Item], error: Exception, unit: Unit) -> None:
        if self._options.retry is not None:
            settled.back += items
            settled.pause = error
            for item in items:
                item.failures += 1
                wait = self._options.retry.backoff.delay_ms(item.failures, item.key or b"")
                settled.pause_ms = max(settled.pause_ms, wait)
            return
        remedy = f"{SERVICE_FAILED}: a Retry as on_error waits until the service is back"
        raise ProcessingFailed(f"{self._message(unit, items[0], error, _FAILED)}; {remedy}") from error

    def _error(
        self,
        settled: Settled,
        unit: Unit,
        item: Item,
        error: Exception,
        clock_ms: float,
        answer_of: Answer | Chooser,
        what: str,
    ) -> None:
        retry = self._options.retry
        item.attempts += 1
        item.since = clock_ms if item.since is None else item.since
        if retry is None:
            self._give_up(settled, unit, item, error, answer_of, what)
            return
        answer: Any = "retry" if retry.choose is None else self._chosen(unit, item, error)
        waited = retry.max_age_ms is not None and clock_ms - item.since >= retry.max_age_ms
        if answer == "retry" and (waited or (retry.times is not None and item.attempts > retry.times)):
            answer = retry.then
        if answer in ANSWERS:
            self._give_up(settled, unit, item, error, answer, what)
            return
        parked = unit.partition
        full = parked.parked >= retry.max_records or parked.parked_bytes >= retry.max_bytes
        if full and retry.when_full != "wait" and item.attempts == 1:
            self._give_up(settled, unit, item, error, retry.when_full, _FULL)
            return
        settled.back.append(item)
        settled.delay_ms = retry.backoff.delay_ms(item.attempts, item.key or b"")

    def _chosen(self, unit: Unit, item: Item, error: Exception) -> Any:
        retry = self._options.retry
        assert retry is not None
        assert retry.choose is not None
        try:
            answer = retry.choose(self._context(unit.partition.source, item), error)
        except Exception as fatal:
            raise ProcessingFailed(
                f"the function choose= in the Retry of {self._options.operator} itself failed ({short(fatal)}) when it "
                f"was asked about {short(error)}"
            ) from fatal
        if answer not in (*ANSWERS, "retry"):
            raise ProcessingFailed(
                f"the function choose= in the Retry of {self._options.operator} must return one of retry, "
                f"{', '.join(ANSWERS)}, not {answer!r}"
            )
        return answer

    def _give_up(
        self,
        settled: Settled,
        unit: Unit,
        item: Item,
        error: Exception,
        on_error: Answer | Chooser,
        what: str,
    ) -> None:
        item.attempts = max(1, item.attempts)
        context, topic = self._context(unit.partition.source, item), self._config.dead_letter_queue_topic
        message = self._message(unit, item, error, what)
        answer, letters = judge(on_error, lambda: context, error, message, topic)
        if letters is None and topic is not None and answer != "skip":
            letters = (dead_letter(topic, context, error, what, self._config, int(time.time() * 1000)),)
        if answer != "fail" or self._options.output is None:
            # With outputs, a transaction with this letter would leave its record uncommitted.
            cause = self._cause(error, what)
            settled.letters += [Letter(each, item, cause) for each in letters or ()]
        if answer == "fail":
            remedy = 'give the consumer on_error="skip", "dead_letter" or a Retry'
            if isinstance(error, ResultRefused):
                remedy = error.remedy if error.final else f"{error.remedy}. Or {remedy}".removeprefix(". Or ")
            settled.fail = ProcessingFailed(f"{message}; {remedy}")
            settled.fail.__cause__ = None if hides_text(error, self._config) else error
            return
        (settled.dead if letters else settled.skipped).append(item)
        logger.warning(
            "%s; %s",
            message,
            going_on(letters or ()),
            extra={"kind": f"{self._options.operator} {context.topic} {what} {type(error).__name__}"},
        )

    def _context(self, source: TopicPartition, item: Item) -> ErrorContext:
        return ErrorContext(
            source.topic,
            source.partition,
            item.offset,
            item.timestamp,
            item.headers,
            self._options.operator,
            f"{self._options.name}_{source.partition}",
            item.key,
            item.value,
            item.attempts,
        )

    def _message(self, unit: Unit, item: Item, error: Exception, what: str) -> str:
        return f"{self._record(unit, item)} {self._cause(error, what)}"

    def _record(self, unit: Unit, item: Item) -> str:
        return f"{self._options.operator}: {record_at(*unit.partition.source, item.offset)}"

    def _cause(self, error: Exception, what: str) -> str:
        return f"{what}: {said(error, self._config)[:500]}"
