"""Fills the global stores of this process: first up to the end of their topics, then with each new record.

No task starts before the end is reached, because joins with a half-filled store would miss rows.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection

from confluent_kafka import KafkaError

from streamapp._base.counted import counted
from streamapp.broker.lasting_consumer import LastingConsumer, open_consumer
from streamapp.broker.log_ends import LogEnds
from streamapp.broker.removed_records import RemovedRecords, tell_removed
from streamapp.broker.requests import LastingAdmin
from streamapp.engine.global_letters import NO_WRITER, GlobalLetters, makes_letters
from streamapp.engine.global_state import GlobalState
from streamapp.errors import BrokerError, ConfigError, TopologyError
from streamapp.records import OutputRecord, RecordBatch, TopicPartition
from streamapp.runners.topic_ids import TopicIds
from streamapp.runners.worker.clients import (
    PATIENCE_SECONDS,
    consumer_settings,
    find_committed,
    list_offsets,
    pass_over,
)
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.livetask import now_ms
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.status import InputInfo
from streamapp.runners.worker.topics import Topics
from streamapp.state.row_memory import RowMemory
from streamapp.topology.plan import Plan

__all__ = ["GlobalStores"]

logger: logging.Logger = logging.getLogger(__name__)

_BATCH = 10_000
_LOOK_SECONDS = 1.0
"""While too many dead letters wait, the time after which this worker looks if another worker has written them."""
_AGAIN_SECONDS = 3_600.0
"""The time after which the positions of letters are committed again, because brokers delete old offsets (KIP-211)."""


class GlobalStores:
    """The global stores, in memory, with a consumer of their own, which reads all partitions of their topics.

    Every worker reads the same records. So only the worker with the application's first task writes the dead letters of
    global stores (`GlobalLetters`).
    """

    def __init__(
        self, plan: Plan, admin: LastingAdmin, topics: Topics, rows: RowMemory, listeners: ListenerCalls
    ) -> None:
        self._listeners = listeners
        self._stores = {store.topic: store.name for store in plan.global_stores}
        self._letters = GlobalLetters()
        self._makes_letters = makes_letters(plan)
        self._writer = TaskId(min(topics.sources, default=0), 0)
        self._full = False
        self._committed_at = self._looked_at = time.monotonic()
        self._config, self._admin = plan.config, admin
        self.state: GlobalState = GlobalState(
            plan,
            wall_clock_ms=now_ms,
            rows=rows,
            letters=self._letters.take if plan.subtopologies else _refuse_letter,
        )
        self.removed: RemovedRecords = RemovedRecords()
        self._missing: dict[TopicPartition, int] = {}
        """Partition -> the end that has to be reached before tasks may start."""
        self._first: dict[TopicPartition, int] = {}
        """Partition -> the first offset of a restore whose begin the listener does not know yet."""
        self._restored: Counter[TopicPartition] = Counter()
        self._unbegun: dict[TopicPartition, float] = {}
        """The partitions of which nothing could be read yet, without a leader -> the time of the first look."""
        self._told = ""
        """The partitions without a leader of which the log has told."""
        self._ends, self._unread_ends = LogEnds(admin), LogEnds(admin)
        self._consumer: LastingConsumer | None = None
        self._ids = TopicIds(admin, self.state.topics)
        self._counts = {topic: topics.partitions[topic] for topic in self.state.topics}
        self._partitions = partitions = [
            TopicPartition(topic, p) for topic in self.state.topics for p in range(topics.partitions[topic])
        ]
        if partitions:
            self._consumer = open_consumer(consumer_settings(plan.config, "global"), self._ends.look)
            self._learn()
            self._consumer.assign(self._begin(partitions))

    @property
    def ready(self) -> bool:
        """True if the stores have all records that were in their topics when the worker started."""
        return not self._missing and not self._unbegun

    @property
    def at(self) -> str | None:
        """The record that the stores take now, for an error. None: no record."""
        return self.state.at

    @property
    def inputs(self) -> tuple[InputInfo, ...]:
        """The positions in the global topics, and their ends. Any thread may ask."""
        consumer = self._consumer
        if consumer is None:
            return ()
        positions = {tp: consumer.position(tp) for tp in self._partitions}
        return tuple(InputInfo(tp, at, consumer.ends.get(tp), 0) for tp, at in positions.items() if at >= 0)

    @property
    def stalled(self) -> str | None:
        """The reason why rows of the stores are out of date: nothing arrives of a topic. None: the stores keep up."""
        stalled = None if self._consumer is None else self._consumer.stalled
        return stalled and f"the global topic {stalled}, and nothing arrives from the broker"

    @property
    def leaderless(self) -> str | None:
        """The partitions without a leader, in words. None: all have leaders. Any thread may ask."""
        lacking = self._ends.leaderless.union(dict(self._unbegun))
        return (
            f"the global tables wait for a leader of {', '.join(map(str, sorted(lacking)))}"
            if lacking
            else None
        )

    def _begin(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of partitions, which are read from now on. Partitions without a leader wait."""
        unled: set[TopicPartition] = set()
        first = list_offsets(self._admin, partitions, latest=False, leaderless=unled)
        end = list_offsets(self._admin, first, latest=True, leaderless=unled)
        now = time.monotonic()
        waiting = {tp: self._unbegun.get(tp, now) for tp in (self._unbegun.keys() - end.keys()) | unled}
        begun = {tp: end[tp] for tp in end if first[tp] < end[tp]}
        self._missing |= begun
        self._first |= {tp: first[tp] for tp in begun}
        self._unbegun = waiting
        return {tp: first[tp] for tp in end}

    def _look_for_leaders(self, consumer: LastingConsumer) -> None:
        """Begins to read partitions that have a leader again. Raises `BrokerError` after five minutes without one.

        No table is complete without all its partitions. So the start waits, as in Kafka Streams (``task.timeout.ms``).
        """
        if led := self._unread_ends.look(self._unbegun):
            consumer.add(self._begin(list(led)))
        lacking = self.leaderless or ""
        if lacking != self._told:
            if lacking:
                logger.warning("%s%s", lacking, "" if self.ready else ". No task starts before")
            else:
                logger.info("the global tables have leaders again")
            self._told = lacking
        seconds = time.monotonic() - min(self._unbegun.values(), default=math.inf)
        if seconds > PATIENCE_SECONDS:
            listed = ", ".join(map(str, sorted(self._unbegun)))
            raise BrokerError(
                f"the global tables cannot be read: {listed} has had no leader for {seconds:.0f} s. Start the brokers "
                "that have its replicas"
            )

    def poll(self, timeout: float) -> None:
        """Applies records that have arrived to the stores. Waits up to ``timeout`` seconds for a first record.

        Raises `BrokerError` if a topic was deleted and created anew, has lost records at its end, or cannot be read.
        The same error comes if a partition has no leader in the first five minutes.
        Raises `TopologyError` if a topic has more partitions than at the start of the worker.
        """
        if self._consumer is None:
            return
        lost = self._ids.lost()
        if lost is not None and lost.anew:
            raise _recreated(lost.topic)
        for topic, count in self._counts.items():
            if (now := self._ids.partitions.get(topic, count)) > count:
                raise TopologyError(
                    f"the global topic {topic} had {counted(count, 'partition')} when this worker started, and has "
                    f"{now} now, so its table lacks rows. Restart this worker, which then reads all partitions"
                )
        self._look_for_leaders(self._consumer)
        self._hold_back(self._consumer)
        self._tell_starts()
        batches, events = self._consumer.poll(_BATCH, timeout)
        for tp, batch in batches:
            self.state.process(tp, batch)
            self._tell_batch(tp, batch)
            self._reached(tp, batch.offsets[-1] + 1)
        for tp, offset, error in events:
            if error.code() == KafkaError._PARTITION_EOF:
                self._reached(tp, offset)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._go_on_where_there_are_records(self._consumer, tp)
            else:
                pass_over(error, tp, "the global topic")

    def _go_on_where_there_are_records(self, consumer: LastingConsumer, tp: TopicPartition) -> None:
        """Moves a position whose records retention has deleted, to the first record that is left.

        Raises `BrokerError` for a position beyond the end: the rows in the store are not those of the topic.
        """
        position = consumer.position(tp)
        # Without a leader, nothing moves: the next leader refuses the position again.
        first = list_offsets(self._admin, [tp], latest=False, leaderless=set()).get(tp, position)
        if position > first:
            raise _recreated(tp.topic)
        if self.removed.note(tp, position, first):
            tell_removed(tp, position, first, first)
        consumer.remove([tp])
        consumer.add({tp: first})

    # Dead letters.

    def opened(self, tasks: Collection[TaskId]) -> None:
        """Notes that this worker opens tasks.

        With the application's first task, for example ``0_0``, this worker becomes the writer of the global stores'
        dead letters. Another worker may have written letters before, so this worker begins after the last written
        letter.
        """
        if self._writer in tasks:
            self._learn()

    def letters(self, tasks: Collection[TaskId]) -> GlobalLetters | None:
        """The dead letters for the next commit, if this worker runs the first task. None: there is nothing to commit.

        After an hour without letters, the positions of the last letters are committed again, because brokers delete old
        offsets (KIP-211).
        """
        if self._writer not in tasks:
            return None
        old = bool(self._letters.written) and time.monotonic() - self._committed_at >= _AGAIN_SECONDS
        return self._letters if self._letters or old else None

    def presses(self, tasks: Collection[TaskId]) -> bool:
        """True if this worker must commit dead letters before it can read further global records."""
        return self._full and self._writer in tasks

    def letters_written(self) -> None:
        """Notes that the dead letters are committed."""
        self._committed_at = time.monotonic()
        self._letters.learn(self._letters.positions)

    def _learn(self) -> None:
        """Asks the group which dead letters are written. The method leaves out a position after the end of its log,
        because the topic was deleted and created anew."""
        if self._makes_letters and self._partitions:
            self._looked_at = time.monotonic()
            found = find_committed(self._config, self._partitions, PATIENCE_SECONDS, self._consumer)
            ends = list_offsets(self._admin, self._partitions, latest=True, leaderless=set())
            self._letters.learn(
                {tp: offset for tp, (offset, _) in found.items() if 0 < offset <= ends.get(tp, offset)}
            )

    def _hold_back(self, consumer: LastingConsumer) -> None:
        """Pauses the consumer while too many dead letters wait, so that they do not fill the memory."""
        if self._full and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._learn()
        if self._full == self._letters.full:
            return
        self._full = self._letters.full
        for tp in self._partitions:
            if tp in self._unbegun:
                continue
            if self._full:
                consumer.pause(tp)
            else:
                consumer.resume(tp)
        if self._full:
            logger.warning(
                "many records of global tables have failed: the rest is read when their dead letters are written, by "
                "the worker that has task %s",
                self._writer,
            )

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self.state.close()

    def _reached(self, tp: TopicPartition, position: int) -> None:
        if self._missing and position >= self._missing.get(tp, position + 1):
            del self._missing[tp]
            self._listeners.tell(
                self._listeners.restores.on_restore_end, tp, self._stores[tp.topic], self._restored.pop(tp, 0)
            )
            if self.ready:
                logger.info("the global stores are complete")

    def _tell_starts(self) -> None:
        # The thread of the data plane calls listeners, and another thread makes this object.
        first, self._first = self._first, {}
        for tp, offset in first.items():
            self._listeners.tell(
                self._listeners.restores.on_restore_start,
                tp,
                self._stores[tp.topic],
                offset,
                self._missing[tp],
            )

    def _tell_batch(self, tp: TopicPartition, batch: RecordBatch) -> None:
        count = bisect_left(batch.offsets, self._missing[tp]) if tp in self._missing else 0
        if count:
            self._restored[tp] += count
            self._listeners.tell(
                self._listeners.restores.on_batch_restored,
                tp,
                self._stores[tp.topic],
                batch.offsets[count - 1],
                count,
            )


def _refuse_letter(source: TopicPartition, offset: int, letter: OutputRecord) -> None:
    """Raises `ConfigError`, which ends the worker: a letter that nobody writes would be lost."""
    raise ConfigError(
        f"a function has made a dead letter of the record of {source} at offset {offset}, but {NO_WRITER}"
    )


def _recreated(topic: str) -> BrokerError:
    return BrokerError(
        f"the global topic {topic} was deleted and created anew, or has lost records: its table has rows that the "
        "topic does not have. Restart this worker, which then reads the whole topic again"
    )
