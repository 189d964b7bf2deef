"""Messages of agents and changes of Faust's tables. With exactly_once_v2, both wait for the commit of their record.

When a commit comes, agents may still process some records of a partition. So each message is bound to the record for
which the agent sent it, and goes into the transaction that commits this record. Messages with ``force=True`` do not
wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from aiokafka.errors import InvalidTimestampError, KafkaConnectionError, MessageSizeTooLargeError
from confluent_kafka import KafkaError
from confluent_kafka.cimpl import NewTopic
from faust.app._attached import Attachments
from faust.exceptions import ProducerSendError
from faust.streams import current_event
from faust.transport.drivers import aiokafka as driver
from faust.transport.producer import ProducerBuffer
from faust.types import TP, ChannelT, FutureMessage, HeadersArg, Message, RecordMetadata, TopicT
from mode.utils.times import Seconds, want_seconds

from streamapp.broker.refused import REMEDIES
from streamapp.config import StreamsConfig
from streamapp.engine.judging import record_at, with_clock
from streamapp.errors import BrokerError, StreamsError
from streamapp.records import Headers, OutputRecord
from streamapp.runners.connection import client_of
from streamapp.runners.worker.agents.taken_batches import RecordMoved, batch_under_work, witnesses_under_work
from streamapp.runners.worker.clients import admin_client, find_topics, unreachable
from streamapp.runners.worker.topics import create_topics

__all__ = [
    "PARTITIONS_OF_TABLE",
    "WRITTEN",
    "AgentProducer",
    "BoundMessage",
    "BoundSends",
    "ms_of",
    "pairs_of",
    "refused_of",
    "seconds_of",
]


logger: logging.Logger = logging.getLogger(__name__)

_UNTAKEN_SECONDS = 30.0
"""A worker whose message brokers have not taken for this long is stuck."""
_START_SECONDS = 60.0
"""A start waits this long for brokers that are away."""
_TELL_SECONDS = 20.0
"""The longest time to wait until brokers tell a new topic. A client without rights to the topic never sees it."""
PARTITIONS_OF_TABLE = (
    "give the table as many partitions as the topic (partitions= of the table, or of group_by). If the changelog or "
    "the topic of group_by has another number, stop all workers and run `streamapp reset`, which deletes both; agents "
    "then read their topics anew"
)
"""The remedy if a topic of agents has another number of partitions than the changelog of a table."""
_SMALLER = REMEDIES[KafkaError.MSG_SIZE_TOO_LARGE]
_NO_PARTITION = REMEDIES[KafkaError._UNKNOWN_PARTITION]
WRITTEN = "streamapp"
"""The header of each row that agents write into the changelog of a table. Plain Faust writes and reads none."""
_RECORD_BYTES = 70
"""The approximate bytes of a record beside its key and value."""


class BoundMessage(NamedTuple):
    """A message, the record that the message belongs to, and its number among all messages of the worker."""

    number: int
    record: TP
    offset: int
    future: FutureMessage
    table: TP | None
    """The partition of a table's changelog, if the message is a change of that table."""
    batch: tuple[Message, ...] = ()
    """The records of the batch (``stream.take()``) on which the agent worked. They are committed together."""
    letter: str = ""
    """The failure of the record, in words, if the message is its dead letter."""

    @property
    def size(self) -> int:
        message = self.future.message
        return _RECORD_BYTES + len(message.key or b"") + len(message.value or b"")


def seconds_of(timestamp: int | None) -> float | None:
    """The timestamp of a record (ms) in seconds, as Faust takes it. None: the time of sending."""
    return None if timestamp is None or timestamp < 0 else _exact_seconds(timestamp)


def _exact_seconds(timestamp: int) -> float:
    """The seconds of which Faust's producer makes the same timestamp (ms). The producer rounds towards 0.

    >>> int(1.001 * 1000), int(_exact_seconds(1_001) * 1000), int(_exact_seconds(-1_001) * 1000)
    (1000, 1001, -1001)
    """
    seconds = timestamp / 1000
    return (
        seconds
        if int(seconds * 1000) == timestamp
        else math.nextafter(seconds, math.copysign(math.inf, timestamp))
    )


def ms_of(seconds: float | None) -> int | None:
    """The timestamp of a message of Faust (seconds) in ms."""
    return None if seconds is None else round(seconds * 1000)


def pairs_of(headers: HeadersArg | None) -> Headers:
    """The headers of a message of Faust, as pairs.

    Agents may give a dict of headers to a message that they send. Records that agents read already have pairs.
    """
    return tuple(headers.items() if isinstance(headers, Mapping) else headers or ())


def refused_of(record: TP, offset: int, topic: str) -> str:
    """The first words of the error for a message that brokers refuse."""
    return f"{record_at(record.topic, record.partition, offset)} gave a result that {topic} does not take"


class _SentAtCommit(FutureMessage):  # type: ignore[misc]
    """The future of a bound message, which is done when the message's record is committed.

    The commit waits for the agent, so the agent must not wait for the future.
    """

    def __init__(self, message: Any, record: Message) -> None:
        super().__init__(message)
        self._record = record

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done() and not self._record.acked and _current_record() is self._record:
            raise StreamsError(
                "an agent cannot wait for its own message: with exactly_once_v2 a message arrives when its record is "
                "committed, and the commit waits for the agent. Leave out the second await; or send outside the "
                "transaction, with force=True"
            )
        return super().__await__()  # type: ignore[no-any-return]

    __iter__ = __await__


def _current_record() -> Message | None:
    """The record on which the agent works; of a batch, the last record."""
    event = current_event()
    return None if event is None else event.message


class BoundSends(Attachments):  # type: ignore[misc]
    """Faust's attachments: ``topic.send`` asks this object if a message has to wait for a commit."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._numbers = itertools.count()
        self._bound: MutableMapping[TP, list[BoundMessage]] = defaultdict(list)

    @property
    def enabled(self) -> bool:
        """True with exactly_once_v2, while an agent works on a record of a topic whose offsets are committed."""
        return self._record() is not None

    def _record(self) -> Message | None:
        if not self.app.config.exactly_once:
            return None
        record = _current_record()
        return record if record is not None and self.app.topics.acks_enabled_for(record.topic) else None

    async def maybe_put(
        self, channel: ChannelT[Any] | str, *args: Any, force: bool = False, **kwargs: Any
    ) -> Any:
        in_memory = not isinstance(channel, str | TopicT)
        return await super().maybe_put(channel, *args, force=force or in_memory, **kwargs)

    def put(
        self, message: Message, channel: str | ChannelT[Any], *args: Any, letter: str = "", **kwargs: Any
    ) -> FutureMessage:
        topic = self.app.topic(channel) if isinstance(channel, str) else channel
        future = _SentAtCommit(topic.as_future_message(*args, **kwargs).message, message)
        self._bind(message, future, letter=letter)
        return future

    def take_over(self, future: FutureMessage) -> bool:
        """Binds a message that Faust would send soon, such as a table's change.

        False: no agent works on a record, or the guarantee is at_least_once.
        """
        record = self._record()
        if record is not None:
            self._bind(record, future)
        return record is not None

    def _bind(self, record: Message, future: FutureMessage, *, letter: str = "") -> None:
        batch = batch_under_work()
        if not all(map(self.app.consumer.has, witnesses_under_work() or (record,))):
            raise RecordMoved("the record belongs to another worker now; Faust starts the agent anew")
        message = future.message
        topic = message.channel.get_topic_name()
        table = TP(topic, message.partition) if topic in self.app.tables.changelog_topics else None
        bound = BoundMessage(next(self._numbers), record.tp, record.offset, future, table, batch, letter)
        self._bound[record.tp].append(bound)

    # For the commit.

    def trim(self, positions: dict[TP, int]) -> None:
        """Lowers the positions that the next commit writes, so that the commit has whole batches and whole histories.

        If an agent has sent messages for a batch (``take``), the commit has either all records of the batch or none. A
        commit with a change of a table also has all earlier changes of the same table partition. A change may be
        computed from an earlier change.
        """
        changes: MutableMapping[TP, list[BoundMessage]] = defaultdict(list)
        batches: dict[tuple[TP, int], tuple[Message, ...]] = {}
        for bound in self._all():
            if bound.table is not None:
                changes[bound.table].append(bound)
            if bound.batch:
                batches[bound.record, bound.offset] = bound.batch
        lowered = True
        while lowered:
            lowered = False
            for batch in batches.values():
                if all(each.offset < positions.get(each.tp, -1) for each in batch):
                    continue
                for each in batch:
                    if each.offset < positions.get(each.tp, -1):
                        positions[each.tp] = each.offset
                        lowered = True
            for written in changes.values():
                behind = False
                for bound in written:
                    if bound.offset >= positions.get(bound.record, -1):
                        behind = True
                    elif behind:
                        positions[bound.record] = bound.offset
                        lowered = True

    def shorten(self, positions: dict[TP, int], most_bytes: int) -> int:
        """Lowers positions until the messages of the records below them have at most ``most_bytes``.

        The limit doubles until at least one message fits, so that commits never stop. Returns the bytes of all messages
        below the original positions.
        """
        wanted, messages = dict(positions), self.of(positions)
        total = sum(bound.size for bound in messages)
        limit = most_bytes
        while total > limit:
            size = 0
            for bound in messages:
                size += bound.size
                if size > limit:
                    positions[bound.record] = min(positions[bound.record], bound.offset)
            self.trim(positions)
            if self.of(positions):
                break
            # The messages of one record exceed the limit, or several records have to be committed together.
            positions.update(wanted)
            limit *= 2
        return total

    def of(self, positions: Mapping[TP, int]) -> list[BoundMessage]:
        """The messages of all records below the positions, in the order of sending."""
        return [bound for bound in self._all() if bound.offset < positions.get(bound.record, -1)]

    def _all(self) -> list[BoundMessage]:
        return sorted(itertools.chain.from_iterable(self._bound.values()), key=lambda bound: bound.number)

    async def sent(self, messages: Iterable[BoundMessage]) -> None:
        """Removes messages that are committed, sets the results of their futures, and calls their callbacks."""
        gone = {bound.number for bound in messages}
        for tp, waiting in self._bound.items():
            self._bound[tp] = [bound for bound in waiting if bound.number not in gone]
        for bound in messages:
            future, message = bound.future, bound.future.message
            if future.done():
                continue
            topic = message.channel.get_topic_name()
            partition = -1 if message.partition is None else message.partition
            future.set_result(
                RecordMetadata(topic, partition, TP(topic, partition), -1, message.timestamp, None)
            )
            if message.callback is not None:
                try:
                    called = message.callback(future)
                    if asyncio.iscoroutine(called):
                        await called
                except Exception:  # the message is committed, so the worker goes on, as with at_least_once
                    logger.exception("the callback of a message for %s has raised", topic)

    def forget(self) -> set[str]:
        """Drops all messages that are not committed.

        Returns the changelogs of the tables that already show such a change.
        """
        dropped = self._all()
        self._bound.clear()
        for bound in dropped:
            bound.future.cancel()
        return {bound.table.topic for bound in dropped if bound.table is not None}


def _create_missing(config: StreamsConfig, topic: NewTopic) -> None:
    """Creates a topic, and waits until brokers tell the topic to their clients, which may be a moment later.

    A member that leads the group and does not see the topic yet assigns none of its partitions. Agents would get no
    record of the topic before the next look at all topics, a minute later.
    """
    admin = admin_client(config)
    # Brokers refuse the request for an existing topic, too, if the client has no right to create topics.
    if topic.topic not in find_topics(config, admin, _START_SECONDS).topics:
        create_topics(admin, [topic], _START_SECONDS)
        deadline = time.monotonic() + _TELL_SECONDS
        while (
            topic.topic not in find_topics(config, admin, _START_SECONDS).topics
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)


class _Buffer(ProducerBuffer):  # type: ignore[misc]
    """Faust's buffer of changes of tables. An error goes to the future of its message, which `AgentProducer.settle`
    waits for. Faust's own buffer crashes, and the stop of the worker then waits for the future in vain."""

    async def _send_pending(self, fut: FutureMessage) -> None:
        try:
            await super()._send_pending(fut)
        except Exception as exc:
            if not fut.done():
                fut.set_exception(exc)


class AgentProducer(driver.Producer):  # type: ignore[misc]
    """Faust's producer. With exactly_once_v2, messages that belong to a record do not go through this producer, unless
    an agent sends them with ``force=True``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.app.conf.producer_threaded:  # the thread has a queue of its own
            self.buffer: ProducerBuffer = _Buffer(loop=self.loop, beacon=self.beacon)
            self.buffer.app = self.app
        self._under_way: dict[asyncio.Future[Any], tuple[str, float]] = {}
        """Messages that brokers have not taken yet, each with its topic and the moment of sending."""
        self._sends_letter = asyncio.Lock()
        self._failure: BrokerError | None = None

    async def on_start(self) -> None:
        """Raises `BrokerError` if no broker answers, for example a command such as ``faust send``."""
        try:
            await super().on_start()
        except KafkaConnectionError as exc:
            error = KafkaError(KafkaError._TRANSPORT, str(exc))
            raise unreachable(client_of(self.app.config), error) from exc

    def send_soon(self, fut: FutureMessage) -> None:
        message = fut.message
        topic = message.channel.get_topic_name()
        if topic in self.app.tables.changelog_topics:
            if message.partition is not None:
                self._check_owner(TP(topic, message.partition))
            fut.message = message._replace(headers={**dict(message.headers or ()), WRITTEN: b""})
        if not self.app._attachments.take_over(fut):
            self._watch(fut, topic)
            super().send_soon(fut)

    def _check_owner(self, changelog: TP) -> None:
        """Raises `BrokerError` for a change of a table's partition that another worker has.

        This worker has not restored the partition, so the row would begin anew.
        """
        record = _current_record()
        if record is None or not self.app.topics.acks_enabled_for(record.topic):
            return
        if changelog.partition >= (self.app.consumer.topic_partitions(changelog.topic) or 0):
            return  # nobody has a partition that the changelog lacks; brokers refuse the change, with another remedy
        if self.app.consumer.has(record) and not self.app.assignor.is_active(changelog):
            if self.app.tables._changelogs[changelog.topic].use_partitioner:
                why = (
                    "The table has use_partitioner=True, so the key of a row chooses its partition. Regroup the stream "
                    "by the keys of the rows (group_by), or leave use_partitioner out"
                )
            else:
                why = (
                    f"Only some workers read {record.topic}. If workers of another version run, stop all of them "
                    "before this version starts. Otherwise let an agent, which all workers run, read the topic"
                )
            raise BrokerError(
                f"{record_at(record.topic, record.partition, record.offset)} changes a table, but this worker does not "
                f"have partition {changelog.partition} of {changelog.topic}, so the row would begin anew. {why}"
            )

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        *,
        config: Mapping[str, Any] | None = None,
        retention: Seconds | None = None,
        compacting: bool | None = None,
        deleting: bool | None = None,
        **_: Any,
    ) -> None:
        """Creates a topic of an agent or a table, unless the topic exists.

        The request waits for a broker that is away. aiokafka's client would end the worker at once.
        """
        kept = None if retention is None else round(want_seconds(retention) * 1000)
        settings = self.transport._topic_config(kept, compacting, deleting)
        texts = {name: str(value) for name, value in {**settings, **(config or {})}.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=texts)
        await asyncio.to_thread(_create_missing, self.app.config, new)
        await self._ensure_producer().client.force_metadata_update()

    async def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        partition: Any,
        timestamp: float | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        exact = None if timestamp is None else _exact_seconds(round(timestamp * 1000))
        try:
            future = await super().send(topic, key, value, partition, exact, *args, **kwargs)
        except ProducerSendError as exc:
            if isinstance(exc.__cause__, MessageSizeTooLargeError):
                raise ProducerSendError(f"{exc.__cause__}. {_SMALLER}") from exc
            raise
        self._watch(future, topic)
        return future

    async def send_letter(self, letter: OutputRecord) -> None:
        """Sends a dead letter, and returns when brokers have it. Raises `BrokerError` if brokers do not take it."""
        delivery = asyncio.ensure_future(self._deliver(letter))
        self._under_way[delivery] = letter.topic, time.monotonic()
        delivery.add_done_callback(lambda done: self._under_way.pop(done, None))
        try:
            await asyncio.shield(delivery)
        except asyncio.CancelledError:
            self._watch(delivery, letter.topic)  # the next commit has to see a failure
            raise
        except Exception as exc:  # aiokafka and Faust have errors of their own
            raise BrokerError(f"{type(exc).__name__}: {exc}") from exc

    async def _deliver(self, letter: OutputRecord) -> None:
        # Brokers refuse a request as a whole, so each letter has a request of its own.
        async with self._sends_letter:
            try:
                await self._confirmed(letter)
            except InvalidTimestampError:
                again = with_clock(letter, int(time.time() * 1000))
                if again is None:
                    raise
                await self._confirmed(again)

    async def _confirmed(self, letter: OutputRecord) -> None:
        await self.maybe_start()
        at, headers = seconds_of(letter.timestamp), list(letter.headers)
        await (await super().send(letter.topic, letter.key, letter.value, letter.partition, at, headers))

    def _advice(self, failed: BaseException, topic: str) -> str:
        if isinstance(failed, MessageSizeTooLargeError):
            return f". {_SMALLER}"
        # aiokafka has no class for this error.
        if isinstance(failed, AssertionError) and str(failed) == "Unrecognized partition":
            of_table = topic in self.app.tables.changelog_topics
            return f"; {PARTITIONS_OF_TABLE}" if of_table else f". {_NO_PARTITION}"
        return ""

    def _watch(self, future: asyncio.Future[Any], topic: str) -> None:
        record = _current_record()
        who = f"a message for {topic} could not be written"
        if record is not None and self.app.topics.acks_enabled_for(record.topic):
            who = refused_of(record.tp, record.offset, topic)

        def on_done(future: asyncio.Future[Any]) -> None:
            self._under_way.pop(future, None)
            if not future.cancelled() and (failed := future.exception()) is not None:
                advice = self._advice(failed, topic)
                self._failure = self._failure or BrokerError(
                    f"{who}: {type(failed).__name__}: {failed}{advice}"
                )

        self._under_way[future] = topic, time.monotonic()
        future.add_done_callback(on_done)

    @property
    def stuck(self) -> str | None:
        """The topics whose messages brokers do not take, so that agents cannot commit. None: there is no such topic.

        Any thread may ask. aiokafka sends a message again for up to 20 minutes, which is Faust's default.
        """
        now = time.monotonic()
        waiting = [(topic, now - at) for topic, at in list(self._under_way.values())]
        topics = sorted({topic for topic, seconds in waiting if seconds > _UNTAKEN_SECONDS})
        if not topics:
            return None
        longest = max(seconds for _, seconds in waiting)
        return (
            f"agents cannot commit, because brokers have not taken messages for {', '.join(topics)} "
            f"for {longest:.0f} s. Check that the topic exists, and that its partitions have leaders"
        )

    def key_partition(self, topic: str, key: bytes) -> TP:
        """The partition of a key. Raises `KeyError` while the topic is not known.

        Faust's own method asks the producer's client, which knows only topics that it has sent to.
        """
        partition = self.app.consumer.key_partition(topic, key, None)
        if partition is None:
            raise KeyError(topic)
        return TP(topic, partition)

    async def settle(self) -> None:
        """Returns when all earlier messages have arrived. Raises `BrokerError` if one could not be written."""
        while self._under_way:  # a future that is done stays here until its callback has noted a failure
            await asyncio.wait([*self._under_way])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
