"""`Subscription`: one member of a consumer group: it polls, gives partitions back in an orderly way, and commits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamapp._base.failpoints import hit
from streamapp.broker.batches import split
from streamapp.broker.consumer import committed_metadata
from streamapp.broker.librdkafka import opening
from streamapp.broker.refused import NO_TOPIC
from streamapp.broker.requests import committed
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.done_offsets import decode_done
from streamapp.consumer.lanes import Unit
from streamapp.consumer.offset_sinks import OffsetSink, SavedOffset, SinkFenced
from streamapp.consumer.sinking import Sinking
from streamapp.consumer.verdicts import short
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition

__all__ = ["Subscription"]

logger: logging.Logger = logging.getLogger(__name__)
CLIENT_LOGGER = logging.getLogger("streamapp.kafka")

_POLL_SECONDS = 0.1
_SHORT_POLL_SECONDS = 0.01
_MOST_RECORDS = 500
_PATIENCE_SECONDS = 60.0
_GONE_SECONDS = 15.0
"""After brokers were out of reach for so long, the client is opened anew: librdkafka may look for none again (librdkafka#5301)."""
_CLOSE_SECONDS = 10.0
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
_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)


class Subscription:
    """The client of one consumer, for one thread: confluent-kafka lets no two calls in at a time (since 2.16).

    Other threads may call `commit_first`.
    """

    def __init__(self, options: ConsumeOptions, dispatcher: Dispatcher, sinking: Sinking | None) -> None:
        self._options, self._dispatcher, self._sinking = options, dispatcher, sinking
        self._requests: SimpleQueue[tuple[set[TopicPartition], Future[bool]]] = SimpleQueue()
        """Commits that other threads ask for (at most once)."""
        self._commit_at = time.monotonic()
        self._gone_since: float | None = None
        self._asked_at = 0.0
        self._with_metadata = True
        self._settings = {**options.client(), "error_cb": self._on_error, "logger": CLIENT_LOGGER}
        self._client = self._open()

    def _open(self) -> Consumer:
        with opening(self._settings):
            client = Consumer(self._settings)
        client.subscribe(
            list(self._options.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        return client

    def check_topics(self) -> None:
        """Raises `ConfigError` for a topic that is not there; brokers that do not answer are not waited for."""
        for topic in self._options.topics:
            try:
                found = self._client.list_topics(topic, timeout=10.0).topics[topic].error
            except KafkaException:
                return
            if found is not None and found.code() in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
            ):
                raise ConfigError(
                    f"{self._options.name} reads the topic {topic}, which is not there. {NO_TOPIC}"
                )

    def poll(self) -> None:
        """Lets records in as far as there is room. Callbacks of a rebalance run in here."""
        self._serve()
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._options.commit_interval_ms / 1000
            self.commit()
        pause, resume = self._dispatcher.flow()
        if pause:
            self._flow(self._client.pause, pause)
        if resume:
            self._flow(self._client.resume, resume)
        first = self._client.poll(self._poll_seconds)
        if first is not None:
            batches, events = split([first, *self._client.consume(_MOST_RECORDS - 1, 0)])
            for source, batch in batches:
                self._dispatcher.take_in(source, batch)
            for event in events:
                self._check(event.error())
        self._look_for_brokers()

    @property
    def _poll_seconds(self) -> float:
        """A poll cannot be woken: where somebody may wait for the end of one, it is short."""
        if self._options.guarantee == "at_most_once" or self._dispatcher.any_paused:
            return _SHORT_POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, self._commit_at - time.monotonic()))

    def _flow(self, call: Callable[[list[KafkaPartition]], None], sources: Sequence[TopicPartition]) -> None:
        call([KafkaPartition(*source) for source in sources])

    def _check(self, error: KafkaError | None) -> None:
        if error is None:
            return
        if error.fatal() or error.code() in _REFUSED:
            raise BrokerError(f"{self._options.name} cannot go on reading: {error.str()}")
        logger.warning("%s: %s", self._options.name, error.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._gone_since is None:
            self._gone_since = time.monotonic()

    def _look_for_brokers(self) -> None:
        now, since = time.monotonic(), self._gone_since
        if since is None or now - self._asked_at < 2.0:
            return
        self._asked_at = now
        try:
            self._client.list_topics(self._options.topics[0], timeout=1.0)
            self._gone_since = None
        except KafkaException:
            if now - since > _GONE_SECONDS:
                logger.warning(
                    "%s: all brokers were out of reach: its client is opened anew", self._options.name
                )
                self._dispatcher.forget(self._dispatcher.sources)
                threading.Thread(target=self._client.close, daemon=True).start()
                self._gone_since = None
                self._client = self._open()

    # ------------------------------------------------------------------ partitions come and go

    def _on_assign(self, client: Consumer, partitions: list[KafkaPartition]) -> None:
        sources = [TopicPartition(each.topic, each.partition) for each in partitions]
        if not sources or client is not self._client:
            client.incremental_assign([])
            return
        try:
            found = committed(client, sources, seconds=_PATIENCE_SECONDS)
        except KafkaException as exc:
            raise BrokerError(
                f"the committed offsets of {self._options.name} are not known: {exc.args[0].str()}"
            ) from exc
        starts = []
        for source, each in zip(sources, found, strict=True):
            position, metadata, fence = each.offset, committed_metadata(each), 0
            if self._sinking is not None:
                saved = self._claim(self._sinking.sink, source)
                fence = saved.fence
                if saved.position >= 0:
                    position, metadata = saved.position, saved.metadata
            known = position >= 0
            done = decode_done(position, metadata) if known else []
            self._dispatcher.open(source, position if known else None, done, fence)
            starts.append(KafkaPartition(*source, position) if known else KafkaPartition(*source))
        client.incremental_assign(starts)
        logger.info("%s has %s", self._options.name, ", ".join(map(str, sources)))

    def _claim(self, sink: OffsetSink, source: TopicPartition) -> SavedOffset:
        deadline = time.monotonic() + self._options.config.max_poll_interval_ms / 2000
        while True:
            try:
                return sink.claim(self._options.name, source)
            except sink.failures as exc:
                if time.monotonic() > deadline or self._dispatcher.stopping:
                    raise
                logger.warning("%s cannot claim %s yet: %s", self._options.name, source, short(exc))
                time.sleep(0.5)

    def _on_revoke(self, client: Consumer, partitions: list[KafkaPartition]) -> None:
        if client is not self._client:  # an old one comes to its end
            client.incremental_unassign(partitions)
            return
        sources = [TopicPartition(each.topic, each.partition) for each in partitions]
        self.finish(sources, self._options.revoke_timeout_ms / 1000)
        self.commit(sources)
        self._give_back(client, partitions, sources)

    def _on_lost(self, client: Consumer, partitions: list[KafkaPartition]) -> None:
        if client is not self._client:
            client.incremental_unassign(partitions)
            return
        sources = [TopicPartition(each.topic, each.partition) for each in partitions]
        logger.warning(
            "%s has lost %s; nothing of them is committed any more",
            self._options.name,
            ", ".join(map(str, sources)),
        )
        self._give_back(client, partitions, sources)

    def _give_back(
        self, client: Consumer, partitions: list[KafkaPartition], sources: Sequence[TopicPartition]
    ) -> None:
        self._dispatcher.forget(sources)
        client.incremental_unassign(partitions)

    def finish(self, sources: Collection[TopicPartition], seconds: float) -> None:
        """Hands out nothing more of some partitions, and waits for what is in work."""
        self._dispatcher.close(sources, seconds, self._serve)

    # ------------------------------------------------------------------ commits

    def commit(self, sources: Collection[TopicPartition] | None = None) -> bool:
        """Commits what has got further; False: some of it is not committed, and comes with the next commit."""
        positions = self._dispatcher.positions(sources)
        if self._sinking is not None:
            positions = self._save(self._sinking, positions)
        return self._commit(positions)

    def _save(
        self, sinking: Sinking, positions: Mapping[TopicPartition, tuple[int, str]]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Writes positions that no transaction of a handler has: of records that were skipped, or are dead letters."""
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
            found: Any = self._client.commit(offsets=offsets, asynchronous=False)
            errors = [each.error for each in found if each.error is not None]
        except KafkaException as exc:
            errors = [exc.args[0]]
        if not errors:
            hit("consumer-committed")
            self._dispatcher.committed(positions)
            return True
        if errors[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE and self._with_metadata and not exact:
            logger.warning(
                "%s: brokers take no metadata of this size (offset.metadata.max.bytes); a restart repeats records that are done "
                "behind the first that is not",
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
        """At most once: commits that the records of units are done, and returns the units whose commit is certain."""
        waiting = list(units)
        while waiting and self._dispatcher.failure is None:
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

    def _serve(self) -> None:
        """Makes the commits that other threads wait for."""
        while not self._requests.empty():
            sources, done = self._requests.get()
            done.set_result(self.commit(sources))

    def close(self) -> None:
        """Commits, and leaves the group. Brokers that do not answer are not waited for."""
        self.commit()
        closing = threading.Thread(target=self._client.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
