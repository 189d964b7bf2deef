"""`Handling`: the steps of one call of the handler. The steps decode the records, call the handler, decide about an
error, and send dead letters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from streamapp._base.aside import MustAsk, aside, unless_asking
from streamapp._base.cancellation import own_cancellation
from streamapp._base.failpoints import hit
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.consumer_record import ConsumerRecord
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.lanes import Item, Unit
from streamapp.consumer.offset_sinks import SinkFenced
from streamapp.consumer.outputs import HandlerOutputs, Letter, OutputTransaction
from streamapp.consumer.sinking import Sinking
from streamapp.consumer.verdicts import HandlerTimeout, Settled, Verdicts
from streamapp.engine.judging import with_clock
from streamapp.producer import SyncReliableProducer
from streamapp.producer.report import DeliveryError, DeliveryReport
from streamapp.records import OutputRecord
from streamapp.serdes.framing import KEY_FRAME, VALUE_FRAME, Framing, frame_end

__all__ = ["Handling"]

logger: logging.Logger = logging.getLogger(__name__)

Pairs = list[tuple[Item, ConsumerRecord[Any, Any]]]


_Bound = tuple[Callable[[bytes], Any], Callable[[bytes], Any], Framing]
"""The deserializers for key and value of a topic, and the `Framing` that moves schema ids out of headers."""


_Frames = tuple[str, bytes, bytes, tuple[bytes | None, ...]]
"""The topic of a record, and its schema ids: those before key and value, and those in headers."""
_MOST_FRAMES = 1_000


class Handling:
    """Runs units of one consumer, on threads (`run`) or on the event loop (`run_async`)."""

    def __init__(
        self,
        options: ConsumeOptions,
        dispatcher: Dispatcher,
        letters: SyncReliableProducer[bytes, bytes] | None,
        sinking: Sinking | None,
        outputs: HandlerOutputs | None,
    ) -> None:
        self._options, self._dispatcher = options, dispatcher
        self._letters, self._sinking, self._outputs = letters, sinking, outputs
        self._verdicts = Verdicts(options)
        self._bound: dict[str, _Bound] = {}
        self._known_frames: set[_Frames] = set()
        """The schema ids of records that coroutines have got."""
        self.timed_out: set[Unit] = set()
        """Units whose coroutine is cancelled because it takes too long."""
        self.decoded: dict[Unit, float] = {}
        """The time (monotonic, s) at which the records of a unit were decoded; infinity while a serde is at work.

        The wait for a registry does not count for ``handler_timeout_ms``, because ``patience.ms`` limits the wait.
        """

    def run(self, unit: Unit) -> None:
        """Runs a unit on this thread, and reports its outcome to the dispatcher."""
        self.decoded[unit] = inf
        pairs, wrong = self._prepared(unit)
        began = self.decoded[unit] = time.monotonic()
        error: Exception | None = None
        sent = self._transaction()
        try:
            if pairs:
                if self._sinking is None:
                    self._options.handler(self._argument(pairs), *sent)
                else:
                    self._in_transaction(self._sinking, unit, pairs)
                hit("consumer-handled")
        except SinkFenced as exc:
            logger.warning("%s: %s", self._options.name, exc)
            self._dispatcher.forget([unit.partition.source])
            self._over(unit, Settled(back=unit.items), began, pairs)
            return
        except Exception as exc:
            error = exc
        settled = self._settle(unit, pairs, error, wrong, sent)
        lost = settled.letters[:1]
        try:
            for letter, report in self._send(settled):
                lost = [letter]
                try:
                    report.result()
                except DeliveryError as refused:
                    self._send_again(letter.record, refused).result()
        except Exception as exc:
            settled = Settled(back=unit.items, fail=self._verdicts.letter_lost(unit, exc, *lost))
        self._over(unit, settled, began, pairs)

    def leave(self) -> None:
        """Closes the connection of this thread to the database of the offsets, at the end of the thread."""
        if self._sinking is not None:
            self._sinking.sink.close()

    async def run_async(self, unit: Unit) -> None:
        """Runs a unit on this event loop, and reports its outcome to the dispatcher."""
        pairs, wrong = await self._prepared_beside_loop(unit)
        began = time.monotonic()
        error: Exception | None = None
        sent = self._transaction()
        try:
            if pairs:
                await self._options.handler(self._argument(pairs), *sent)
                hit("consumer-handled")
        except asyncio.CancelledError as exc:
            error = own_cancellation(exc)
            if error is None:
                if unit not in self.timed_out:
                    raise
                error = HandlerTimeout(
                    f"the handler has not come back within {self._options.handler_timeout_ms} ms, and was cancelled"
                )
        except Exception as exc:
            error = exc
        settled = self._settle(unit, pairs, error, wrong, sent)
        lost = settled.letters[:1]
        try:
            for letter, report in self._send(settled):
                lost = [letter]
                try:
                    await asyncio.wrap_future(report)
                except DeliveryError as refused:
                    await asyncio.wrap_future(self._send_again(letter.record, refused))
        except Exception as exc:
            settled = Settled(back=unit.items, fail=self._verdicts.letter_lost(unit, exc, *lost))
        self._over(unit, settled, began, pairs)

    def _prepared(self, unit: Unit) -> tuple[Pairs, list[tuple[Item, Exception]]]:
        """The decoded records of a unit (one call of the handler), and each record that cannot be decoded, with its
        error.

        A unit with ``no_room`` gives two empty lists, because the consumer does not call the handler.
        """
        pairs: Pairs = []
        wrong: list[tuple[Item, Exception]] = []
        if unit.no_room:
            return pairs, wrong
        source = unit.partition.source
        try:
            of_key, of_value, framing = self._deserializers(source.topic)
        except Exception as exc:
            return pairs, [(item, exc) for item in unit.items]
        for item in unit.items:
            try:
                raw_key, raw_value, headers = item.key, item.value, item.headers
                if headers and framing.joins:
                    raw_key, raw_value, headers = framing.joined(raw_key, raw_value, headers)
                key = None if raw_key is None else of_key(raw_key)
                value = None if raw_value is None else of_value(raw_value)
            except Exception as exc:
                wrong.append((item, exc))
                continue
            record: ConsumerRecord[Any, Any] = ConsumerRecord(
                *source, item.offset, item.timestamp, key, value, headers, item.attempts + 1
            )
            pairs.append((item, record))
        return pairs, wrong

    def _may_ask(self, unit: Unit) -> bool:
        """True if the serdes may have to ask the schema registry, because they have not read a record with these ids
        yet."""
        of_key, of_value = self._options.serdes
        if unit.no_room or not (of_key.framed or of_value.framed):
            return False
        return any(_frames(unit, item) not in self._known_frames for item in unit.items)

    async def _prepared_beside_loop(self, unit: Unit) -> tuple[Pairs, list[tuple[Item, Exception]]]:
        """The result of `_prepared`. If a serde waits for its registry, the event loop goes on meanwhile."""
        if not self._may_ask(unit):
            with suppress(MustAsk):  # a serde inside another one, or the words of an error
                return unless_asking(partial(self._prepared, unit))
        self.decoded[unit] = inf
        pairs, wrong = await aside(partial(self._prepared, unit), f"{self._options.name}-registry")
        self.decoded[unit] = time.monotonic()
        if len(self._known_frames) > _MOST_FRAMES:
            self._known_frames.clear()
        self._known_frames.update(_frames(unit, item) for item, _ in pairs)
        return pairs, wrong

    def _deserializers(self, topic: str) -> _Bound:
        found = self._bound.get(topic)
        if found is None:
            of_key, of_value = self._options.serdes
            of_key, of_value = of_key.bind(topic, True), of_value.bind(topic, False)
            found = of_key.deserialize, of_value.deserialize, Framing(of_key, of_value)
            self._bound[topic] = found
        return found

    def _argument(self, pairs: Pairs) -> Any:
        return pairs[0][1] if self._options.batch is None else [record for _, record in pairs]

    def _in_transaction(self, sinking: Sinking, unit: Unit, pairs: Pairs) -> None:
        """Calls the handler in a transaction of the database, which also saves the position of the partition."""
        records = dict(pairs)

        def call(items: Collection[Item], connection: Any) -> None:
            self._options.handler(self._argument([(item, records[item]) for item in items]), connection)

        sinking.commit(unit.partition, list(records), call)

    def _transaction(self) -> tuple[OutputTransaction[Any, Any], ...]:
        """The second argument of the handler if its outputs go to Kafka, else nothing."""
        return () if self._outputs is None else (self._outputs.begin(),)

    def _settle(
        self,
        unit: Unit,
        pairs: Pairs,
        error: Exception | None,
        wrong: Sequence[tuple[Item, Exception]],
        sent: Sequence[OutputTransaction[Any, Any]],
    ) -> Settled:
        outputs = [record for transaction in sent for record in transaction.end()]
        if unit.no_room:
            settled = self._verdicts.no_room(unit)
        else:
            called = [item for item, _ in pairs]
            settled = self._verdicts.settle(unit, called, error, wrong, time.monotonic() * 1000)
        if self._outputs is not None:
            settled.outputs = outputs if settled.done else []
        return settled

    def _send(self, settled: Settled) -> list[tuple[Letter, Future[DeliveryReport]]]:
        """Sends dead letters, and waits until brokers confirm them. Only then do their records count as done, so no
        record gets lost.

        A consumer with outputs (`KafkaOutput`) sends its dead letters in the transaction of the outputs instead.
        """
        if self._outputs is not None:
            return []
        return [(letter, self._send_soon(letter.record)) for letter in settled.letters]

    def _send_again(self, letter: OutputRecord, refused: DeliveryError) -> Future[DeliveryReport]:
        """Sends a letter with the time of the clock. Raises ``refused`` if the letter's time is not the cause."""
        again = with_clock(letter, int(time.time() * 1000)) if refused.refused else None
        if again is None:
            raise refused
        return self._send_soon(again)

    def _send_soon(self, letter: OutputRecord) -> Future[DeliveryReport]:
        assert self._letters is not None
        return self._letters.send_soon(
            letter.topic,
            key=letter.key,
            value=letter.value,
            timestamp=letter.timestamp,
            headers=letter.headers,
            partition=letter.partition,
        )

    def _over(self, unit: Unit, settled: Settled, began: float, pairs: Pairs) -> None:
        self._dispatcher.finished(unit, settled, time.monotonic() - began, len(pairs))


def _frames(unit: Unit, item: Item) -> _Frames:
    key, value = item.key or b"", item.value or b""
    in_headers = tuple(value for name, value in item.headers if name in (KEY_FRAME, VALUE_FRAME))
    return unit.partition.source.topic, key[: frame_end(key)], value[: frame_end(value)], in_headers
