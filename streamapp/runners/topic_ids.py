"""The ids of topics, from requests that run while the worker does other work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streamapp._base.names import NO_TOPIC_ID
from streamapp.broker.requests import NO_TIMEOUT, LastingAdmin

__all__ = ["LostTopic", "TopicIds"]

_ASK_SECONDS = 30.0


class LostTopic(NamedTuple):
    """A topic that was deleted while the worker ran."""

    topic: str
    anew: bool
    """True if a new topic has the same name."""

    def __str__(self) -> str:
        return f"{self.topic} was deleted{' and created anew' if self.anew else ''} while this worker ran"

    @property
    def remedy(self) -> str:
        """The next steps. The text fits topics that an application reads with committed positions, and changelogs."""
        if not self.anew:
            return (
                "Stop all workers, and create the topic before the next start. A changelog would be empty: run "
                "`streamapp reset` to compute its table anew"
            )
        return (
            "The group's positions may belong to the old topic, so records of the new topic may have been passed over. "
            "To begin anew with the new topic, stop all workers and run `streamapp reset`"
        )


class TopicIds:
    """Notices that a topic was deleted, and perhaps created anew: the new topic has another id (KIP-516).

    A consumer does not notice. If the new log is long enough, the consumer goes on at its old offset in the new topic.

    A topic with another id than before counts as created anew as soon as one look shows the new id. A topic that
    brokers do not know counts as deleted only after two looks in a row. One look is not enough: a broker that starts
    may not know all topics yet. If brokers without ids (`NO_TOPIC_ID`) name an id after an upgrade, the topic does not
    count as created anew. ``ids`` are ids that are known already.
    """

    def __init__(
        self, admin: LastingAdmin, topics: Iterable[str], ids: Mapping[str, str] | None = None
    ) -> None:
        self._admin = admin
        self.topics: frozenset[str] = frozenset(topics)
        self.may_go: frozenset[str] = frozenset()
        """The topics among ``topics`` whose deletion `lost` does not report."""
        self._ids: dict[str, str] = dict(ids or {})
        self._absent: set[str] = set()
        """The topics that brokers did not know at the last look."""
        self.partitions: dict[str, int] = {}
        """The partition counts of topics at the last look."""
        self._asked: Mapping[str, Future[Any]] = {}
        self._asked_at = 0.0

    def watch(self, topics: Iterable[str]) -> None:
        """Also watches these topics. The ids of the other topics stay known."""
        self.topics |= frozenset(topics)

    def watch_only(self, topics: Iterable[str], may_go: Iterable[str] = ()) -> None:
        """Watches exactly these topics. A topic of ``may_go`` may be deleted, but not created anew."""
        self.topics, self.may_go = frozenset(topics), frozenset(may_go)
        self._ids = {topic: id for topic, id in self._ids.items() if topic in self.topics}

    def lost(self) -> LostTopic | None:
        """A topic that was deleted since the first look. The method never waits for an answer."""
        found = None
        if self._asked and all(future.done() for future in self._asked.values()):
            asked, self._asked = self._asked, {}
            absent = set()
            for topic in asked.keys() & self.topics:
                future = asked[topic]
                try:
                    described = future.result(0)
                except KafkaException as exc:
                    if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and topic in self._ids:
                        absent.add(topic)
                    continue
                id, self.partitions[topic] = str(described.topic_id), len(described.partitions)
                known = self._ids.setdefault(topic, id)
                if known == NO_TOPIC_ID:
                    self._ids[topic] = id
                elif id not in (known, NO_TOPIC_ID):
                    found = LostTopic(topic, anew=True)
            gone, self._absent = (self._absent & absent) - self.may_go, absent
            if gone and found is None:
                found = LostTopic(min(gone), anew=False)
        if self.topics and not self._asked and time.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._asked_at = time.monotonic()
            self._asked = self._admin.describe_topics(
                TopicCollection(sorted(self.topics)), request_timeout=NO_TIMEOUT
            )
        return found
