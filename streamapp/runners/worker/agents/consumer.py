"""Faust's consumer as agents need it: the consumer reads committed records, and commits finished records.

Faust's own bookkeeping looks for offsets without gaps, which no log has to have, and passes over records that are still in work. Here the
records that were handed out are counted (`Progress`), and commits are those of the member that was given the partitions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Set
from contextlib import suppress
from typing import Any, ClassVar

from aiokafka.errors import IllegalStateError, KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, EventT
from mode import Service

from streamapp.engine.runner_ports import Position
from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.runners.worker.agents.finished import Progress
from streamapp.runners.worker.agents.sends import AgentProducer
from streamapp.runners.worker.agents.transaction import AgentTransactions
from streamapp.runners.worker.clients import PATIENCE_SECONDS, find_committed
from streamapp.runners.worker.membership import FaustMembership, Member, StaleMemberError

__all__ = ["AgentConsumer", "AgentConsumerThread", "AgentTransport"]

logger: logging.Logger = logging.getLogger(__name__)

_FINISH_SECONDS = 10.0
"""Records in work get this time to end before partitions go to somebody else."""
_CATCH_UP_SECONDS = 0.02
"""The time between two looks if transactions keep up with the agents."""


class AgentConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        consumer = super()._create_consumer(loop)
        consumer._isolation_level = "read_committed"
        return consumer

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's look for partitions that do not move would end the worker where one has no position yet, as after a rebalance."""
        with suppress(AssertionError):
            super().verify_event_path(now, tp)


class _NoOffsets(dict[TP, Any]):
    """Faust notes here the last offset that it has read, and drops records that come again.

    Records of a partition that was set back must not be dropped, so this class keeps no offset.
    """

    def __getitem__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: Any) -> None:
        """Nothing is noted."""

    def update(self, *_: Any, **__: Any) -> None:
        """Nothing is noted."""


class AgentConsumer(driver.Consumer):  # type: ignore[misc]
    def __init__(self, transport: Any, callback: Any, *args: Any, **kwargs: Any) -> None:
        self._pass_on = callback
        super().__init__(transport, self._hand_out, *args, **kwargs)
        self._membership = FaustMembership(self.app)
        self._member: Member | None = None
        self._progress: defaultdict[TP, Progress] = defaultdict(Progress)
        self._placed: set[TP] = set()
        """Partitions that stand where the group has committed."""
        self._too_early: dict[TP, int] = {}
        """The first record that was fetched before its partition was placed."""
        self._limits: dict[TP, int] | None = None
        """Positions that agents do not pass any more, after a failure or when the worker stops."""
        self._read_offset = _NoOffsets()
        self._fetching = asyncio.Lock()
        self._turn = 0
        """The number of placements of the partitions."""
        self._batch = 0
        """The number of placements before the last fetch."""
        self._dropped: Counter[tuple[TP, int]] = Counter()
        """The number of agents that did not get a record, because handing out had ended. The record waits for none."""
        self._given_up = False
        """A commit has failed for good."""
        self._behind = False
        """The last transaction had no room for all finished records, or was rolled back."""
        self._committing = asyncio.Lock()
        self._transactions = AgentTransactions(self.app.config) if self.app.config.exactly_once else None
        self._opened = False
        self.fetches: int = 0
        """The number of fetches that have begun. All fetches but the last one are passed on."""

    def _new_consumer_thread(self) -> AgentConsumerThread:
        return AgentConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # Records.

    async def _hand_out(self, message: Any) -> None:
        tp = message.tp
        if not self.app.client_only and self._is_plain(tp):
            while self._behind and tp in self._placed and not self.should_stop:
                await asyncio.sleep(_CATCH_UP_SECONDS)
            if tp not in self._placed or self._batch != self._turn:
                return  # fetched before the partition was set to where it has to go on, and fetched again
            if not self._progress[tp].hand_out(message.offset):
                return
        await self._pass_on(message)

    def has(self, message: Any) -> bool:
        """True if a record still belongs to this worker, not to another worker or to a later turn of this worker."""
        return self._member is not None and message.generation_id == self._member.generation

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Gaps need not be known."""

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        async with self._fetching:
            self.fetches += 1
            self._batch = self._turn
            records = await super()._getmany(active_partitions, timeout)
        for tp in records.keys() - self._placed:
            self._too_early.setdefault(tp, records[tp][0].offset)
        return records

    @property
    def stuck(self) -> str | None:
        """The reason why agents cannot commit; None: agents can commit."""
        return None if self._transactions is None else self._transactions.progress.stuck

    async def wait_until_settled(self) -> None:
        """Returns when the transactions of those who had the partitions before are committed or rolled back."""
        if self._transactions is not None:
            await self._transactions.settled(
                [TopicPartition(*tp) for tp in self.assignment() if self._is_plain(tp)]
            )

    def _is_plain(self, tp: TP) -> bool:
        """True if agents read the topic. All other topics belong to the topology, or are changelogs."""
        return bool(self.app.topics.acks_enabled_for(tp.topic))

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """The ends of logs, with the records of transactions that are still open."""
        if self._transactions is None:
            return await super().highwaters(*partitions)  # type: ignore[no-any-return]
        return await self._transactions.ends([TopicPartition(*tp) for tp in partitions])

    def topic_partitions(self, topic: str) -> int | None:
        """The number of partitions; None while aiokafka's metadata does not have the topic, for which aiokafka says 0."""
        return super().topic_partitions(topic) or None

    async def perform_seek(self) -> None:
        """Sets the agents' partitions to the group's positions. Faust goes on fetching meanwhile; these records are dropped.

        aiokafka is not asked for the positions: it takes several errors of a coordinator for a group without positions.
        """
        member = self._member
        plain = [TopicPartition(*tp) for tp in self.assignment() if self._is_plain(tp)]
        found = await asyncio.to_thread(find_committed, self.app.config, plain, PATIENCE_SECONDS)
        committed = {TP(*tp): offset for tp, (offset, _) in found.items() if offset >= 0}
        new = {TP(*tp) for tp in plain} - committed.keys()
        async with self._fetching:
            if self._member is not member:
                return  # the next assignment has a seek of its own
            try:
                await self._place(committed, new)
            except IllegalStateError:
                return  # a partition is about to be revoked
            self._committed_offset.update(committed)
            self._too_early.clear()
            self._placed.update(self.assignment())
            self._turn += 1

    async def _place(self, committed: Mapping[TP, int], new: Set[TP]) -> None:
        for tp, offset in committed.items():
            await self.seek(tp, offset)
        if new and self.app.conf.consumer_auto_offset_reset == "earliest":
            await self._thread.seek_to_beginning(*map(driver.ensure_aiokafka_TP, new))
        else:
            for tp in self._too_early.keys() & new:
                await self.seek(tp, self._too_early[tp])

    # Commits.

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commits finished records. Ends the worker when brokers refuse the commit, or a message of an agent."""
        if self.app.client_only or self._member is None or self._given_up:
            return False
        # A begun commit goes on, even if nobody waits for the commit any more.
        return await asyncio.shield(asyncio.ensure_future(self._commit_done(topics)))

    @Service.task  # type: ignore[untyped-decorator]
    async def _commit_handler(self) -> None:
        while not self.should_stop:
            await self.sleep(self.commit_interval)
            await self.commit()

    async def _commit_done(self, topics: Any) -> bool:
        async with self._committing:
            sensor_state = self.app.sensors.on_commit_initiated(self)
            done = False
            try:
                positions, deadline = self._positions(topics), self.loop.time() + _FINISH_SECONDS
                while await self._commit_positions(dict(positions)):
                    done = True
                    if not self._behind or self.loop.time() > deadline:
                        break
            except StaleMemberError as exc:
                logger.warning("what agents have done since the last commit is done again elsewhere: %s", exc)
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
        return found

    async def _commit_positions(self, positions: dict[TP, int]) -> bool:
        sends, member = self.app._attachments, self._member
        assert member is not None
        sends.trim(positions)
        behind = False
        if self._transactions is not None:
            pace = self._transactions.pace
            waiting = sends.shorten(positions, pace.most_bytes)
            pace.exceeded(waiting)
            behind = waiting > pace.most_bytes
        messages = sends.of(positions)
        with_messages = {bound.record for bound in messages}
        before = {tp: self._committed_offset[tp] or 0 for tp in positions}
        # An agent may send after the commit of its record, from a task of its own.
        due = {
            tp: max(position, before[tp])
            for tp, position in positions.items()
            if position > before[tp] or tp in with_messages
        }
        if not due:
            self._behind = False
            if self._transactions is not None:
                self._transactions.progress.made()
            return False
        producer: AgentProducer = self.app.producer
        await producer.settle()
        if self._transactions is None:
            done = await self._commit_alone(due, member)
        else:
            await self._open()
            done = await self._transactions.commit(
                {TopicPartition(*tp): position for tp, position in due.items()}, member, messages
            )
            self._behind = behind or not done
        if done:
            self._committed_offset.update(due)
            self._thread.tp_last_committed_at.update(dict.fromkeys(due, time.monotonic()))
            await sends.sent(messages)
            self.app.tables.on_commit(due)
            self.app.monitor.on_tp_commit(due)
        return done

    async def _commit_alone(self, due: Mapping[TP, int], member: Member) -> bool:
        if self._thread.should_stop:  # nobody would answer
            return False
        positions = {TopicPartition(*tp): Position(position) for tp, position in due.items()}
        try:
            await self._thread.call_thread(self._membership.commit_now, member, positions)
        except KafkaError as exc:
            logger.warning("the offsets of the agents could not be committed, which is tried again: %r", exc)
            return False
        return True

    async def _open(self) -> None:
        if self._transactions is not None and not self._opened:
            await self._transactions.open()
            self._opened = True

    async def fail(self, error: StreamsError, record: Any) -> None:
        """Ends the worker. What is done by now is committed, and nothing of ``record`` or after it."""
        self._stop_handing_out()
        if self._limits is None:
            self._limits = self._positions()
        if record is not None:
            self._limits[record.tp] = min(self._limits.get(record.tp, record.offset), record.offset)
        if not self.app.should_stop:
            logger.critical("this worker ends: %s", error)
            with suppress(TimeoutError):  # a crash ends the group's thread, too: it commits now or not at all
                await asyncio.wait_for(self.force_commit(), _FINISH_SECONDS)
            await self.app.crash(error)

    # Partitions that come and go.

    async def finish(self, seconds: float = _FINISH_SECONDS) -> None:
        """Hands out nothing more, waits for the records that are in work, and commits."""
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
        return any(
            message.refcount > self._dropped[message.tp, message.offset]
            for message in list(self._unacked_messages)
            if not message.acked
        )

    async def wait_empty(self) -> None:
        await self.finish()

    async def stop_handing_out_for_good(self, seconds: float) -> None:
        """The worker stops: a record that is interrupted from now on counts as not done, whatever Faust says."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.finish(seconds), seconds + _FINISH_SECONDS)
        if self._limits is None:
            self._limits = self._positions()

    async def on_stop(self) -> None:
        """The last commit was that of `stop_handing_out_for_good`; Faust would wait for another here."""
        if self._transactions is not None:
            await self._transactions.close()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        if (
            self.app.should_stop
        ):  # Faust would close the member from this thread; its own is about to leave the group
            return
        await self.finish()
        await super().on_partitions_revoked(revoked)
        self._placed.clear()
        self._too_early.clear()
        self._progress.clear()
        for message in list(self._unacked_messages):
            message.acked = (
                True  # that it is done some time does not count for the same record when it comes again
            )
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
        """Runs what the group has to say where the application runs, and wakes the group's thread when it is done.

        Faust's queue does not wake it: a thread that is about to stop has nothing else to wake up for, and stays asleep.
        """
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self.loop))


class AgentTransport(driver.Transport):  # type: ignore[misc]
    Consumer: ClassVar[Any] = AgentConsumer
    Producer: ClassVar[Any] = AgentProducer
