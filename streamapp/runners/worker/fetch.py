"""Fetches the inputs of the running tasks with one librdkafka consumer in assign mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from confluent_kafka import KafkaError

from streamapp._base.offset_reset import OffsetReset
from streamapp.broker.consumer import ConsumerEvent, lost_at_end
from streamapp.broker.lasting_consumer import open_consumer
from streamapp.broker.leader_epochs import ReadEnd
from streamapp.broker.librdkafka import COMPILED
from streamapp.broker.log_ends import LogEnds
from streamapp.broker.removed_records import RemovedRecords
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import epoch_in, with_epoch
from streamapp.engine.runner_ports import Position
from streamapp.records import TopicPartition
from streamapp.runners.first_offsets import FirstOffsets, check_kept
from streamapp.runners.worker.clients import (
    PATIENCE_SECONDS,
    consumer_settings,
    find_committed,
    list_offsets,
    offset_at,
    pass_over,
)
from streamapp.runners.worker.kept_records import check_read_records
from streamapp.runners.worker.livetask import LiveTask, now_ms

__all__ = ["Fetcher"]

logger: logging.Logger = logging.getLogger(__name__)

_BATCH = 10_000
_MAX_BUFFERED = 20_000
"""An input is paused when more than this number of its records wait in a task. An input is also paused when all
waiting records take too much memory."""
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""The errors of a topic that was deleted."""


class Fetcher:
    """Fetches the inputs of tasks, and gives their records to the tasks.

    With streamapp's library in C, records of ``repartition_topics`` come first. Otherwise they wait behind all records
    of other topics that librdkafka has fetched ahead.

    If the log lacks the records at a position, the fetcher first calls ``confirm_member``. This function raises
    `StaleMemberError` if the group has given the partitions to other members, which may have purged the log.
    ``reset_of`` gives the offset reset policy of a topic. ``first_new`` are the `first_new_partitions`.
    ``check_offsets`` gets the group's offsets with their metadata, and returns the partitions whose offset another tool
    has set. The function raises `TopologyError` if tables with rows do not fit such an offset. A topic that ``may_go``
    may be deleted while tasks read it: no more records of the topic arrive then.
    """

    def __init__(
        self,
        config: StreamsConfig,
        admin: LastingAdmin,
        confirm_member: Callable[[], None],
        reset_of: Callable[[str], OffsetReset],
        first_new: Mapping[str, int],
        check_offsets: Callable[[Mapping[TopicPartition, tuple[int, str]]], Collection[TopicPartition]],
        repartition_topics: Collection[str] = (),
        may_go: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self._confirm_member = confirm_member
        self._check_offsets = check_offsets
        self._may_go = may_go
        self._config = config
        self._admin = admin
        self._first_offsets = FirstOffsets(
            config.application_id, reset_of, partial(offset_at, admin), first_new
        )
        self._chosen: dict[TopicPartition, int] = {}
        """Offsets that the policy has chosen, until the group has offsets of these partitions. If tasks begin again
        before their first commit, they begin here, too."""
        settings = consumer_settings(config)
        self._log_ends, ends = LogEnds(admin), self._look_at_ends
        if repartition_topics and COMPILED:  # other clients have one queue
            # librdkafka applies this limit to each of its two queues.
            settings["queued.max.messages.kbytes"] = max(1, settings["queued.max.messages.kbytes"] // 2)
            self._consumer = open_consumer(settings, ends, lambda topic: topic not in repartition_topics)
        else:
            self._consumer = open_consumer(settings, ends)
        if not COMPILED:
            logger.info(
                "streamapp was installed without a C compiler: each record costs about a microsecond more"
            )
        self._task_of: dict[TopicPartition, LiveTask] = {}
        self._next: dict[TopicPartition, int] = {}
        self._unplaced: set[TopicPartition] = set()
        """Inputs without a position, because the group has no offset in them, and they have no leader."""
        self._paused: set[TopicPartition] = set()
        self._at_end: set[TopicPartition] = set()
        self.polled_ms: int | None = None
        """The time of the last `poll`. None: there was no poll."""
        self.removed: RemovedRecords = RemovedRecords()
        """Records that were gone before this fetcher could read them."""
        self.ends: dict[TopicPartition, int] = {}
        """The ends of the logs of the inputs, as far as they are known."""
        self.without_offset: set[TopicPartition] = set()
        """The partitions for which the last call of `committed` has found no offset."""
        self.asks: bool = False
        """True while `committed` waits for brokers."""
        self.to_commit: set[TopicPartition] = set()
        """Partitions whose begin has to be committed before their first record.

        For some of `without_offset`, a later start would choose another begin (`FirstOffsets.moves`). A later start
        would also refuse an offset that another tool has set, because tables have rows by then.
        """

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The positions at which tasks begin: the group's committed positions.

        The offset reset policy chooses a position if the group has committed none, or if retention has deleted the
        records at the committed position. The policy needs the leader of a partition. So the result lacks a partition
        in which the group has no offset, while the partition has no leader. `placeable` tells when to ask again. A
        committed position needs no leader: brokers refuse a wrong one at the first fetch.

        The call waits until no open transaction can still commit offsets of these partitions. Raises `BrokerError`
        after five minutes, and the errors of ``check_offsets``, `FirstOffsets.of` and `check_read_records`.
        """
        self.asks = True
        try:
            return self._committed(partitions)
        finally:
            self.asks = False

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        unled: set[TopicPartition] = set()
        look = partial(list_offsets, self._admin, may_go=self._may_go, leaderless=unled)
        first = look(partitions, latest=False)
        end = look(first, latest=True)
        self.ends.update(end)
        result, ends = {}, {}
        found = find_committed(self._config, partitions, PATIENCE_SECONDS, self._consumer)
        self.without_offset = {tp for tp, (offset, _) in found.items() if offset < 0}
        begun = self.without_offset & end.keys()
        moves = {tp for tp in begun if self._first_offsets.moves(tp.topic)}
        self.to_commit = moves.union(self._check_offsets(found))
        # Records of a transaction that is open now come later, for readers of committed records.
        stable = look(moves, latest=True, stable=True)
        for tp, (offset, metadata) in found.items():
            wanted = max(offset, self._chosen.get(tp, -1))
            self._unplaced.discard(tp)
            if tp in unled:
                if wanted < 0:
                    self._unplaced.add(tp)
                    self.ends.pop(tp, None)
                    continue
                if offset < 0:
                    self.to_commit.add(tp)
                self._next[tp] = wanted
                self._begin_behind(tp, wanted, metadata)
                result[tp] = Position(wanted if offset < 0 else offset, metadata)
                continue
            if tp not in end:  # the topic is deleted
                self._next[tp] = max(offset, 0)
                result[tp] = Position(self._next[tp], metadata)
                continue
            if offset >= 0:
                self._chosen.pop(tp, None)
            begin = self._next[tp] = self._first_offset(tp, wanted, first[tp], stable.get(tp, end[tp]))
            if tp in moves:
                self._chosen[tp] = begin
            elif offset >= first[tp] and (read := self._begin_behind(tp, offset, metadata)) is not None:
                ends[tp] = read
            result[tp] = Position(begin if offset < 0 else offset, metadata)
        check_read_records(self._config, ends)
        return result

    def _begin_behind(self, tp: TopicPartition, offset: int, metadata: str) -> ReadEnd | None:
        """Notes the leader epoch of the record before a committed offset, and returns the end of the record."""
        if (end := epoch_in(metadata, tp, offset)) is not None:
            self._consumer.epochs.begin(tp, end)
        return end

    def with_epoch(self, tp: TopicPartition, position: Position) -> Position:
        """The position of a commit, with the leader epoch of the last record before it in the metadata."""
        end = self._consumer.epochs.before(tp, position.offset)
        return position._replace(metadata=with_epoch(position.metadata, tp, position.offset, end))

    def _go_on_where_there_are_records(self, tp: TopicPartition, lost: range | None) -> None:
        """Moves a position whose records were deleted from the log.

        Raises `StaleMemberError` if other workers have the tasks now, because these may have purged the log. Otherwise
        the offset reset policy chooses the position (`FirstOffsets.of`, with its errors).
        Raises `TaskCorruptedError` if the log has ``lost`` records at its end.
        """
        self._confirm_member()
        check_kept(self._config.application_id, tp, lost)
        first = list_offsets(self._admin, [tp], latest=False, leaderless=set())
        end = list_offsets(self._admin, first, latest=True, stable=True, leaderless=set())
        if tp in end:  # the next leader refuses the position again
            self._next[tp] = self._first_offset(tp, self._next[tp], first[tp], end[tp])
        self._restart(tp)

    def _first_offset(self, tp: TopicPartition, offset: int, first: int, end: int) -> int:
        begin = self._first_offsets.of(tp, offset, first, end)
        if offset >= 0:
            self.removed.note(tp, offset, begin)
        return begin

    def assign(self, tasks: Iterable[LiveTask]) -> None:
        """Fetches for exactly these tasks from now on.

        The fetch of a new input begins at the position of its task. For an input that was fetched before, the fetch
        continues where it ended.
        """
        self._task_of = {tp: live for live in tasks for tp in live.inputs}
        for tp, live in self._task_of.items():
            self._next.setdefault(tp, live.starts[tp])
        self._paused.clear()
        self._at_end.clear()
        self._consumer.assign({tp: self._next[tp] for tp in self._task_of})

    def poll(self, timeout: float) -> list[LiveTask]:
        """Hands records that have arrived to the tasks, and returns these tasks.

        Waits up to ``timeout`` seconds for a first record.
        """
        batches, events = self._consumer.poll(_BATCH, timeout)
        self.polled_ms = now_ms()
        fed = []
        for tp, batch in batches:
            live = self._task_of.get(tp)
            if live is not None:
                self._at_end.discard(tp)
                self._next[tp] = batch.offsets[-1] + 1
                live.task.enqueue(tp, batch)
                fed.append(live)
        for event in events:
            self._on_event(event)
        return fed

    def wake(self) -> None:
        """Ends the wait of the current `poll`, or else of the next one. Other threads call this method."""
        self._consumer.wake()

    def caught_up(self, live: LiveTask) -> Collection[TopicPartition] | None:
        """The inputs that were read to their end, of this and other tasks. None: the task waits for no input."""
        if len(live.inputs) == 1 or self._config.max_task_idle_ms < 0:
            return None
        return self._at_end

    @property
    def at_end(self) -> bool:
        """True if all records of the inputs were fetched, as far as their ends are known."""
        return all(self._next[tp] >= self.ends.get(tp, -1) for tp in self._task_of)

    def apply_back_pressure(self, busy: Iterable[LiveTask]) -> None:
        """Pauses inputs with too many waiting records, and resumes them later.

        ``busy`` are the tasks in which records wait. Records wait while another input of the task, an asynchronous step
        or a retry holds them back. An input without waiting records is never paused, since the other inputs wait for
        its records.
        """
        holding = [live for live in busy if live.task.holds_back]
        waiting = dict.fromkeys(self._paused, 0)
        for live in holding:
            waiting.update(live.task.buffered)
        size = sum(sum(live.task.buffered_bytes.values()) for live in holding)
        most = self._config.memory.waiting
        for tp, count in waiting.items():
            if tp not in self._task_of:
                continue
            if tp not in self._paused:
                if count > _MAX_BUFFERED or (count and size > most):
                    self._consumer.pause(tp)
                    self._paused.add(tp)
            elif not count or (count < _MAX_BUFFERED // 2 and size < most // 2):
                self._consumer.resume(tp)
                self._paused.discard(tp)

    def refresh_ends(self) -> None:
        """Notes the end offsets of all inputs for other threads, also of inputs that are not polled or not read now.

        An end is the larger one of two: the end that came with the last fetch, and the end that brokers have told. Only
        the data plane's thread may call this method. Other threads may call no methods of the consumer except `wake`,
        `look_beside` and `behind_others`.
        """
        self._consumer.look()  # and so `_look_at_ends`
        ends = {tp: self._consumer.end(tp) for tp in self._task_of}
        self._note_ends({tp: end for tp, end in ends.items() if end >= 0})

    def refresh_ends_beside(self) -> None:
        """Notes the ends of the logs that brokers have told. Another thread calls this while the data plane is held up.

        So the lag that users see follows the ends. The data plane itself uses the new ends when it goes on.
        """
        self._consumer.look_beside()

    def _look_at_ends(self, read: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Notes and returns the ends that brokers have told.

        The consumer does not ``read`` all inputs now, because of a rebalance, a restore or a missing leader.
        """
        found = self._log_ends.look({*read, *list(self._next), *list(self._unplaced)})
        self._note_ends(found)
        return found

    def _note_ends(self, found: Mapping[TopicPartition, int]) -> None:
        for tp, end in found.items():
            self.ends[tp] = max(end, self.ends.get(tp, -1))

    def _restart(self, tp: TopicPartition) -> None:
        self._paused.discard(tp)
        self._at_end.discard(tp)
        self._consumer.remove([tp])
        self._consumer.add({tp: self._next[tp]})

    def read_up_to(self, tp: TopicPartition) -> int:
        """The next offset to fetch, behind the last record and the markers that follow."""
        return self._next.get(tp, -1)

    @property
    def leaderless(self) -> frozenset[TopicPartition]:
        """The inputs that had no leader at the last two looks. Any thread may ask."""
        return self._log_ends.leaderless

    def placeable(self, tp: TopicPartition) -> bool:
        """True if a partition that `committed` has left out has a leader again."""
        return tp in self.ends

    def behind_others(self, tp: TopicPartition) -> bool:
        """True if no record of an input arrives because records of other inputs are in front. Any thread may ask."""
        return self._consumer.behind_others(tp)

    def forget(self, tasks: Iterable[LiveTask]) -> None:
        """Forgets the positions of these tasks. If the tasks come back, reading begins at the committed positions."""
        for live in tasks:
            for tp in live.inputs:
                self._next.pop(tp, None)
                self._consumer.epochs.forget(tp)
                self._unplaced.discard(tp)

    def close(self) -> None:
        self._consumer.close()

    def _on_event(self, event: ConsumerEvent) -> None:
        tp, offset, error = event
        if error.code() == KafkaError._PARTITION_EOF:
            # The event may be older than the records that came with the event. Then the log may have more records.
            if tp in self._task_of and offset >= self._next[tp]:
                self._at_end.add(tp)
                self._next[tp] = self.ends[tp] = offset
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            if tp in self._task_of:
                self._go_on_where_there_are_records(tp, lost_at_end(error))
        elif not (error.code() in _UNKNOWN and self._may_go(tp.topic)):
            pass_over(error, tp)
