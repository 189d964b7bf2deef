"""The thread in which agents fetch: Faust's thread around aiokafka's consumer, in a group shared with tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streamapp.errors import StreamsError
from streamapp.runners.worker.agents.read_epochs import watch_epochs
from streamapp.runners.worker.group import (
    ask_while_missing,
    close_while_joining,
    missing_topics,
    watch_membership,
)
from streamapp.runners.worker.static import hold_identity, pass_over_earlier

__all__ = ["AgentConsumerThread"]

_JOIN_SECONDS = 0.1
"""The pause between two checks if a join of the group is over."""


class AgentConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    _failing = False
    """True after an error of this thread itself."""

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        consumer = super()._create_consumer(loop)
        consumer._isolation_level = "read_committed"
        consumer._client_rack = self.app.config.client_rack  # Faust has no setting for it
        if not self.app.client_only:
            epochs, reads = self.consumer.epochs, self.app.topics.acks_enabled_for
            watch_epochs(
                consumer._client, self.app.config, epochs, lambda tp: reads(tp.topic), self.on_refused
            )
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        if not self.app.client_only:
            coordinator = self._ensure_consumer()._coordinator
            ask_while_missing(coordinator._client, self.on_refused)
            close_while_joining(coordinator)
            self.add_future(watch_membership(coordinator, self.on_refused, asyncio.sleep))
            instance_id = self.app.conf.consumer_group_instance_id
            if instance_id is not None:
                hold_identity(coordinator, instance_id, self.on_refused)
                pass_over_earlier(coordinator, self.app.assignor.refuse)

    def _crash(self, reason: BaseException) -> None:
        """Notes the crash of another service, after which this thread serves on until the worker stops it.

        Faust would end the thread at once, although the worker still commits. The thread itself ends only in `stop`,
        after the last commit.
        """
        if self._failing:
            super()._crash(reason)
        else:
            self.crash_reason = reason

    async def crash(self, exc: BaseException) -> None:
        """Ends this thread and the worker after an error of this thread."""
        self._failing = True
        await super().crash(exc)

    def _stopped_set(self) -> None:
        """Notes the stop. If an error has ended the thread, its event loop is closed, and nobody waits there."""
        if self._failing and self.thread_loop.is_closed():
            self._stopped.set()
        else:
            super()._stopped_set()

    async def subscribe(self, topics: Iterable[str]) -> None:
        wanted = frozenset(topics)
        before = self._ensure_consumer()._subscription.subscription
        if before is None or self.app.client_only:
            await super().subscribe(wanted)
        elif before.topics != wanted:
            self.change_subscription(lambda present: wanted)

    def change_subscription(self, change: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Subscribes to the topics that ``change`` gives for the present ones, and asks for a new assignment.

        The member keeps its present assignment until then. With aiokafka's own method, the member would lose its
        assignment at once, before the last commit of agents. Any thread may call.
        """
        consumer, loop = self._ensure_consumer(), self.thread_loop

        def follow() -> None:
            if consumer._coordinator._performed_join_prepare:
                # A join is under way, and aiokafka ends at the assignment of a topic that the member has given up.
                loop.call_later(_JOIN_SECONDS, follow)
                return
            subscription = consumer._subscription.subscription
            subscription._topics = change(subscription.topics)
            consumer._client.set_topics(subscription._topics)
            consumer._coordinator.request_rejoin()

        loop.call_soon_threadsafe(follow)

    @property
    def missing_topics(self) -> list[str]:
        """The topics that this consumer reads, and that brokers have not told. Any thread may ask."""
        return [] if self._consumer is None else missing_topics(self._consumer._client)

    def fetched_up_to(self, tp: TP) -> tuple[int | None, int | None]:
        """The next offset to fetch, and the end of the committed records at the last fetch. None: not known."""
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        if assignment is None or tp not in assignment.tps:
            return None, None
        state = assignment.state_value(tp)
        return state._position, state.lso  # `position` would raise if another thread takes the position away

    def highwater(self, tp: TP) -> int | None:
        """The end of the committed records at the last fetch, for Faust's monitor. None: not known.

        A change of the subscription, such as the first reply topic, leaves aiokafka without partitions for a while.
        Records of the last fetch are handed out nevertheless, and aiokafka itself would raise for their partitions.
        """
        return self.fetched_up_to(tp)[1]

    def watch_removals(self, tps: Iterable[TP], note: Callable[[TP, int, int], None]) -> None:
        """Calls ``note(tp, position, begin)`` when a partition goes on at another position than the wanted one.

        aiokafka moves a position by itself if the log lacks its records, and tells nobody. The calls come from the
        thread of this consumer.
        """
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        for tp in tps:
            if assignment is not None and tp in assignment.tps:
                state = assignment.state_value(tp)
                if "await_reset" not in vars(state):
                    _watch_removals(state, partial(note, tp))

    def on_refused(self, error: StreamsError) -> None:
        """Ends the worker, because the group refuses it, or because another process has its ``group_instance_id``."""
        asyncio.run_coroutine_threadsafe(self.consumer.fail(error, None), self.consumer.loop)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Makes Faust's check for partitions that do not move, but passes over partitions without a position.

        Partitions have no position right after a rebalance, and Faust's check would then end the worker.
        """
        with suppress(AssertionError):
            super().verify_event_path(now, tp)


def _watch_removals(state: Any, note: Callable[[int, int], None]) -> None:
    """Replaces the two methods of a partition's state that aiokafka calls after "offset out of range"."""
    await_reset, reset_to, wanted = state.await_reset, state.reset_to, None

    def note_wanted(strategy: int) -> None:
        nonlocal wanted
        if state._position is not None:
            wanted = state._position
        await_reset(strategy)

    def note_begin(position: int) -> None:
        nonlocal wanted
        reset_to(position)
        if wanted is not None:
            note(wanted, position)
        wanted = None

    state.await_reset, state.reset_to = note_wanted, note_begin
