"""The ids of topics, from requests that run while the worker does other work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streamapp.broker.requests import NO_TIMEOUT, REQUEST_SECONDS, LastingAdmin, ask
from streamapp.engine.metadata import topic_ids_in
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["LostTopic", "TopicIds", "committed_in_others", "ids_of"]

_ASK_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


def ids_of(admin: LastingAdmin, topics: Iterable[str], timeout: float = 60.0) -> dict[str, str]:
    """Kafka's ids of topics. A topic that was deleted and created anew has another id.

    Raises `BrokerError` for a topic that brokers do not know after ``timeout`` seconds.
    """
    names = sorted(topics)
    deadline = time.monotonic() + timeout
    found: dict[str, str] = {}
    while missing := [name for name in names if name not in found]:
        answers = ask(admin.describe_topics, TopicCollection(missing), seconds=min(timeout, REQUEST_SECONDS))
        for name, answer in answers.items():
            try:
                found[name] = str(answer.result().topic_id)
            except KafkaException as exc:  # a new topic does not reach all brokers at once
                if time.monotonic() > deadline:
                    raise BrokerError(f"the topic {name} is not known: {exc.args[0].str()}") from exc
                time.sleep(_PAUSE_SECONDS)
    return found


def committed_in_others(
    admin: LastingAdmin, committed: Mapping[TopicPartition, tuple[int, str]], timeout: float = 60.0
) -> set[TopicPartition]:
    """The partitions whose offset was committed in an earlier topic of this name, as the metadata says.

    ``committed`` has offsets with their metadata. Raises `BrokerError` as `ids_of` does.
    """
    named = {tp: ids for tp, (_, metadata) in committed.items() if (ids := topic_ids_in(metadata))}
    present = ids_of(admin, {tp.topic for tp in named}, timeout)
    return {tp for tp, ids in named.items() if present[tp.topic] not in ids}


class LostTopic(NamedTuple):
    """A topic that was deleted while the worker ran."""

    topic: str
    anew: bool
    """True if a new topic has the same name."""

    def __str__(self) -> str:
        return f"{self.topic} was deleted{' and created anew' if self.anew else ''} while this worker ran"

    @property
    def remedy(self) -> str:
        """The next steps, if the topic is one that an application reads with committed positions, or a changelog."""
        if not self.anew:
            return (
                "Stop all workers, and create the topic before the next start; a topic that only a pattern matches may "
                "stay away"
            )
        return (
            "The group's positions may belong to the old topic, so records of the new topic may have been passed over. "
            "To begin anew with the new topic, stop all workers and run `streamapp reset`"
        )


class TopicIds:
    """Notices that a topic was deleted, and perhaps created anew: the new topic has another id (KIP-516).

    A consumer does not notice. With a log that is long enough, the consumer goes on at its offset in the new topic. A
    topic counts as deleted if brokers do not know the topic at two looks in a row. One look is not enough: a broker
    that starts may not know all topics yet. ``ids`` are ids that are known already.
    """

    def __init__(
        self, admin: LastingAdmin, topics: Iterable[str], ids: Mapping[str, str] | None = None
    ) -> None:
        self._admin = admin
        self.topics: frozenset[str] = frozenset(topics)
        self._ids: dict[str, str] = dict(ids or {})
        self._absent: set[str] = set()
        """The topics that brokers did not know at the last look."""
        self._asked: Mapping[str, Future[Any]] = {}
        self._asked_at = 0.0

    def watch(self, topics: Iterable[str]) -> None:
        """Also watches these topics. The ids of the other topics stay known."""
        self.topics |= frozenset(topics)

    def lost(self) -> LostTopic | None:
        """A topic that was deleted since the first look. The method never waits for an answer."""
        found = None
        if self._asked and all(future.done() for future in self._asked.values()):
            asked, self._asked = self._asked, {}
            absent = set()
            for topic, future in asked.items():
                try:
                    id = str(future.result(0).topic_id)
                except KafkaException as exc:
                    if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and topic in self._ids:
                        absent.add(topic)
                    continue
                if self._ids.setdefault(topic, id) != id:
                    found = LostTopic(topic, anew=True)
            gone, self._absent = self._absent & absent, absent
            if gone and found is None:
                found = LostTopic(min(gone), anew=False)
        if self.topics and not self._asked and time.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._asked_at = time.monotonic()
            self._asked = self._admin.describe_topics(
                TopicCollection(sorted(self.topics)), request_timeout=NO_TIMEOUT
            )
        return found
