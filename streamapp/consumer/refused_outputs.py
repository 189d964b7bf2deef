"""`RefusedOutputs`: outputs that brokers refuse for good, and the answers of ``on_error``."""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import KafkaError

from streamapp.broker.refused import FINAL, OF_THE_TIME, OF_THE_TOPIC, refusal_text, remedy_for
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.lanes import Unit
from streamapp.consumer.outputs import Output, Step
from streamapp.consumer.verdicts import Settled, Verdicts
from streamapp.engine.collector import ResultRefused
from streamapp.engine.judging import with_clock
from streamapp.producer.session import RecordsRefused
from streamapp.records import OutputRecord

__all__ = ["RefusedOutputs"]

logger: logging.Logger = logging.getLogger(__name__)

_BATCH = "batch.num.messages"
_DEFAULT_BATCH = 10_000
_GROWTH = 10


class RefusedOutputs:
    """Finds the calls of the consumer's function whose outputs brokers refuse. Then ``on_error`` decides about the
    input records of these calls.

    Only the polling thread may use the object. Brokers refuse a request as a whole, although the cause may be one
    record, or only the size of the request. If the cause is not clear, the outputs of a refused transaction are sent
    again, each in a request of its own. Later, requests grow again with each commit.
    """

    def __init__(self, options: ConsumeOptions, dispatcher: Dispatcher) -> None:
        self._dispatcher, self._verdicts = dispatcher, Verdicts(options)
        self._name = options.name
        self._together: int | None = None
        """The largest number of records in a request; None for the number in the client's settings."""

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's settings for the next session, in addition to those of any producer."""
        return {} if self._together is None else {_BATCH: self._together}

    def committed(self) -> bool:
        """Notes that a transaction was committed.

        Returns True if the next transaction needs another session, with larger requests.
        """
        if self._together is None:
            return False
        self._together = self._together * _GROWTH
        if self._together >= _DEFAULT_BATCH:
            self._together = None
        return True

    def judge(self, step: Step, refused: RecordsRefused) -> None:
        """Applies ``on_error`` to the record of each call whose output was refused.

        Dead letters that brokers may have refused for their time get the time of the clock, all together. If the
        refusal does not tell which outputs are the cause, the next session sends each output in a request of its own.
        If the call had several records, each of them first gets a call of its own.
        """
        if again := _with_clock(step, refused):
            for output, letter in again:
                self._dispatcher.letter_again(output, letter)
            return
        if self._together != 1 and self._vague(step, refused):
            self._together = 1
            return
        unknown = {
            step.outputs[index].record.topic: error
            for index, error in refused.errors.items()
            if error.code() in OF_THE_TOPIC
        }
        judged: set[Unit] = set()
        for index, output in enumerate(step.outputs):
            error = refused.errors.get(index) or unknown.get(output.record.topic)
            if error is not None and output.unit not in judged:
                judged.add(output.unit)
                self._answer(output, error)

    def _vague(self, step: Step, refused: RecordsRefused) -> bool:
        topics = {
            step.outputs[index].record.topic
            for index, error in refused.errors.items()
            if error.code() not in OF_THE_TOPIC
        }
        return any(sum(each.record.topic == topic for each in step.outputs) > 1 for topic in topics)

    def _answer(self, output: Output, error: KafkaError) -> None:
        record, unit = output.record, output.unit
        text = refusal_text(error, record.key, record.value, record.timestamp)
        refusal = ResultRefused(text, remedy_for(error, record.topic), final=error.code() in FINAL)
        if output.letter:
            fatal = self._verdicts.letter_lost(unit, refusal, output.letter)
            self._dispatcher.refused(unit, Settled(back=unit.items, fail=fatal))
        elif len(unit.items) > 1:
            logger.warning(
                "%s: %s refuses an output of a batch of %s: each record gets a call of its own",
                self._name,
                record.topic,
                unit.partition.source,
            )
            self._dispatcher.repeat(unit)
        else:
            settled = self._verdicts.refused(unit, refusal, record.topic, time.monotonic() * 1000)
            self._dispatcher.refused(unit, settled)


def _with_clock(step: Step, refused: RecordsRefused) -> list[tuple[Output, OutputRecord]]:
    """The dead letters to send again, each with the letter that has the time of the clock.

    Brokers refuse a request as a whole, and the session does not wait for the answers to further requests. So these are
    the letters that are ahead of the clock, of all topics that refuse a time; or else the old letters.
    """
    now = int(time.time() * 1000)
    topics = {
        step.outputs[index].record.topic
        for index, error in refused.errors.items()
        if error.code() in OF_THE_TIME
    }
    again = [
        (output, letter)
        for output in step.outputs
        if output.letter is not None
        and output.record is output.letter.record  # otherwise the letter has the time of the clock already
        and output.record.topic in topics
        and (letter := with_clock(output.record, now))
    ]
    ahead = [(output, letter) for output, letter in again if (output.record.timestamp or 0) > now]
    return ahead or again
