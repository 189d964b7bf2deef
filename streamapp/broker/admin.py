"""`KafkaAdmin`: creates and deletes topics, and reads partition counts and the ends of logs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigSource, NewTopic, OffsetSpec, TopicMetadata

from streamapp.broker.requests import (
    LastingAdmin,
    ask,
    ask_controller,
    at_time,
    broker_error,
    check_shown,
    describe_topic_settings,
    find_cluster,
    list_offsets,
)
from streamapp.broker.settings import KafkaSettings
from streamapp.errors import BrokerError
from streamapp.records import TopicPartition

__all__ = ["KafkaAdmin", "TopicSpec"]

_BROKER_DEFAULT = -1
_UNKNOWN_SECONDS = 5.0
_RIGHTS = {
    "create": "CREATE",
    "delete": "DELETE",
    "describe": "DESCRIBE_CONFIGS",
    "identify": "DESCRIBE",
    "list": "DESCRIBE",
}
_OFFSETS = {KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client DESCRIBE on the topic"}


class TopicSpec(NamedTuple):
    """A wanted topic: its partition count, and the topic settings that differ from the broker's defaults."""

    name: str
    partitions: int
    config: Mapping[str, str] = {}


class KafkaAdmin:
    """The topics of one cluster. Several threads may use one object.

    Every method waits at most ``timeout`` seconds for each answer. Every method raises `BrokerError` if the cluster
    refuses, or cannot be reached.

        admin = KafkaAdmin(KafkaSettings.from_env())
        admin.ensure_topics([TopicSpec("flights", 6), TopicSpec("planes", 1, {"cleanup.policy": "compact"})])
    """

    def __init__(self, settings: KafkaSettings, *, timeout: float = 30.0) -> None:
        self._settings = settings.librdkafka()
        self._servers = settings.bootstrap_servers
        self._client = LastingAdmin({**self._settings, "client.id": "streamapp", "log_level": 0})
        self._timeout = timeout

    def ensure_topics(self, topics: Iterable[TopicSpec | tuple[str, int, Mapping[str, str]]]) -> None:
        """Create the topics that do not exist yet. After a creation, return only when all of ``topics`` have leaders.

        The replication factor is the cluster's default. An existing topic keeps its settings. If an existing topic has
        another partition count, `BrokerError` names both counts, and no topic is created.
        """
        wanted = {spec.name: spec for spec in (TopicSpec(*topic) for topic in topics)}
        existing = self.partition_counts(wanted)
        self._check_counts(wanted, existing)
        new = [
            NewTopic(spec.name, spec.partitions, _BROKER_DEFAULT, config=dict(spec.config))
            for spec in wanted.values()
            if spec.name not in existing
        ]
        if new:
            # Another worker may create the topics at the same time, so the counts are checked again.
            answers = ask_controller(self._client.create_topics, new, seconds=self._timeout)
            self._each("create", answers, KafkaError.TOPIC_ALREADY_EXISTS)
            self._wait_until(
                lambda: self._writable(wanted.keys()), f"topics {', '.join(wanted)} have leaders"
            )
            self._check_counts(wanted, self.partition_counts(wanted))

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic; a topic that does not exist is left out."""
        found = self._metadata().topics
        return {topic: len(found[topic].partitions) for topic in topics if topic in found}

    def topic_id(self, topic: str) -> str:
        """Return Kafka's id of a topic (KIP-516). A topic that was deleted and created anew has another id."""
        answers = ask(self._client.describe_topics, TopicCollection([topic]), seconds=self._timeout)
        return str(self._each("identify", answers)[topic].topic_id)

    def check_shown(self, topic: str) -> None:
        """Raise `AuthorizationError` if the topic seems not to exist because brokers hide it from this client."""
        remedy = "Grant this client READ or WRITE on the topic, or correct the name"
        check_shown(self._client, [topic], remedy, seconds=self._timeout)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """Return the settings of a topic, with those of the brokers where the topic has none of its own."""
        return {name: entry.value for name, entry in self._config_entries(topic).items()}

    def own_config(self, topic: str) -> dict[str, str | None]:
        """Return the settings that the topic itself has, without those of the brokers."""
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: each.value for name, each in self._config_entries(topic).items() if each.source == own}

    def topics(self) -> dict[str, TopicMetadata]:
        """Return the metadata of all topics: the leader and the replicas of each partition."""
        return dict(self._metadata().topics)

    def groups(self) -> list[str]:
        """Return the names of all consumer groups of which brokers know members or offsets."""
        answers = ask(self._client.list_consumer_groups, "the consumer groups", seconds=self._timeout)
        (found,) = self._each("list", answers).values()
        return sorted(each.group_id for each in found.valid)

    def _config_entries(self, topic: str) -> dict[str, Any]:
        answers = describe_topic_settings(self._client, [topic], seconds=self._timeout)
        (found,) = self._each("describe", answers).values()
        return dict(found)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics, and return when they are gone; a topic that does not exist is no error."""
        if topics:
            answers = ask_controller(self._client.delete_topics, list(topics), seconds=self._timeout)
            self._each("delete", answers, KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._wait_until(
                lambda: not self.partition_counts(topics), f"topics {', '.join(topics)} are gone"
            )

    def log_start_offsets(
        self, partitions: Iterable[TopicPartition], *, from_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        With ``from_ms``, return the offset of the first record at or after this time; negative if there is none. Errors
        and repetitions are as those of `log_end_offsets`.
        """
        return list_offsets(
            self._client,
            partitions,
            OffsetSpec.earliest() if from_ms is None else at_time(from_ms),
            seconds=self._timeout,
            unknown_seconds=_UNKNOWN_SECONDS,
            remedies=_OFFSETS,
        )

    def log_end_offsets(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get.

        With ``read_committed``, return the last stable offset: readers of committed records read up to this offset. The
        last stable offset advances some time after a commit, because Kafka writes the transaction markers in the
        background.

        The request is repeated while brokers do not answer, or a partition has no leader or changes its leader. An
        unknown topic may be new, and some brokers may not know a new topic yet. So `BrokerError` for an unknown topic
        comes only after 5 seconds.
        """
        return list_offsets(
            self._client,
            partitions,
            OffsetSpec.latest(),
            read_committed=read_committed,
            seconds=self._timeout,
            unknown_seconds=_UNKNOWN_SECONDS,
            remedies=_OFFSETS,
        )

    def _check_counts(self, wanted: Mapping[str, TopicSpec], existing: Mapping[str, int]) -> None:
        wrong = [
            f"{topic} has {count}, not {wanted[topic].partitions}"
            for topic, count in existing.items()
            if count != wanted[topic].partitions
        ]
        if wrong:
            raise BrokerError(
                f"Topics exist with another number of partitions: {'; '.join(wrong)}. The number stays, "
                "because it decides the partition of each key. Ask for the existing number, or delete the "
                "topic if its records may go."
            )

    def _writable(self, topics: Iterable[str]) -> bool:
        found = self._metadata().topics
        return all(
            topic in found
            and found[topic].partitions
            and all(partition.leader >= 0 for partition in found[topic].partitions.values())
            for topic in topics
        )

    def _metadata(self) -> Any:
        return find_cluster(self._client, self._settings, seconds=self._timeout)

    def _each(self, verb: str, answers: Mapping[Any, Future[Any]], *fine: int) -> dict[Any, Any]:
        results, problems = {}, dict[str, KafkaError]()
        for subject, answer in answers.items():
            try:
                results[subject] = answer.result()
            except KafkaException as exc:
                error = exc.args[0]
                if error.code() == KafkaError._TIMED_OUT:
                    problems[f"{subject}: no answer within {self._timeout:g} s"] = error
                elif error.code() not in fine:
                    problems[f"{subject}: {error.str()}"] = error
        if problems:
            raise broker_error(
                f"Kafka at {self._servers} could not {verb} {'; '.join(problems)}",
                next(iter(problems.values())),
                {KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Grant this client {_RIGHTS[verb]} on the topic"},
            )
        return results

    def _wait_until(self, true: Any, what: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not true():
            if time.monotonic() > deadline:
                raise BrokerError(f"Kafka at {self._servers}: waited {self._timeout:g} s until {what}.")
            time.sleep(0.05)
