"""The data plane: the thread that fetches, processes and commits records.

For speed, no step in this file works on single records; all work on batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from streamapp._base import failpoints
from streamapp._base.offset_reset import OffsetReset
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, StreamsError, TopologyError
from streamapp.records import TopicPartition
from streamapp.runners.topic_ids import TopicIds
from streamapp.runners.worker.commands import CommandQueue
from streamapp.runners.worker.commit import Committer
from streamapp.runners.worker.fetch import Fetcher
from streamapp.runners.worker.global_stores import GlobalStores
from streamapp.runners.worker.listener_calls import ListenerCalls
from streamapp.runners.worker.live_tasks import LiveTasks
from streamapp.runners.worker.livetask import LiveTask, now_ms, steady_ms
from streamapp.runners.worker.membership import Member, Membership, StaleMemberError
from streamapp.runners.worker.pace import Pace
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.producer import RecordProducer
from streamapp.runners.worker.restore import Restorer
from streamapp.runners.worker.stalls import Progress
from streamapp.runners.worker.standby import Standbys
from streamapp.runners.worker.transactions import ResultsRefused, TransactionAborted
from streamapp.runners.worker.watchdog import Place
from streamapp.state.backend import StateDamagedError

__all__ = ["DataPlane"]

logger: logging.Logger = logging.getLogger(__name__)
R = TypeVar("R")

_IDLE_SECONDS = 0.02
_PUNCTUATE_SECONDS = 0.01
_TURN_SECONDS = 1.0
"""A turn takes at most about so many records as can be processed in this time, because commands wait for its end."""
_ASYNC_SECONDS = 0.002
_FEW_RECORDS = 100
"""After a turn with at most so many records, results are sent at once. Under load turns are larger, and results wait
for more results, because larger batches are cheaper."""
_LINGER_SECONDS = 0.1
"""Results wait for more results until the first end of a turn after this time, Kafka Streams' default ``linger.ms``."""
_LATE_SECONDS = 5.0
"""If this thread has not looked at the ends of the logs for so long, another thread looks, so that the lag is known."""
_CONFIRM_SECONDS = 10.0
"""The longest time that a worker waits for the group to confirm the worker's membership, for example after a
failure."""
_DRAIN_SECONDS = 30.0
"""The longest time that a rebalance, a pause or a stop waits for asynchronous steps: half of Faust's time for a
rebalance."""


class DataPlane(threading.Thread):
    """Runs the tasks of this worker.

    The producer ``outputs`` writes results, and ``ledger`` writes changelogs and offsets (`Committer`). ``open_task``
    makes a `LiveTask` for an id. If an exception ends the thread, the thread calls ``on_failure`` with the exception.
    ``topic_ids`` watches the topics with input, and the changelogs. If one of these topics is deleted, the thread ends
    with `TopologyError`. ``reset_of`` gives the offset reset policy of a topic, and ``first_new`` are the
    `first_new_partitions`. ``check_offsets`` refuses committed offsets of other tools (`Fetcher`).

    The methods `assign`, `revoke`, `change_inputs`, `pause`, `resume`, `call` and `stop` return a future at once. The
    thread carries their commands out in order, between two turns.
    """

    def __init__(
        self,
        config: StreamsConfig,
        admin: LastingAdmin,
        outputs: RecordProducer,
        ledger: RecordProducer,
        membership: Membership,
        global_stores: GlobalStores,
        listeners: ListenerCalls,
        topic_ids: TopicIds,
        open_task: Callable[[TaskId], LiveTask],
        on_failure: Callable[[BaseException], None],
        reset_of: Callable[[str], OffsetReset],
        first_new: Mapping[str, int],
        check_offsets: Callable[[Mapping[TopicPartition, tuple[int, str]]], Collection[TopicPartition]],
        repartition_topics: Collection[str],
    ) -> None:
        super().__init__(name="streamapp-data-plane", daemon=True)
        self._config = config
        self._global_stores = global_stores
        self._listeners = listeners
        self._topic_ids = topic_ids
        self._on_failure = on_failure
        self._commands = CommandQueue(self._wake, StaleMemberError, TransactionAborted)
        self._woken = threading.Event()
        self._member: Member | None = None
        self._stopping = self._closing = self._ended = False
        self._abandoned = threading.Event()
        self._membership = membership
        self._repaired: set[TaskId] = set()
        self._last_commit = self._last_punctuation = self._last_look = self._last_send = time.monotonic()
        self._pace = Pace(config.transaction_timeout_ms, 2 * config.memory.uncommitted)
        self._waiting = 0
        """Bytes that waited for a commit after the last turn."""
        self._dirty_bytes: int | None = None
        """The bytes of changed state that wait for a commit. None: the bytes have to be counted anew."""
        self._busy: dict[LiveTask, None] = {}
        """The tasks of ``_served`` that are not idle. A turn works on these only, because a process may have 1,000
        tasks."""
        self._served: list[LiveTask] = []
        """The running tasks of the last turn."""
        self._commit_requested = False
        """True if a processor has requested a commit since the last one."""
        self._begins_wait = False
        """True if a started task has a begin to commit before its first record (`Fetcher.to_commit`)."""
        self._held_back = False
        """True if a task has processed its full share of the last turn, so more of its records may wait.

        False if a task waits for records of an input (``max_task_idle_ms``).
        """
        self._done = 0
        """The number of records that were processed in the last turn."""
        self._seconds_each = 0.25
        """The time for each record in the last turn with records; before the first such turn, an assumption."""
        self._draining = False
        """True while a due commit waits for asynchronous steps, which take no more records until the commit."""
        self.progress: Progress = Progress()
        self.fetcher: Fetcher = Fetcher(
            config,
            admin,
            self._confirm_member,
            reset_of,
            first_new,
            check_offsets,
            repartition_topics,
            lambda topic: topic in topic_ids.may_go,
        )
        self._committer = Committer(config, admin, outputs, ledger, membership, self.fetcher.with_epoch)
        self.restorer: Restorer = Restorer(config, admin, listeners)
        self.tasks: LiveTasks = LiveTasks(open_task, self.fetcher, self.restorer, global_stores)
        self.standbys: Standbys = Standbys(
            config, admin, listeners, open_task, self.tasks.close, membership.rejoin
        )
        self.suspended: bool = True
        """True until the first assignment, and from each loss of an assignment to the next: nothing is processed."""
        self.reopening: bool = False
        """True while all tasks are closed and opened again after a rollback, so that `tasks` may lack some of them."""
        self.paused: bool = False
        """True between `pause` and `resume`: tasks are restored and can be read, but process nothing (KIP-834)."""
        self.processed: int = 0
        self.commits: int = 0
        self.failure: BaseException | None = None
        """The exception that ends the thread. ``on_failure`` gets the exception after all tasks are closed."""
        self.turns: int = 0
        """The number of turns, and of rounds of a commit that waits for steps. A thread that hangs has no further
        turn."""

    # Commands of the control plane.

    def assign(
        self, member: Member, tasks: Iterable[TaskId], standbys: Mapping[TaskId, bool]
    ) -> Future[None]:
        """Runs exactly ``tasks`` from now on. Commits have the member id and generation of ``member``.

        ``standbys`` has the tasks of which the worker keeps a copy. Its value is True for a warm-up, the copy of a task
        that will move here.
        """
        wanted = sorted(tasks)
        return self._commands.submit(lambda: self._assign(member, wanted, standbys), vital=True)

    def revoke(self) -> Future[None]:
        """Commits, and processes nothing more until the next `assign`."""
        return self._commands.submit(self._revoke, vital=True)

    def change_inputs(self, change: Callable[[], None]) -> Future[None]:
        """Commits, calls ``change``, and opens all tasks and standbys anew, because ``open_task`` now gives them other
        inputs. If the commit fails, the tasks begin again at the last commit with the new inputs: the commit may fail
        because an input was deleted. If other workers have the tasks meanwhile, ``change`` is not called.
        """
        return self._commands.submit(lambda: self._change_inputs(change), vital=True)

    def pause(self) -> Future[None]:
        """Commits, and processes nothing more until `resume`."""
        return self._commands.submit(self._pause, vital=True)

    def resume(self) -> Future[None]:
        return self._commands.submit(self._resume, vital=True)

    def call(self, fn: Callable[[], R]) -> Future[R]:
        """Runs a function between two turns. An exception goes only to the future."""
        return self._commands.submit(fn, vital=False)

    def stop(self) -> Future[None]:
        """Commits, closes all tasks and ends the thread. The future is done after the commit."""
        return self._commands.submit(self._stop_running, vital=True)

    def abandon(self) -> None:
        """Ends the thread, at the latest after its present turn, for a stop that takes too long or fails.

        The waits for asynchronous steps of tasks, and for brokers to acknowledge records, end at once. Other waits for
        brokers go on.
        """
        self._stopping = True
        self._abandoned.set()
        self._committer.abandon()

    def place(self) -> Place | None:
        """The present work of the thread, for the watchdog. None: the thread has ended.

        Code of the application runs in a task, in a global store, in a listener, and while tasks and clients are
        closed. If one of these hangs, the watchdog ends the worker. Other waits of this thread, such as a wait for
        brokers or a write of state, only make the worker not ready. A task that waits for room in the producer's queue
        waits for brokers, too.
        """
        return None if self._ended else self._place()

    def _place(self) -> Place:
        if self._closing:
            return Place("the close of tasks and clients", self.turns, self.ident)
        if self._committer.waits_for_room:
            return self._wait_for_brokers("room in the full queue of the producer")
        if (method := self._listeners.at) is not None:
            return Place(method, self.turns, self.ident)
        if (live := self.tasks.current) is not None:
            return Place(f"task {live.id}: {live.at}", self.turns, self.ident)
        if (at := self._global_stores.at) is not None:
            return Place(f"global tables: {at}", self.turns, self.ident)
        asks = self._committer.waits_for
        if self.fetcher.asks:
            asks = "the look-up of committed offsets"
        elif self.restorer.asks:
            asks = "the look-up of the ends of changelogs"
        if asks is not None:
            return self._wait_for_brokers(asks)
        return Place("the thread that processes records", self.turns, self.ident, can_hang=False)

    def _wait_for_brokers(self, asks: str) -> Place:
        return Place(f"{asks}, for which brokers have to answer,", self.turns, self.ident, can_hang=False)

    def look_beside(self) -> None:
        """Asks for the ends of the inputs' logs in place of the data plane, if a slow function keeps it busy.

        Another thread calls this method, so that the lag that users see grows meanwhile, too.
        """
        if time.monotonic() - self._last_look >= _LATE_SECONDS:
            self.fetcher.refresh_ends_beside()

    def _wake(self) -> None:
        """Ends the wait for records, because another thread has a command. The next turn begins with the command."""
        self._woken.set()
        self.fetcher.wake()

    # The thread.

    def run(self) -> None:
        try:
            self._committer.open()
            while not self._stopping:
                self._turn()
        except Exception as exc:
            self.failure = exc
        except BaseException as exc:  # SystemExit, for example, from a function of the application
            self.failure = StreamsError(f"{self._place().what} ended with {exc!r}")
            self.failure.__cause__ = exc
        self.tasks.current, self._closing = None, True
        self._close()
        self._ended = True
        self._commands.close()
        if self.failure is not None:
            self._on_failure(self.failure)

    def _turn(self) -> None:
        self.turns += 1
        self.tasks.current = self._committer.waits_for = None
        try:
            self._woken.clear()
            # Commands that come meanwhile wait for the next turn. Otherwise many reads would hold up all records.
            for _ in range(len(self._commands)):
                if self._stopping or not self._commands.run_next():
                    break
            if not self._stopping:
                # Only now the command is complete, so damage that shows at a start is repaired without a loss.
                self._start_restored()
                self._work()
        except StaleMemberError as exc:
            self._leave_to_others(exc)
        except TransactionAborted as exc:
            if self._left_to_others(exc):
                return
            logger.warning("%s; its tasks begin again at the last commit", exc)
            self._roll_back(exc)
            if not self._stopping:
                self._reopen()
        except StateDamagedError as exc:
            if not self._repair(exc):
                raise
        except StreamsError as exc:
            if not self._left_to_others(exc):
                raise

    def _confirm_member(self) -> None:
        """Raises `StaleMemberError` if the group has given the partitions to other members."""
        if self._member is not None:
            self._membership.confirm(self._member, _CONFIRM_SECONDS)

    def _left_to_others(self, failure: StreamsError) -> bool:
        """Drops the tasks and returns True if the group has given them to other workers.

        The failure then does not end this worker, because the loss of the tasks may be the cause. For example, the new
        owners purge records that this worker still reads.
        """
        if self._stopping:
            return False
        try:
            self._confirm_member()
        except StaleMemberError as exc:
            logger.info("this worker failed while other workers had its tasks: %s", failure)
            self._leave_to_others(exc)
            return True
        except BrokerError as exc:
            logger.warning("%s", exc)
        return False

    def _leave_to_others(self, exc: StaleMemberError) -> None:
        logger.warning("%s; the worker drops its tasks until the next assignment", exc)
        self._roll_back(exc)
        self._suspend()
        self.tasks.drop(self.tasks)
        self.standbys.assign({})

    def _roll_back(self, exc: BaseException) -> None:
        self.tasks.current = None
        self.progress.rolled_back(exc, [live.id for live in self.tasks.running if live.task.commit_needed])
        self._committer.roll_back()
        if not isinstance(exc, (ResultsRefused, StaleMemberError)):  # these do not come from a slow commit
            self._pace.rolled_back()

    def _work(self) -> None:
        self._global_stores.poll(0 if self._global_stores.ready else _IDLE_SECONDS)
        runs = bool(self.tasks.running)
        self.restorer.look_for_leaders()
        if self.restorer.active:
            self.restorer.poll(0 if runs else _IDLE_SECONDS)
        elif self.suspended or self.paused or not runs:
            self._woken.wait(_IDLE_SECONDS)
        self._start_restored()
        self.standbys.poll()
        self._look()
        if self._begins_wait and runs and not self.suspended:
            self._begins_wait = self._draining = bool(self._not_drained())
            if not self._draining:
                self._commit()
        if self.suspended or self.paused or not runs:
            if not self.suspended and not self.tasks:
                self.progress.made()
            if not (self.suspended or self.paused) and self._global_stores.presses(self.tasks):
                self._commit()
            self._committer.poll()
            return
        idle = _ASYNC_SECONDS if self._in_steps() else _IDLE_SECONDS
        if self._begins_wait:
            self._woken.wait(idle)
        elif not self._held_back:
            fed = self.fetcher.poll(0 if self._done or self.restorer.active else idle)
            self._busy.update(dict.fromkeys(fed))
        failpoints.hit("batch-polled")
        self._process()
        failpoints.hit("records-processed")
        self._send_in_time()
        self._committer.poll()
        if self._commit_is_due():
            self._draining = bool(self._not_drained())
            if not self._draining:
                self._commit()

    def _start_restored(self) -> None:
        if started := self.tasks.start_restored():
            self._begins_wait |= any(live.task.commit_needed for live in started)
            if not self.suspended:
                self.fetcher.assign(self.tasks.running)

    def _send_in_time(self) -> None:
        now = time.monotonic()
        if self._done <= _FEW_RECORDS or now - self._last_send >= _LINGER_SECONDS:
            self._last_send = now
            self._committer.send_now()

    def _in_steps(self) -> list[LiveTask]:
        """The running tasks with records in asynchronous steps. Such a task cannot be committed."""
        return [live for live in self.tasks.asynchronous if live.task.pending]

    def _not_drained(self) -> list[LiveTask]:
        """The running tasks with records in asynchronous steps, or in record caches before these steps."""
        waiting = []
        for live in self.tasks.asynchronous:
            self.tasks.current = live
            if not live.task.drained():
                waiting.append(live)
        self.tasks.current = None
        return waiting

    def _commit_is_due(self) -> bool:
        if time.monotonic() - self._last_commit >= self._config.commit_interval / 1000:
            return True
        pressed = self._global_stores.presses(self.tasks)
        return self._commit_requested or pressed or self._pace.exceeded(self._waiting)

    def _waiting_bytes(self) -> int:
        """The approximate bytes that the next commit has to wait for."""
        if self._dirty_bytes is None:
            self._dirty_bytes = sum(live.task.dirty_bytes for live in self.tasks.running)
        return self._dirty_bytes + self._committer.unacknowledged_bytes

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._last_look >= 1.0:
            self._last_look = now
            self.fetcher.refresh_ends()
            self.tasks.look_for_leaders()
            if lost := self._topic_ids.lost():
                raise TopologyError(f"the topic {lost}. {lost.remedy}")

    def _process(self) -> None:
        if self._served is not self.tasks.running:
            self._served, self._dirty_bytes = self.tasks.running, None
            self._busy = dict.fromkeys(self._served)
        waiting = self._waiting_bytes()
        most = min(self._pace.records(waiting), int(_TURN_SECONDS / self._seconds_each))
        share = max(1, most // max(1, len(self._busy)))
        done = dirty = 0
        began = time.monotonic()
        full = waits = False
        for live in list(self._busy):
            self.tasks.current, task, before = live, live.task, live.task.dirty_bytes
            commits = self._draining and task.asynchronous
            taken = task.process(
                0 if commits else share, self.fetcher.caught_up(live), self.fetcher.polled_ms
            )
            dirty += task.dirty_bytes - before
            self._commit_requested |= task.commit_requested
            done += taken
            full |= taken == share
            if task.idle:
                del self._busy[live]
            else:
                waits |= not taken
        self._held_back = full and not waits
        if self._dirty_bytes is not None:
            self._dirty_bytes += dirty
        if done:
            self._seconds_each = max(1e-9, (time.monotonic() - began) / done)
        self._punctuate()
        self.tasks.current = None
        self.processed += done
        self._done = done
        self._waiting = self._waiting_bytes()
        if done:
            self._pace.taken(done, self._waiting - waiting)
        self.fetcher.apply_back_pressure(self._busy)

    def _punctuate(self) -> None:
        """Calls the wall-clock punctuators that are due."""
        now = time.monotonic()
        if now - self._last_punctuation < _PUNCTUATE_SECONDS:
            return
        self._last_punctuation = now
        wall, steady = now_ms(), steady_ms()
        for live in self.tasks.running:
            # In Kafka Streams no punctuator runs in a commit. Records of punctuators would keep steps from draining.
            if not (self._draining and live.task.asynchronous):
                self.tasks.current = live
                if live.punctuate(wall, steady):
                    self._commit_requested |= live.task.commit_requested
                    self._dirty_bytes = None

    # The commit.

    def _commit_to_the_end(self) -> None:
        """Waits until no record is in an asynchronous step, and commits.

        Raises `TransactionAborted` after `_DRAIN_SECONDS`, or when a stop takes too long (`abandon`). The records since
        the last commit are then processed again.
        """
        deadline = time.monotonic() + _DRAIN_SECONDS
        while waiting := self._not_drained():
            if time.monotonic() > deadline or self._abandoned.is_set():
                listed = ", ".join(str(live.id) for live in waiting)
                raise TransactionAborted(f"asynchronous steps of tasks {listed} have not ended in time")
            for live in waiting:
                self.tasks.current = live
                live.task.process(0)
            self.tasks.current = None
            self.turns += 1
            time.sleep(_ASYNC_SECONDS)
        self._commit()

    def _commit(self) -> None:
        self._last_commit = time.monotonic()
        self._commit_requested, self._dirty_bytes = False, None
        running = self.tasks.running
        for live in running:
            live.pass_over_gaps(self.fetcher.read_up_to)
        tasks = [live for live in running if live.task.commit_needed]
        letters = self._global_stores.letters(self.tasks)
        if (not tasks and letters is None) or self._member is None:
            if self.fetcher.at_end:
                self.progress.made()
            if self._member is not None:
                self._committer.follow_files()
            return
        began, waiting = time.monotonic(), self._waiting_bytes()
        self._committer.commit(tasks, self._member, self._works_on, letters)
        self._dirty_bytes = None
        if letters is not None:
            self._global_stores.letters_written()
        self.commits += 1
        self._last_commit = time.monotonic()
        self.progress.committed({live.id for live in tasks}, self.tasks, {live.id for live in running})
        self._pace.committed(waiting, self._last_commit - began)

    def _works_on(self, live: LiveTask | None) -> None:
        self.tasks.current = live

    # Rebalances, pauses and the stop.

    def _assign(self, member: Member, wanted: list[TaskId], standbys: Mapping[TaskId, bool]) -> None:
        previous, self._member = self._member, member
        # A member of the previous generation has owned its partitions without a break.
        unbroken = previous is not None and member == Member(previous.generation + 1, previous.member_id)
        if not unbroken:
            self._committer.forget_purge()
        self.tasks.drop(id for id in self.tasks if not unbroken or id not in wanted)
        self._open(id for id in wanted if id not in self.tasks)
        self.standbys.assign(standbys)
        self.suspended = False
        self._last_commit = time.monotonic()
        self.fetcher.assign(self.tasks.running)

    def _revoke(self) -> None:
        if not self.suspended:
            try:
                self._commit_to_the_end()
                self._committer.write_metadata(self._member)
            finally:
                self._suspend()
            failpoints.hit("tasks-revoked")

    def _change_inputs(self, change: Callable[[], None]) -> None:
        try:
            if not self.suspended:
                self._commit_to_the_end()
        except TransactionAborted:
            change()
            self.standbys.reopen()
            raise  # the rollback opens the tasks anew
        change()
        self.standbys.reopen()
        self._reopen()

    def _pause(self) -> None:
        try:
            if not self.suspended and not self.paused:
                self._commit_to_the_end()
        finally:
            self.paused = True
        logger.info("paused")

    def _resume(self) -> None:
        self.paused = False
        logger.info("resumed")

    def _suspend(self) -> None:
        self.suspended = True
        self._committer.forget()
        self.fetcher.assign(())

    def _reopen(self, wipe: LiveTask | None = None) -> None:
        """Closes all tasks, and begins them again at the last commit. Deletes the state of the task ``wipe`` before."""
        ids = list(self.tasks)
        self.reopening = True
        try:
            self.tasks.drop(ids)
            if wipe is not None:
                wipe.wipe()
            self._open(ids)
        finally:
            self.reopening = False
        self.fetcher.assign(self.tasks.running)

    def _repair(self, exc: StateDamagedError) -> bool:
        """Deletes the state of the task under way and restores it from its changelogs. False: no repair is possible.

        A worker repairs each task only once, because damage that comes again is a fault of the disk.
        """
        live, self.tasks.current = self.tasks.current, None
        if live is None or self.tasks.get(live.id) is not live:
            return False  # the task closes, so its command is incomplete
        if not live.restorable or live.id in self._repaired:
            return False
        self._repaired.add(live.id)
        logger.warning("task %s: its local state is damaged and is restored anew. %s", live.id, exc)
        self._committer.roll_back()
        self._reopen(wipe=live)
        return True

    def _open(self, ids: Iterable[TaskId]) -> None:
        opened = list(ids)
        self._global_stores.opened(opened)
        self.tasks.open(opened, self.standbys)

    def _stop_running(self) -> None:
        self._stopping = True
        if not self.suspended:
            try:
                self._commit_to_the_end()
            except TransactionAborted as exc:  # no later turn can repeat the commit
                raise StreamsError(
                    f"the last commit failed ({exc}): its records will be processed again"
                ) from exc
            self._committer.write_metadata(self._member)

    def _close(self) -> None:
        steps: tuple[Callable[[], None], ...] = (
            lambda: self.tasks.drop(self.tasks),
            self._global_stores.close,
            self.standbys.close,
            self.restorer.close,
            self.fetcher.close,
            self._committer.close,  # aborts the open transaction, for which readers of the results wait
        )
        for close in steps:
            try:
                close()
            except Exception:
                logger.exception("the data plane could not be closed in order")
