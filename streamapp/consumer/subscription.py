"""`Subscription`: one member of a consumer group, which polls, commits, and finishes work before a rebalance."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from streamapp.broker.batches import split
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.consumer import READ_RIGHTS, check_size, committed_metadata, lost_at_end
from streamapp.broker.librdkafka import opening
from streamapp.broker.log_ends import LogEnds
from streamapp.broker.refused import UNKNOWN, remedy_for
from streamapp.broker.requests import LastingAdmin, broker_error, committed, list_offsets
from streamapp.consumer.commits import Commits
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.dispatcher import Dispatcher
from streamapp.consumer.done_offsets import decode_done
from streamapp.consumer.outputs import HandlerOutputs
from streamapp.consumer.sinking import Sinking
from streamapp.consumer.topics_of_consumer import TopicsOfConsumer
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.first_offsets import FirstOffsets, first_new_partitions

__all__ = ["Subscription"]

logger: logging.Logger = logging.getLogger(__name__)
CLIENT_LOGGER = logging.getLogger("streamapp.kafka")

_POLL_SECONDS = 0.1
_SHORT_POLL_SECONDS = 0.01
_MOST_RECORDS = 500
_PATIENCE_SECONDS = 60.0
_GONE_SECONDS = 15.0
"""The time without any broker after which a new client is opened, because librdkafka may never connect again (issue
5301)."""
_CLOSE_SECONDS = 10.0
_ASK_SECONDS = 5.0
_BEGIN_SECONDS = 0.5
"""The longest time between two attempts to commit the begin of a partition."""
_NO_POSITION = -1
_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)


class Subscription:
    """The Kafka client of one consumer. Only one thread may call the object, because confluent-kafka refuses parallel
    calls.

    Other threads that need a commit ask `commits` for it.
    """

    def __init__(
        self,
        options: ConsumeOptions,
        dispatcher: Dispatcher,
        sinking: Sinking | None,
        outputs: HandlerOutputs | None,
    ) -> None:
        self._options, self._dispatcher, self._sinking = options, dispatcher, sinking
        self._member_seconds = options.member_seconds
        self._late_since: float | None = None
        """The time of a late poll; None while this consumer is certainly a member of its group."""
        self._commit_at = time.monotonic()
        self._moved: set[TopicPartition] = set()
        """Partitions that a rebalance took away during the last poll.

        If the poll still returns a record of such a partition, the record is dropped.
        """
        self._removed: dict[TopicPartition, int | range] = {}
        """The positions that the logs of their partitions lack, or the records that a log has lost at its end. Nothing
        is read there before a new position is set."""
        self._unled: dict[TopicPartition, tuple[int, str | None]] = {}
        """Partitions whose begin is not known before they have a leader -> the fence, and the id of the topic."""
        self._told: frozenset[TopicPartition] = frozenset()
        """The partitions without a leader of which the log has told."""
        self._gone_since: float | None = None
        self._said = ""
        """The last error of a connection that brings unreadable bytes."""
        self._asked_at = 0.0
        self._settings = {**options.client(), "error_cb": self._on_error, "logger": CLIENT_LOGGER}
        self._files = CertificateFiles(self._settings)
        self._first_offsets = FirstOffsets(
            options.name, lambda topic: options.config.auto_offset_reset, self._offset_at
        )
        self._client = self._open()
        # Without a log: the answers to the client's requests have the same errors.
        self._admin = LastingAdmin({**client_of(options.config), "log_level": 0})
        self._topics = TopicsOfConsumer(options, self._admin)
        self._log_ends = LogEnds(self._admin)
        self.commits: Commits = Commits(options, dispatcher, sinking, outputs, lambda: self._client)

    def _open(self) -> Consumer:
        with opening(self._settings) as current:
            client = Consumer(current)
        client.subscribe(
            list(self._options.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        return client

    def check_topics(self) -> None:
        """Raises `ConfigError` for a topic that does not exist. Without an answer in 10 s, the check is left out.

        Also notes the partitions in which the group has offsets (`FirstOffsets.first_new`).
        """
        for topic in self._options.topics:
            try:
                found = self._client.list_topics(topic, timeout=10.0).topics[topic].error
            except KafkaException:
                return
            if found is not None and found.code() in UNKNOWN:
                raise ConfigError(
                    f"{self._options.name} reads the topic {topic}, which does not exist. {remedy_for(found, topic)}"
                )
        with suppress(KafkaException):
            self._note_new_partitions(10.0)

    def _note_new_partitions(self, seconds: float) -> None:
        """Notes the first new partition of each topic, before this member gets partitions.

        Another member of a new group may soon commit the offsets at which its partitions begin. After this commit,
        partitions of this member would count as partitions that were added to the topic later.

        A rebalance calls this method inside a callback of the client. There, the client's own `list_topics` would let
        confluent-kafka end the process at the next callback. So another client asks for the partitions.
        """
        topics = [topic for topic in self._options.topics if self._first_offsets.moves(topic)]
        if self._first_offsets.first_new or not topics:
            return
        every = [
            TopicPartition(topic, number)
            for topic in topics
            for number in self._admin.list_topics(topic, seconds).topics[topic].partitions
        ]
        found = committed(self._client, every, seconds=seconds)
        first_new = first_new_partitions({tp: at.offset for tp, at in zip(every, found, strict=True)})
        self._first_offsets = replace(self._first_offsets, first_new=first_new)

    def poll(self) -> None:
        """Fetches records of partitions whose share of the buffer is not full, and commits if the commit interval is
        over.

        The callbacks of a rebalance also run in this call.
        """
        self.commits.serve()
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._options.commit_seconds
            self.commits.commit()
            self._hurry_begins()
            for source, position in self._dispatcher.begin_anew().items():
                self._client.seek(KafkaPartition(*source, position))
                self._flow(self._client.resume, [source])
        pause, resume = self._dispatcher.flow()
        if pause:
            self._flow(self._client.pause, pause)
        if resume:
            self._flow(self._client.resume, resume)
        began = time.monotonic()
        if self._dispatcher.overdue and self._late_since is None:
            self._late_since = began
        first = self._client.poll(self._poll_seconds)
        check_size(self._said)
        if first is None:
            self._confirm(began, found_all=True)
        else:
            self._moved.clear()
            more = self._client.consume(_MOST_RECORDS - 1, 0)
            self._confirm(began, found_all=len(more) < _MOST_RECORDS - 1)
            if (first.topic(), first.partition()) not in self._moved:
                more.insert(0, first)
            batches, events = split(more)
            for source, batch in batches:
                self._dispatcher.take_in(source, batch)
            for event in events:
                self._check(event)
        if self._removed:
            self._go_on_where_there_are_records()
        self._look_for_brokers()
        self._follow_files()
        self._topics.check_ids()
        self._look_at_ends()

    def _look_at_ends(self) -> None:
        """Learns the ends of the logs, and begins to read partitions that have a leader now."""
        ends = self._log_ends.look(self._dispatcher.sources)
        self._dispatcher.log_ends |= ends
        if led := [source for source in self._unled if source in ends]:
            self._begin_late(led)
        unled = self._dispatcher.leaderless = self._log_ends.leaderless.union(self._unled)
        if unled != self._told:
            for source in sorted(unled - self._told):
                logger.warning(
                    "%s waits for a leader of %s. Other partitions go on", self._options.name, source
                )
            self._told = unled

    def _begin_late(self, led: Sequence[TopicPartition]) -> None:
        """Opens partitions anew at the begin that ``auto_offset_reset`` chooses."""
        begins = self._begins(led)
        for source, begin in begins.items():
            fence, topic_id = self._unled.pop(source)
            self._dispatcher.forget([source])
            self._dispatcher.open(source, begin, (), fence, topic_id, new_begin=True)
            self._flow(self._client.resume, [source])
            self._client.incremental_unassign([KafkaPartition(*source)])
            self._client.incremental_assign([KafkaPartition(*source, begin)])
        if begins:
            self.commits.commit(begins)
            self._hurry_begins()

    def _confirm(self, began: float, *, found_all: bool) -> None:
        """Confirms the membership in the group after a poll that began at the time ``began``.

        After a late poll, the group may have removed this member. A revocation then waits behind the records that
        librdkafka has fetched. So the membership is confirmed by a poll that finds all these records (``found_all``), a
        moment later. A poll that finds nothing may never come, because records may arrive all the time.
        """
        now = time.monotonic()
        if self._late_since is None:
            if self._dispatcher.overdue:
                self._late_since = now
            else:
                self._dispatcher.confirm(self._member_seconds)
        elif now - began >= self._member_seconds:
            self._late_since = now
        elif found_all and now - self._late_since >= _POLL_SECONDS:
            self._late_since = None
            self._dispatcher.confirm(self._member_seconds)

    def _hurry_begins(self) -> None:
        """Brings the next commit forward while the handler waits for the commit of a begin."""
        if self._dispatcher.has_new_begins:
            self._commit_at = min(self._commit_at, time.monotonic() + _BEGIN_SECONDS)

    @property
    def _poll_seconds(self) -> float:
        """The duration of the next poll. Nothing can end a poll early, so it is short if a thread may wait for its
        end."""
        if self._options.guarantee == "at_most_once" or self._dispatcher.paused:
            return _SHORT_POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, self._commit_at - time.monotonic()))

    def _flow(self, call: Callable[[list[KafkaPartition]], None], sources: Sequence[TopicPartition]) -> None:
        call([KafkaPartition(*source) for source in sources])

    def _check(self, event: Message) -> None:
        error = event.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._dispatcher.reach_end(TopicPartition(event.topic(), event.partition()), event.offset())
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            source = TopicPartition(event.topic(), event.partition())
            self._removed[source] = lost_at_end(error) or event.offset()
            return
        if error.fatal() or error.code() in _REFUSED:
            text = f"{self._options.name} cannot go on reading: {error.str()}"
            raise broker_error(text, error, READ_RIGHTS)
        logger.warning("%s: %s", self._options.name, error.str())

    def _go_on_where_there_are_records(self) -> None:
        """Moves positions that their logs lack to the place that ``auto_offset_reset`` chooses."""
        for source, gone in list(self._removed.items()):
            position = gone.start if isinstance(gone, range) else gone
            try:
                first, end = self._client.get_watermark_offsets(KafkaPartition(*source), timeout=_ASK_SECONDS)
                known = position <= end  # a position that the log has is right: a broker was out of date
                begin = self._first_offsets.of(source, position if known else _NO_POSITION, first, end)
            except KafkaException as exc:
                logger.warning(
                    "%s: the records of %s are not known, and are asked for again: %s",
                    self._options.name,
                    source,
                    exc.args[0].str(),
                )
                return
            if isinstance(gone, range):
                logger.warning(
                    "%s: %s has lost records %d to %d, which were read. An unclean leader election is one cause. "
                    "Reading goes on at %d with the records that have these offsets now",
                    self._options.name,
                    source,
                    gone.start,
                    gone.stop - 1,
                    begin,
                )
            elif known:
                self._dispatcher.removed.note(source, position, begin)
            else:
                logger.warning(
                    "%s: the position in %s is %d, but the topic ends at %d: the topic was deleted and created anew, "
                    "or has lost records. Reading begins anew at %d",
                    self._options.name,
                    source,
                    position,
                    end,
                    begin,
                )
            # librdkafka refuses a seek in a partition whose position is gone.
            self._client.incremental_unassign([KafkaPartition(*source)])
            self._client.incremental_assign([KafkaPartition(*source, begin)])
            del self._removed[source]

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._gone_since is None:
            self._gone_since = time.monotonic()
        if error.code() == KafkaError._BAD_MSG:
            self._said = error.str()

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
                self._join_anew(0.0)

    def _follow_files(self) -> None:
        """Joins the group anew after a change of the certificate files. First waits for the calls of the handler and
        commits, as in a rebalance."""
        if self._files.changed():
            sources = self._dispatcher.sources
            self.finish(sources, self._options.revoke_timeout_ms / 1000)
            self.commits.commit(sources)
            # Brokers refuse a static member that comes before its predecessor has left (KIP-848).
            self._join_anew(_CLOSE_SECONDS)

    def _join_anew(self, seconds: float) -> None:
        """Joins the group with a new client. Before, waits up to ``seconds`` until the old client has left the
        group."""
        self._dispatcher.forget(self._dispatcher.sources)
        self._removed.clear()
        self._unled.clear()
        self._leave(seconds)
        self._gone_since = None
        self._client = self._open()

    def _leave(self, seconds: float) -> None:
        closing = threading.Thread(target=self._client.close, daemon=True)
        closing.start()
        closing.join(seconds)

    # ------------------------------------------------------------------ partitions come and go

    def _on_assign(self, client: Consumer, partitions: list[KafkaPartition]) -> None:
        sources = [TopicPartition(each.topic, each.partition) for each in partitions]
        if not sources or client is not self._client:
            client.incremental_assign([])
            return
        self.commits.settle()
        try:
            found = committed(client, sources, seconds=_PATIENCE_SECONDS)
        except KafkaException as exc:
            raise BrokerError(
                f"the committed offsets of {self._options.name} are not known: {exc.args[0].str()}"
            ) from exc
        in_kafka: dict[TopicPartition, tuple[int, str]] = {}
        in_database: dict[TopicPartition, tuple[int, str]] = {}
        fences: dict[TopicPartition, int] = {}
        for source, each in zip(sources, found, strict=True):
            if self._sinking is not None:
                saved = self._sinking.claim(source)
                fences[source] = saved.fence
                if saved.position >= 0:
                    in_database[source] = saved.position, saved.metadata
                    continue
            if each.offset >= 0:
                in_kafka[source] = each.offset, committed_metadata(each)
        ids = self._topics.ids_at_assignment({source.topic for source in sources}, in_kafka, in_database)
        known = in_kafka | in_database
        begins = self._begins([source for source in sources if source not in known])
        starts = []
        for source in sources:
            fence, topic_id = fences.get(source, 0), ids.get(source.topic)
            if source in known:
                done = decode_done(*known[source])
                self._dispatcher.open(source, known[source][0], done, fence, topic_id)
                starts.append(KafkaPartition(*source, known[source][0]))
            elif source in begins or not self._first_offsets.moves(source.topic):
                self._dispatcher.open(
                    source, begins.get(source), (), fence, topic_id, new_begin=source in begins
                )
                starts.append(KafkaPartition(*source, begins.get(source, OFFSET_BEGINNING)))
            else:
                self._dispatcher.open(source, None, (), fence, topic_id)
                self._unled[source] = fence, topic_id
                starts.append(KafkaPartition(*source, OFFSET_END))
        client.incremental_assign(starts)
        self._flow(client.pause, sorted(self._unled))
        if begins:
            self.commits.commit(begins)
            self._hurry_begins()
        logger.info("%s has %s", self._options.name, ", ".join(map(str, sources)))

    def _begins(self, new: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The begin of each partition without a position, if a later start would begin elsewhere.

        Such a begin is committed before the first call with a record of the partition. Otherwise a consumer that is
        killed before its first commit would leave out the records between. The result lacks partitions without a
        leader.
        """
        moving = [source for source in new if self._first_offsets.moves(source.topic)]
        if not moving:
            return {}
        try:
            self._note_new_partitions(_PATIENCE_SECONDS)
            return {
                source: self._first_offsets.of(source, _NO_POSITION, *span)
                for source, span in self._spans(moving, _PATIENCE_SECONDS).items()
            }
        except KafkaException as exc:
            raise BrokerError(f"the logs of {self._options.name} are not known: {exc.args[0].str()}") from exc

    def _spans(
        self, sources: Sequence[TopicPartition], seconds: float
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the end of each log. The result lacks partitions without a leader.

        Raises `BrokerError` after ``seconds``.
        """
        look = partial(list_offsets, self._admin, read_committed=True, seconds=seconds, leaderless=set())
        first = look(sources, OffsetSpec.earliest())
        ends = look(first, OffsetSpec.latest())
        return {source: (first[source], end) for source, end in ends.items()}

    def _offset_at(self, source: TopicPartition, timestamp: int) -> int:
        (found,) = self._client.offsets_for_times(
            [KafkaPartition(*source, timestamp)], timeout=_PATIENCE_SECONDS
        )
        if found.error is not None:
            raise KafkaException(found.error)
        offset: int = found.offset
        return offset

    def _on_revoke(self, client: Consumer, partitions: list[KafkaPartition]) -> None:
        if client is not self._client:  # an old one comes to its end
            client.incremental_unassign(partitions)
            return
        sources = [TopicPartition(each.topic, each.partition) for each in partitions]
        self.finish(sources, self._options.revoke_timeout_ms / 1000)
        self.commits.commit(sources)
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
        self._moved.update(sources)
        # librdkafka keeps a pause, also for the next assignment of the partition to this member.
        if paused := {*self._dispatcher.paused, *self._unled}.intersection(sources):
            self._flow(client.resume, sorted(paused))
        self._dispatcher.forget(sources)
        for source in sources:
            self._removed.pop(source, None)
            self._unled.pop(source, None)
        client.incremental_unassign(partitions)

    def finish(self, sources: Collection[TopicPartition], seconds: float) -> None:
        """Gives the handler no more records of these partitions, and waits up to ``seconds`` for the calls that have
        begun."""
        self._dispatcher.close(sources, seconds, self.commits.serve)

    def close(self) -> None:
        """Commits and leaves the group. Waits at most 10 s for brokers to answer the leave."""
        try:
            self.commits.commit()
        finally:
            self._leave(_CLOSE_SECONDS)
            self.commits.close()
