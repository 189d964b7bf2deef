"""`Commits`: the commits of one member of a consumer group, under each of the guarantees.

By default, a position is committed after the records before this position are done. With a database (``offsets=``), the
database saves a position first, and Kafka afterwards. With ``output=``, a Kafka transaction commits positions and
outputs together (`OutputCommits`). With "at_most_once", brokers have to confirm the commit of a record before the
handler is called for the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base.failpoints import hit
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.lanes import Unit
from streamapp.consumer.offset_sinks import SinkFenced
from streamapp.consumer.output_commits import OutputCommits
from streamapp.consumer.outputs import HandlerOutputs
from streamapp.consumer.sinking import Sinking
from streamapp.engine.judging import short
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["Commits"]

logger: logging.Logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
_PASSING = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._NO_OFFSET,
    KafkaError._STATE,
    KafkaError._ASSIGNMENT_LOST,
)


class Commits:
    """The commits of a consumer. The polling thread calls `commit` and `serve`, other threads `commit_first`."""

    def __init__(
        self,
        options: ConsumeOptions,
        dispatcher: Dispatcher,
        sinking: Sinking | None,
        outputs: HandlerOutputs | None,
        client: Callable[[], Consumer],
    ) -> None:
        self._options, self._dispatcher, self._sinking = options, dispatcher, sinking
        self._outputs = None if outputs is None else OutputCommits(options, outputs, dispatcher, client)
        self._client = client
        self._requests: SimpleQueue[tuple[set[TopicPartition], Future[bool]]] = SimpleQueue()
        self._with_metadata = True
        self._refused = False

    def refuse(self) -> None:
        """Answers all waiting calls of `commit_first` with "not committed", because the polling thread is about to
        end."""
        self._refused = True
        while not self._requests.empty():
            self._requests.get()[1].set_result(False)

    def commit(self, sources: Collection[TopicPartition] | None = None) -> bool:
        """Commits the partitions whose position has changed.

        Returns False if a position could not be committed. The next call tries again, unless the error has ended the
        consumer.
        """
        if self._outputs is not None:
            return self._outputs.commit(sources)
        positions = self._dispatcher.positions(sources)
        if self._sinking is not None:
            positions = self._save(self._sinking, positions)
        return self._commit(positions)

    def settle(self) -> None:
        """Finds out if the last transaction of `OutputCommits` was committed, if this is not known. Ends a transaction
        that is still open.

        While a transaction is open, brokers do not tell the committed positions of its partitions.
        """
        if self._outputs is not None:
            self._outputs.settle()

    def close(self) -> None:
        """Closes the client for transactions after the last commit."""
        if self._outputs is not None:
            self._outputs.close()

    def _save(
        self, sinking: Sinking, positions: Mapping[TopicPartition, tuple[int, str]]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Saves positions in the database, as far as no transaction of a handler has saved them yet. Returns all saved
        positions.

        A skipped record, or one that became a dead letter, changes the position without a transaction of the handler.
        """
        saved = {}
        for source, position in positions.items():
            partition = self._dispatcher.partition(source)
            if partition is None:
                continue
            try:
                if partition.saved != position:
                    sinking.commit(partition, (), lambda items, connection: None)
                saved[source] = position
            except SinkFenced:
                self._dispatcher.forget([source])
            except sinking.sink.errors as exc:
                logger.warning("%s: %s is not saved: %s", self._options.name, source, short(exc))
        return saved

    def _commit(self, positions: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        if not positions:
            return True
        exact = self._options.guarantee == "at_most_once"
        offsets = [
            KafkaPartition(*source, offset, metadata if self._with_metadata else "")
            for source, (offset, metadata) in positions.items()
        ]
        try:
            found: Any = self._client().commit(offsets=offsets, asynchronous=False)
            errors = [each.error for each in found if each.error is not None]
        except KafkaException as exc:
            errors = [exc.args[0]]
        if not errors:
            hit("consumer-committed")
            self._dispatcher.committed(positions)
            return True
        if errors[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE and self._with_metadata and not exact:
            logger.warning(
                "%s: brokers take no metadata of this size (offset.metadata.max.bytes); a restart repeats records "
                "behind the first that is not done",
                self._options.name,
            )
            self._with_metadata = False
            return self._commit(positions)
        if errors[0].code() not in _PASSING and not errors[0].retriable():
            self._dispatcher.fail(BrokerError(f"{self._options.name} cannot commit: {errors[0].str()}"))
        else:
            logger.info("%s: not committed yet: %s", self._options.name, errors[0].str())
        return False

    def commit_first(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """For "at_most_once": commits the records of the units before the handler is called. Returns the units whose
        records are committed.

        If the commit of a unit is not certain, the unit is left out, and its records may be read again later.
        """
        waiting = list(units)
        while waiting and self._dispatcher.failure is None and not self._refused:
            done: Future[bool] = Future()
            self._requests.put(({unit.partition.source for unit in waiting}, done))
            self._dispatcher.wake()
            try:
                certain = done.result(_ANSWER_SECONDS)
            except TimeoutError:
                certain = False
            waiting = [unit for unit in waiting if self._dispatcher.owns(unit.partition)]
            if certain:
                return waiting
        return []

    def serve(self) -> None:
        """Makes the commits for which other threads wait in `commit_first`."""
        while not self._requests.empty():
            sources, done = self._requests.get()
            done.set_result(self.commit(sources))
