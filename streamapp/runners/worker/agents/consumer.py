"""The consumer of agents: Faust's consumer, changed to read only committed records, and to commit only finished ones.

Faust's own bookkeeping expects offsets without gaps. Logs have gaps, from transaction markers and compaction, so Faust
may commit past records that agents still process. This consumer instead counts the records that it gives to agents
(`Progress`). If a rebalance has given a partition to another member, brokers refuse this consumer's commits for the
partition.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Set
from contextlib import suppress
from typing import Any, ClassVar

from aiokafka.errors import IllegalStateError, KafkaError, TopicAuthorizationFailedError
from confluent_kafka import KafkaError as RdKafkaError
from faust.streams import current_event
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, EventT
from mode import Service

from streamapp._base.counted import counted
from streamapp.broker.leader_epochs import LeaderEpochs
from streamapp.broker.removed_records import RemovedRecords, tell_removed
from streamapp.engine.judging import record_at, said
from streamapp.engine.runner_ports import Position
from streamapp.errors import BrokerError, StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.topic_ids import TopicIds
from streamapp.runners.worker.agents.committed_offsets import DueOffsets, GroupOffsets
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread
from streamapp.runners.worker.agents.finished import Progress
from streamapp.runners.worker.agents.leaders import Leaders
from streamapp.runners.worker.agents.sends import AgentProducer
from streamapp.runners.worker.agents.subscriptions import AgentConductor
from streamapp.runners.worker.agents.topics import changelogs_of_agents, topics_of_agents
from streamapp.runners.worker.agents.transaction import AgentTransactions
from streamapp.runners.worker.clients import (
    admin_client,
    cannot_be_read,
    list_offsets,
)
from streamapp.runners.worker.leftovers import tell_left_by_agents
from streamapp.runners.worker.membership import FaustMembership, Member, StaleMemberError
from streamapp.runners.worker.status import InputInfo

__all__ = ["AgentConsumer", "AgentTransport"]

logger: logging.Logger = logging.getLogger(__name__)

_FINISH_SECONDS = 10.0
"""The longest time that a rebalance waits for agents to finish their records, and that a commit is tried again."""
_VERIFY_SECONDS = 30.0
"""The time between two checks for partitions that do not move. Each check may log a line for each of them."""
_CATCH_UP_SECONDS = 0.02
"""The pause between two checks if transactions have caught up with the agents."""
_LOOK_SECONDS = 1.0
"""The pause between two looks at the leaders of the agents' partitions."""


class _NoOffsets(dict[TP, Any]):
    """A dict that keeps nothing, in the place of Faust's dict of the last offsets that were read.

    With its own dict, Faust drops a record that comes again. But after a partition is set back, its records come again,
    and agents must process them.
    """

    def __getitem__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: Any) -> None:
        """Does nothing."""

    def update(self, *_: Any, **__: Any) -> None:
        """Does nothing."""


class AgentConsumer(driver.Consumer):  # type: ignore[misc]
    def __init__(self, transport: Any, callback: Any, *args: Any, **kwargs: Any) -> None:
        self._pass_on = callback
        super().__init__(transport, self._hand_out, *args, **kwargs)
        self._membership = FaustMembership(self.app)
        self._member: Member | None = None
        self._progress: defaultdict[TP, Progress] = defaultdict(Progress)
        self._placed: set[TP] = set()
        """Partitions that were set to the group's position since the last rebalance."""
        self._leaders = Leaders(self.app.config)
        self._too_early: dict[TP, int] = {}
        """The offset of the first record that was fetched before its partition was set to the group's position."""
        self._begun: dict[TP, int] = {}
        """The positions at which reading began, and which have to be committed: those at the ends of logs, and those
        without metadata."""
        self._limits: dict[TP, int] | None = None
        """The last positions that may be committed, after a failure or when the worker stops. None: no limits."""
        self._read_offset = _NoOffsets()
        self._fetching = asyncio.Lock()
        self._turn = 0
        """The number of times that all partitions were set to the group's positions."""
        self._batch = 0
        """The value of ``_turn`` when the last fetch began."""
        self._seamless = False
        """True if each fetch of this turn has got its answer. The records of a lost answer would look like a gap."""
        self._dropped: Counter[tuple[TP, int]] = Counter()
        """Record -> the number of agents that never get it, since handing out has ended; `finish` ignores them."""
        self._given_up = False
        """True after a commit that has failed for good."""
        self._behind = False
        """True if the last transaction did not take all finished records, or was rolled back."""
        self._committing = asyncio.Lock()
        self._transactions = AgentTransactions(self.app.config) if self.app.config.exactly_once else None
        self._opened = False
        self._verified_at = 0.0
        self._group = GroupOffsets(self.app)
        self._looked_for_left = False
        """True after the first look for records that an earlier version has left."""
        self._topic_ids: TopicIds | None = None
        """Watches all topics that agents have read."""
        self.skipped: Counter[str] = Counter()
        """Topic -> the records that were dropped after an error, without a dead letter."""
        self.dead: Counter[str] = Counter()
        """Topic -> the records that became dead letters."""
        self.removed: RemovedRecords = RemovedRecords()
        """Records that were gone before agents could read them."""
        self.fetches: int = 0
        """The number of fetches that have begun. The records of all fetches but the last one are handed on."""

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records that agents get."""
        return self._group.epochs

    def _new_consumer_thread(self) -> AgentConsumerThread:
        return AgentConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # Records.

    async def _hand_out(self, message: Any) -> None:
        tp = message.tp
        if not self.app.client_only and self._is_plain(tp):
            while self._behind and tp in self._placed and not self.should_stop:
                await asyncio.sleep(_CATCH_UP_SECONDS)
            if tp not in self._placed or self._batch != self._turn:
                return  # fetched before the partition was set to the group's position; the record comes again
            if not self._progress[tp].hand_out(message.offset):
                return
        await self._pass_on(message)

    def has(self, message: Any) -> bool:
        """True if the record was fetched since the last rebalance. Earlier records may belong to another worker now."""
        return self._member is not None and message.generation_id == self._member.generation

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Does nothing: `Progress` needs no gaps."""

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        async with self._fetching:
            if self._leaders.found:
                await self._place_late()
            self.fetches += 1
            self._batch = self._turn
            seamless, self._seamless = self._seamless, False
            try:
                records = await super()._getmany(active_partitions, timeout)
            except TopicAuthorizationFailedError as exc:
                # Faust would end the worker with the bare error of aiokafka.
                refused = RdKafkaError(RdKafkaError.TOPIC_AUTHORIZATION_FAILED)
                await self.fail(
                    cannot_be_read(f"the topic {exc.args[0]}, of agents or their tables,", refused), None
                )
                return {}
            self._seamless = seamless
            if seamless:
                self._note_read(records)
        for tp in records.keys() - self._placed:
            self._too_early.setdefault(tp, records[tp][0].offset)
        return records

    def _note_read(self, records: Mapping[Any, Any]) -> None:
        """Notes how far the partitions are read, so that commits pass over the markers behind the last record.

        Otherwise Kafka's own tools would show a lag of the group although all records are processed.
        """
        for tp in self._placed:
            found = records.get(tp)
            self._progress[tp].read(found[-1].offset if found else None, self._thread.fetched_up_to(tp)[0])

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:
        """Fetches once. The answer has no records (None) if the flow of records has stopped meanwhile.

        Faust would then set all partitions to the group's positions, in the middle of a rebalance. After the rebalance,
        Faust drops records of partitions that it has paused, and `_hand_out` would not miss these records.
        """
        records, active = await super()._wait_next_records(timeout)
        return records if self.flow_active else None, active

    @property
    def is_member(self) -> bool:
        """True while this worker has partitions for its agents, or has joined the group without getting any."""
        return self._member is not None

    @property
    def inputs(self) -> tuple[InputInfo, ...]:
        """The partitions that agents read. ``buffered`` records went to agents, and are not finished.

        ``position`` is the first offset that is not finished. Any thread may ask.
        """
        return tuple(map(self._input, self._read_here()))

    @property
    def missing_topics(self) -> list[str]:
        """The topics that this worker reads, and that brokers have not told. Any thread may ask."""
        missing: list[str] = self._thread.missing_topics
        return missing

    @property
    def failed_records(self) -> dict[str, tuple[int, int]]:
        """The records that the exception handlers have given up, by topic: those dropped, and those with dead letters.

        Each topic that agents read here has an entry. Any thread may ask.
        """
        topics = {tp.topic for tp in self._read_here()} | dict(self.skipped).keys() | dict(self.dead).keys()
        return {topic: (self.skipped[topic], self.dead[topic]) for topic in sorted(topics)}

    def _read_here(self) -> list[TP]:
        """The partitions that the agents of this worker read."""
        return [] if self._member is None else sorted(self._plain_partitions())

    def _input(self, tp: TP) -> InputInfo:
        progress = self._progress.get(tp)
        waiting = [] if progress is None else progress.waiting(self._acked_index.get(tp, set()))
        fetched, end = self._thread.fetched_up_to(tp)
        return InputInfo(TopicPartition(*tp), waiting[0] if waiting else fetched, end, len(waiting))

    @property
    def stuck(self) -> str | None:
        """The reason why agents cannot commit. None: no reason is known. Any thread may ask."""
        rolled_back = None if self._transactions is None else self._transactions.progress.stuck
        producer = self.app._producer
        return rolled_back or (None if producer is None else producer.stuck)

    @property
    def leaderless(self) -> str | None:
        """The partitions for whose leaders the agents wait, in words. None: the agents wait for no leader.

        Any thread may ask.
        """
        return self._leaders.lacking(self._read_here())

    @Service.task  # type: ignore[untyped-decorator]
    async def _look_for_leaders(self) -> None:
        while not self.should_stop:
            await self.sleep(_LOOK_SECONDS)
            self._leaders.look(self._read_here())

    async def wait_until_settled(self) -> None:
        """Returns when no open transaction can still commit offsets of the agents' partitions.

        With at_least_once, returns at once. Raises `BrokerError` if brokers do not tell the committed offsets within
        300 s.
        """
        if self._transactions is not None:
            await self._group.read(self._plain_partitions())

    async def _tell_left(self) -> None:
        """Tells of records that an earlier version has left in topics of ``group_by``."""
        config = self.app.config
        try:
            await asyncio.to_thread(
                tell_left_by_agents, config, admin_client(config), self.app.topics.acks_enabled_for
            )
        except StreamsError as exc:
            logger.warning("records that an earlier version may have left are not known: %s", exc)

    def _plain_partitions(self) -> list[TP]:
        return [tp for tp in self.assignment() if self._is_plain(tp)]

    def _is_plain(self, tp: TP) -> bool:
        """True if agents read the topic. Other topics belong to the topology, or are changelogs."""
        return bool(self.app.topics.acks_enabled_for(tp.topic))

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """The ends of the logs. With exactly_once_v2, the ends include records of open transactions."""
        if self._transactions is None:
            return await super().highwaters(*partitions)  # type: ignore[no-any-return]
        return await self._transactions.ends([TopicPartition(*tp) for tp in partitions])

    def topic_partitions(self, topic: str) -> int | None:
        """The number of partitions.

        None: aiokafka does not know the topic yet (aiokafka itself gives 0, which Faust would take for a number).
        """
        return super().topic_partitions(topic) or None

    async def perform_seek(self) -> None:
        """Sets the agents' partitions to the group's committed positions.

        A partition without a committed position begins as ``consumer_auto_offset_reset`` says. Records that were
        fetched before are dropped here, and come again.

        The positions are read with librdkafka, because aiokafka treats several errors of a coordinator as "no
        position", and agents would begin at the wrong offset.
        """
        member = self._member
        if member is None:
            return  # a rebalance is under way; the next assignment has a seek of its own
        found = await self._group.read(self._plain_partitions())
        committed = {tp: offset for tp, offset in found.items() if offset >= 0}
        try:
            outside = await self._group.check(found)
        except StreamsError as exc:
            await self.fail(exc, None)
            return
        new = found.keys() - committed.keys()
        async with self._fetching:
            if self._member is not member:
                return  # the next assignment has a seek of its own
            self._thread.watch_removals(found, self._note_removed)
            if (placed := await self._place(committed, new)) is None:
                return
            begun, unplaced = placed
            self._group.begin(found)
            self._committed_offset.update(committed)
            self._too_early.clear()
            self._placed.update(found.keys() - unplaced)
            self._leaders.unplaced = unplaced
            self._turn += 1
            self._seamless = True
            self._begun = begun | outside
            self._tell_partitions(found)
            if found and not self._looked_for_left:
                self._looked_for_left = True
                self.add_future(self._tell_left())
            if self._begun:
                # No record is fetched meanwhile. If the commit fails, the next commit tries again.
                await self._commit_done(None)

    def _tell_partitions(self, partitions: Iterable[TP]) -> None:
        if not topics_of_agents(self.app):
            return
        topics = Counter(tp.topic for tp in partitions)
        listed = (f"{topic} ({counted(count, 'partition')})" for topic, count in sorted(topics.items()))
        logger.info("agents read %s", ", ".join(listed) or "nothing: other workers have all partitions")

    def _note_removed(self, tp: TP, position: int, begin: int) -> None:
        if self.removed.note(TopicPartition(*tp), position, begin):
            latest = self.app.conf.consumer_auto_offset_reset == "latest"
            tell_removed(TopicPartition(*tp), position, None if latest else begin, begin)

    async def _place(self, committed: Mapping[TP, int], new: Set[TP]) -> tuple[dict[TP, int], set[TP]] | None:
        """Sets the partitions to their positions. Returns the positions at the ends of ``new`` partitions, if reading
        begins there.

        New partitions without a leader get no position. The call returns them, too. None: the assignment has changed
        meanwhile, or the worker ends with an error.
        """
        member = self._member
        try:
            placed = await self._seek_all(committed, new)
        except IllegalStateError:
            return None  # a partition is about to be revoked
        except StreamsError as exc:
            await self.fail(exc, None)
            return None
        # Brokers were asked meanwhile, so the positions may belong to an assignment that is gone.
        return placed if self._member is member else None

    async def _seek_all(self, committed: Mapping[TP, int], new: Set[TP]) -> tuple[dict[TP, int], set[TP]]:
        for tp, offset in committed.items():
            await self.seek(tp, offset)
        if not new:
            return {}, set()
        latest = self.app.conf.consumer_auto_offset_reset == "latest"
        plain, admin = [TopicPartition(*tp) for tp in new], admin_client(self.app.config)
        unled: set[TopicPartition] = set()
        found = await asyncio.to_thread(list_offsets, admin, plain, latest=latest, leaderless=unled)
        unplaced = {TP(*tp) for tp in unled}
        known = self._too_early | self._begun  # an earlier call may have set a partition without a commit yet
        begun = {}
        for tp in new - unplaced:
            begin = found[TopicPartition(*tp)]
            if latest:
                begin = begun[tp] = min(known.get(tp, begin), begin)
            await self.seek(tp, begin)
        return begun, unplaced

    async def _place_late(self) -> None:
        """Sets partitions that have a leader again to the position at which reading begins.

        The records of earlier fetches are all handed out, and of these partitions they were dropped.
        """
        led = self._leaders.take_found()
        if (placed := await self._place({}, led)) is None:
            return
        begun, unplaced = placed
        found = led - unplaced
        self._leaders.placed(found)
        for tp in found:
            self._too_early.pop(tp, None)
        self._placed |= found
        self._begun |= begun
        if begun:
            await self._commit_done(None)

    # Commits.

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commits finished records. Ends the worker if a message of an agent cannot be written, or after a transaction
        that has failed for good. After other errors, the next commit tries again."""
        if self.app.client_only or self._member is None or self._given_up:
            return False
        # The commit goes on, even if its caller is cancelled.
        return await asyncio.shield(asyncio.ensure_future(self._commit_done(topics)))

    @Service.task  # type: ignore[untyped-decorator]
    async def _commit_handler(self) -> None:
        while not self.should_stop:
            await self.sleep(self.commit_interval)
            await self.commit()

    async def _commit_done(self, topics: Any) -> bool:
        async with self._committing:
            member = self._member
            if member is None:
                return False  # the partitions were given up while another commit was under way
            sensor_state = self.app.sensors.on_commit_initiated(self)
            done = False
            try:
                positions, deadline = self._positions(topics), self.loop.time() + _FINISH_SECONDS
                while self._member is member and await self._commit_positions(dict(positions), member):
                    done = True
                    if not self._behind or self.loop.time() > deadline:
                        break
            except StaleMemberError as exc:
                logger.warning("another worker repeats the agents' work since the last commit: %s", exc)
            except StreamsError as exc:
                self._given_up = True
                await self.fail(exc, None)
            finally:
                self.app.sensors.on_commit_completed(self, sensor_state)
            return done

    def _positions(self, topics: Any = None) -> dict[TP, int]:
        found = {}
        for tp, progress in self._progress.items():
            if topics is None or tp in topics or tp.topic in topics:
                self._acked[tp].clear()
                position = progress.position(self._acked_index[tp])
                if position is not None:
                    limit = position if self._limits is None else self._limits.get(tp, 0)
                    found[tp] = min(position, limit)
        return self._begun | found

    async def _commit_positions(self, positions: dict[TP, int], member: Member) -> bool:
        sends = self.app._attachments
        sends.trim(positions)
        behind = False
        if self._transactions is not None:
            pace = self._transactions.pace
            waiting = sends.shorten(positions, pace.most_bytes)
            pace.exceeded(waiting)
            behind = waiting > pace.most_bytes
        messages = sends.of(positions)
        with_messages = {bound.record for bound in messages}
        before = {tp: max(self._committed_offset[tp] or 0, self._begun.get(tp, 0)) for tp in positions}
        # An agent may send from an asyncio task of its own, after the commit of its record.
        due = {
            tp: max(position, before[tp])
            for tp, position in positions.items()
            if position > before[tp] or tp in with_messages or tp in self._begun
        }
        if not due:
            self._behind = False
            if self._transactions is not None:
                self._transactions.progress.made()
            return False
        producer: AgentProducer = self.app.producer
        await producer.settle()
        offsets = self._group.due(due, self._placed_offsets)
        due = offsets.positions
        if self._transactions is None:
            done = await self._commit_alone(offsets, member)
        else:
            await self._open()
            done = await self._transactions.commit(
                {TopicPartition(*tp): position for tp, position in due.items()},
                member,
                messages,
                lambda tp, position, mark: self._group.metadata(tp, position, mark, *offsets.notes),
            )
            self._behind = behind or not done
        if done:
            self._begun = {tp: offset for tp, offset in self._begun.items() if tp not in due}
            self._committed_offset.update(due)
            self._group.committed(offsets)
            self._thread.tp_last_committed_at.update(dict.fromkeys(due, time.monotonic()))
            await sends.sent(messages)
            self.app.tables.on_commit(due)
            self.app.monitor.on_tp_commit(due)
        return done

    def _placed_offsets(self) -> dict[TP, int]:
        return {tp: at for tp in self._placed if (at := self._committed_offset[tp])}

    async def _commit_alone(self, due: DueOffsets, member: Member) -> bool:
        if self._thread.should_stop:  # the thread would not answer
            return False
        positions = {
            tp: Position(position, self._group.metadata(tp, position, *due.notes))
            for tp, position in ((TopicPartition(*tp), position) for tp, position in due.positions.items())
        }
        try:
            await self._thread.call_thread(self._membership.commit_now, member, positions)
        except KafkaError as exc:
            logger.warning(
                "the offsets of the agents could not be committed; the next commit tries again: %r", exc
            )
            return False
        return True

    async def _open(self) -> None:
        if self._transactions is not None and not self._opened:
            await self._transactions.open()
            self._opened = True

    async def fail(self, error: StreamsError, record: Any) -> None:
        """Commits the finished records, and ends the worker.

        In the partition of ``record`` only earlier records are committed.
        """
        # A failure of a record that is handed out has the task of the hand-out as caller. Faust cancels this task as
        # soon as the flow of records stops.
        await asyncio.shield(asyncio.ensure_future(self._end_with(error, record)))

    def _crash(self, reason: BaseException) -> None:
        """Notes the crash of any service of the worker.

        A service of the application may have worked on a record of ``app.stream``. Its stream, which is closed next,
        counts the record as done.
        """
        event = current_event()
        if (
            event is not None
            and self._limits is None
            and self.app.topics.acks_enabled_for(event.message.topic)
        ):
            record = event.message
            self._limit(record)
            where = record_at(record.topic, record.partition, record.offset)
            logger.critical(
                "this worker ends, and the record comes again: a service failed at the %s: %s",
                where,
                said(reason, self.app.config),
            )
        super()._crash(reason)

    def _limit(self, record: Any) -> None:
        """Limits all later commits to the records that are finished now, and of its partition to those before
        ``record``."""
        if self._limits is None:
            self._limits = self._positions()
        if record is not None:
            self._limits[record.tp] = min(self._limits.get(record.tp, record.offset), record.offset)

    async def _end_with(self, error: StreamsError, record: Any) -> None:
        self._stop_handing_out()
        self._limit(record)
        if not self.app.should_stop:
            logger.critical("this worker ends: %s", error)
            with suppress(TimeoutError):  # the stop, which follows, commits what is left
                await asyncio.wait_for(self.force_commit(), _FINISH_SECONDS)
            await self.app.crash(error)

    async def verify_all_partitions_active(self) -> None:
        """Looks for partitions that do not move, and for topics that were deleted.

        Faust calls this method every few commit intervals.
        """
        now = time.monotonic()
        if now - self._verified_at >= _VERIFY_SECONDS:
            self._verified_at = now
            await super().verify_all_partitions_active()
        topics = {tp.topic for tp in self._plain_partitions()}
        changelogs = changelogs_of_agents(self.app)
        topics.update(changelogs)
        if self._topic_ids is None:
            if not topics:
                return
            self._topic_ids = TopicIds(admin_client(self.app.config), topics)
        # A deleted topic soon is in no assignment, so no topic is ever taken off.
        self._topic_ids.watch(topics)
        if lost := self._topic_ids.lost():
            use = "agents keep a table in it" if lost.topic in changelogs else "agents read it"
            await self.fail(BrokerError(f"the topic {lost}, and {use}. {lost.remedy}"), None)

    # Rebalances and the stop.

    async def finish(self, seconds: float = _FINISH_SECONDS) -> None:
        """Gives agents no more records, waits at most ``seconds`` until they have finished theirs, and commits.

        An agent that waits for a reply is not waited for, because replies are records, too.
        """
        self._stop_handing_out()
        deadline = self.loop.time() + seconds
        while self._in_work() and self._limits is None and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        await self.force_commit()

    def _stop_handing_out(self) -> None:
        self.stop_flow()
        self.app.flow_control.suspend()
        for queue in self.app.flow_control._queues:
            events = [item for item in queue._queue if isinstance(item, EventT)]
            self._dropped.update((event.message.tp, event.message.offset) for event in events)
        self.app.flow_control.clear()

    def _in_work(self) -> bool:
        unfinished = self._dropped + self.app._reply_consumer.asking()
        return any(
            message.refcount > unfinished[message.tp, message.offset]
            for message in list(self._unacked_messages)
            if not message.acked
        )

    async def wait_empty(self) -> None:
        await self.finish()

    async def stop_handing_out_for_good(self, seconds: float) -> None:
        """Makes the last commit before the worker stops, after waiting at most ``seconds`` for agents to finish their
        records.

        No later commit goes beyond the finished records. Otherwise Faust, which then interrupts the agents, would also
        commit the records that they have not finished.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self.finish(seconds), seconds + _FINISH_SECONDS)
        if self._limits is None:
            self._limits = self._positions()

    async def on_stop(self) -> None:
        """Closes the transactions, without another commit: `stop_handing_out_for_good` has made the last one."""
        if self._transactions is not None:
            await self._transactions.close()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        # Faust would close the member from this thread, while the member's own thread leaves the group.
        if self.app.should_stop:
            return
        await self.finish()
        await super().on_partitions_revoked(revoked)
        self._placed.clear()
        self._leaders.forget()
        self._too_early.clear()
        self._begun = {}
        self._progress.clear()
        for message in list(self._unacked_messages):
            # The record comes again. A late end of its work here must not count for the second delivery.
            message.acked = True
        self._unacked_messages.clear()
        self._dropped.clear()
        self._behind = False
        self._member = None
        ahead = self.app._attachments.forget()
        if ahead:
            self.app.tables.restore_anew(ahead)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        if self.app.should_stop:
            return
        self._member = Member(generation_id, self._membership.current().member_id)
        # With a rebalance, Faust forgets which partitions had records. A partition then waits anew for its first
        # record, but Faust measures the wait from the start of the worker.
        self._thread.time_started = time.monotonic()
        await super().on_partitions_assigned(assigned, generation_id)

    async def threadsafe_partitions_revoked(
        self, receiver_loop: asyncio.AbstractEventLoop, revoked: set[TP]
    ) -> None:
        await self._in_the_app_s_loop(self.on_partitions_revoked(revoked))

    async def threadsafe_partitions_assigned(
        self, receiver_loop: asyncio.AbstractEventLoop, assigned: set[TP], generation_id: int = 0
    ) -> None:
        await self._in_the_app_s_loop(self.on_partitions_assigned(assigned, generation_id))

    async def _in_the_app_s_loop(self, call: Coroutine[Any, Any, None]) -> None:
        """Runs a callback of the group in the application's event loop, and wakes the group's thread at its end.

        Faust's queue does not wake the group's thread. While the worker stops, nothing else wakes it, so it would sleep
        for ever.
        """
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._or_crash(call), self.loop))

    async def _or_crash(self, call: Coroutine[Any, Any, None]) -> None:
        """Awaits a callback of the group, and ends the worker if the callback raises.

        aiokafka only logs the error. The worker would go on with a rebalance that is half done, for example with tables
        whose changes are not committed.
        """
        try:
            await call
        except Exception as exc:
            await self.app.crash(exc)
            raise


class AgentTransport(driver.Transport):  # type: ignore[misc]
    Conductor: ClassVar[Any] = AgentConductor
    Consumer: ClassVar[Any] = AgentConsumer
    Producer: ClassVar[Any] = AgentProducer
