"""The parts of `AgentTest` that stand in for Faust's producer and consumer."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from faust.sensors import Sensor
from faust.tables.sets import SetTable
from faust.topics import Topic
from faust.transport.producer import Producer
from faust.types import TP, FutureMessage, Message, RecordMetadata

__all__ = ["AgentContext"]


class AgentContext:
    """Faust's ``agent.test_context()``, whose messages stay in this process. ``show`` makes the record for a test."""

    def __init__(self, agent: Any, show: Callable[..., Any]) -> None:
        self._app = agent.app
        self._tested = agent.test_context()
        self._show = show
        self._progress = _Progress()
        self._offsets = itertools.count()
        self.sent: dict[str, list[Any]] = defaultdict(list)

    @property
    def results(self) -> list[Any]:
        """The yielded values. Without a ``yield``, Faust's results are the values of the records."""
        return list(self._tested.results.values()) if self._tested._agent_yields else []

    @property
    def open(self) -> int:
        """The number of records with which the agent has not finished."""
        return len(self._progress.given - self._progress.finished)

    def raise_failure(self) -> None:
        if self._tested.crash_reason is not None:
            raise self._tested.crash_reason

    async def put(
        self, value: Any, key: Any, timestamp: float | None, headers: Mapping[str, bytes] | None
    ) -> None:
        # Not `put` of Faust's context, which gives the record to the stream behind `through`.
        message = self._tested.to_message(
            key, value, offset=next(self._offsets), timestamp=timestamp, headers=headers
        )
        channel = self._tested._stream.channel
        self._progress.given.add((message.tp, message.offset))
        await channel.put(await channel.decode(message))

    async def __aenter__(self) -> None:
        self._app._reply_consumer.add = self._app.maybe_start_client = _refuse_request
        for table in self._app.tables.values():
            table._data = _in_memory(table)
        self._producer = self._app._producer
        self._app.producer = _Sends(self._app.producer_transport, self._send)
        self._app.sensors.add(self._progress)
        self._publish = Topic.publish_message
        Topic.publish_message = self._publisher(Topic.publish_message)
        await self._tested.__aenter__()

    async def __aexit__(self, *failure: Any) -> None:
        try:
            await self._tested.__aexit__(*failure)
        finally:
            Topic.publish_message = self._publish
            self._app.sensors.remove(self._progress)
            del self._app._reply_consumer.add, self._app.maybe_start_client
            self._app._producer = self._producer

    def _publisher(self, publish: Any) -> Any:
        """The function that stands in for ``Topic.publish_message`` of the tested App."""

        async def publish_here(topic: Any, future: FutureMessage, wait: bool = False) -> Any:
            if topic.app is not self._app:
                return await publish(topic, future, wait)
            metadata, message = self._send(future)
            await self._come_back(message)
            if wait:
                return await topic._finalize_message(future, metadata)
            future.set_result(metadata)
            return future

        return publish_here

    def _send(self, future: FutureMessage) -> tuple[RecordMetadata, Message]:
        """Notes a record that the agent sends. Changes of tables are left out."""
        sent = future.message
        topic = sent.channel
        name = topic.get_topic_name()
        at = TP(name, sent.partition or 0)
        message = Message(
            name,
            at.partition,
            next(self._offsets),
            sent.timestamp or 0.0,
            0,
            sent.headers,
            sent.key,
            sent.value,
            None,
            tp=at,
            generation_id=self._app.consumer_generation_id,
        )
        changelogs = {table.changelog_topic.get_topic_name() for table in self._app.tables.values()}
        if name not in changelogs:
            key = topic.schema.loads_key(self._app, message)
            value = topic.schema.loads_value(self._app, message)
            self.sent[name].append(
                self._show(key, value, dict(sent.headers or {}), sent.timestamp, sent.partition)
            )
        return RecordMetadata(name, at.partition, at, message.offset, sent.timestamp, 0), message

    async def _come_back(self, message: Message) -> None:
        """Gives a sent record to the streams of the agent that read its topic."""
        for topic in self._app.topics:
            if topic.is_iterator and message.topic in topic.topics:
                self._progress.given.add((message.tp, message.offset))
                await topic.put(await topic.decode(message, propagate=True))


def _in_memory(table: Any) -> Any:
    """An empty store for a table. A table of sets has a store of its own kind, which keeps its sets in this store."""
    store = table._new_store_by_url("memory://")
    if not isinstance(table, SetTable):
        return store
    sets = table._new_store()
    sets._storage = store
    return sets


async def _refuse_request(*_: Any) -> None:
    """Stands in for the two functions by which ``ask``, ``map`` and ``join`` begin to read answers from a broker."""
    raise NotImplementedError(
        "AgentTest gives ask, map and join no answers, because only the tested agent runs. Replace the asked agent by "
        "a function in this test, or test with a worker (WorkerProcess)"
    )


class _Progress(Sensor):  # type: ignore[misc]
    """Notes the records that the agent was given, and those with which the agent has finished."""

    def __init__(self) -> None:
        super().__init__()
        self.given: set[tuple[TP, int]] = set()
        self.finished: set[tuple[TP, int]] = set()

    def on_stream_event_out(self, tp: TP, offset: int, *_: Any, **__: Any) -> None:
        self.finished.add((tp, offset))


class _Sends(Producer):  # type: ignore[misc]
    """The producer of the tested App: notes the messages of ``send_soon``, among them the changes of tables."""

    def __init__(
        self, transport: Any, send: Callable[[FutureMessage], tuple[RecordMetadata, Message]]
    ) -> None:
        super().__init__(transport)
        self._note = send

    def send_soon(self, future: FutureMessage) -> None:
        future.set_result(self._note(future)[0])

    async def create_topic(self, *_: Any, **__: Any) -> None:
        """Does nothing, because no broker holds the topics."""
