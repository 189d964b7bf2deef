"""The group of a command: the group of an application of streamapp, or any other group by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamapp.broker.consumer_groups import GroupLook, look_at_group, read_committed_offsets
from streamapp.broker.requests import REQUEST_SECONDS, LastingAdmin, find_cluster
from streamapp.broker.settings import KafkaSettings
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import CHOSEN, metadata_of
from streamapp.errors import ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of, settings_of
from streamapp.runners.lost_offsets import fed_changelogs
from streamapp.runners.worker.agents.topics import topics_of_agents
from streamapp.topology.plan import Plan

__all__ = ["Subject"]

_INTERNAL = re.compile(r"(?P<store>.+)-(?P<kind>changelog|repartition)")


@dataclass(frozen=True)
class Subject:
    """One group on one cluster. ``client`` are librdkafka's settings for the cluster.

    ``plan`` tells the inputs and tables of a topology. Without a plan, the names of topics tell the tables, and
    ``reads`` are topics that the group reads, even if it has committed nothing there. ``config`` is the configuration
    of an application of streamapp. If ``stable``, committed offsets are read when no open transaction can still change
    them.
    """

    group: str
    client: Mapping[str, Any]
    plan: Plan | None = None
    stable: bool = True
    config: StreamsConfig | None = None
    reads: tuple[str, ...] = ()

    @classmethod
    def of_plan(cls, plan: Plan) -> Subject:
        return cls(plan.application_id, client_of(plan.config), plan, config=plan.config)

    @classmethod
    def of_app(cls, app: Any) -> Subject:
        """The group of an `App`. Without a topology, this is the group of its agents, or else of its only consumer.

        Raises `ConfigError` if the `App` has no such group, or several.
        """
        if hasattr(app, "streams"):
            return cls.of_plan(app.streams.plan)
        config, client = app.config, client_of(app.config)
        if reads := topics_of_agents(app):
            return cls(config.application_id, client, config=config, reads=tuple(reads))
        consumers = app.consumers
        if len(consumers) == 1:
            return cls(consumers[0].name, client, config=config, reads=tuple(consumers[0].topics))
        raise ConfigError(
            f"{config.application_id} has no topology, no agents, and "
            + (
                f"several consumers with a group each: choose one with --group, {', '.join(c.name for c in consumers)}"
                if consumers
                else "no consumers, so it has no group: name any group with --group"
            )
        )

    @classmethod
    def of_group(cls, group: str) -> Subject:
        """A group on the cluster that the environment names."""
        return cls(group, {**KafkaSettings.from_env().librdkafka(), "client.id": "streamapp"})

    @cached_property
    def admin(self) -> LastingAdmin:
        return LastingAdmin({**self.client, "log_level": 0})

    @property
    def servers(self) -> str:
        return str(self.client["bootstrap.servers"])

    @property
    def settings(self) -> KafkaSettings:
        """The cluster for clients other than librdkafka's.

        Raises `ConfigError` for settings of ``client_properties`` that only librdkafka understands.
        """
        return KafkaSettings.from_env() if self.config is None else settings_of(self.config)

    @property
    def session_timeout_ms(self) -> int | None:
        return None if self.config is None else self.config.session_timeout_ms

    def look(self) -> GroupLook:
        _ = self._metadata  # has the soonest and clearest error for brokers that do not answer
        return look_at_group(self.admin, self.group)

    def committed(self) -> dict[TopicPartition, tuple[int, str]]:
        every = [TopicPartition(topic, p) for topic, count in self.topics.items() for p in range(count)]
        return read_committed_offsets(self.client, self.group, every, stable=self.stable)

    @cached_property
    def _metadata(self) -> Any:
        return find_cluster(self.admin, self.client, seconds=REQUEST_SECONDS)

    @cached_property
    def topics(self) -> Mapping[str, int]:
        """The partition count of every topic of the cluster. Raises `BrokerError`."""
        found = self._metadata.topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.partitions}

    @property
    def brokers(self) -> Mapping[int, str]:
        """The address of each broker that is up. Raises `BrokerError`."""
        return {id: f"{broker.host}:{broker.port}" for id, broker in self._metadata.brokers.items()}

    def kind(self, look: GroupLook) -> str:
        """The kind of program that the group belongs to, in words."""
        if self.config is not None:
            return "application of streamapp"
        if look.assignor in ("stream", "faust") or self.internal("changelog") or self.internal("repartition"):
            return "application of Kafka Streams, streamapp or Faust"
        return "consumer group"

    @property
    def has_tables(self) -> bool:
        """True if a topic is a changelog of the group, as its name says."""
        return any(t.startswith(f"{self.group}-") and t.endswith("-changelog") for t in self.topics)

    def feeds_tables(self, topic: str) -> bool:
        """True if records of the topic reach a table of the topology. Without a configuration, names of topics decide.

        Topics that only agents or global tables read do not count: workers take their offsets without metadata.
        """
        if self.config is None and self.plan is None:
            return self.has_tables
        return self.plan is not None and bool(fed_changelogs(self.plan, [topic], self.topics))

    @property
    def metadata(self) -> str:
        """The metadata of offsets that a command commits, by which workers know that an operator has chosen them.

        Plain consumers get none, because they may keep something else there.
        """
        return metadata_of(None, CHOSEN) if self.config is not None or self.has_tables else ""

    def internal(self, kind: str) -> dict[str, str]:
        """The existing internal topics of a kind (changelog or repartition), by the name of the store or repartition.

        Without a plan, the result has all topics of this kind whose names begin with ``<group>-``. If another
        application has the id ``<group>-...``, its internal topics are in the result, too.
        """
        if self.plan is not None:
            topics = [topic for topic in self.plan.internal_topics if topic.kind == kind]
            prefix = f"{self.group}-"
            return {
                topic.name.removeprefix(prefix).removesuffix(f"-{kind}"): topic.name
                for topic in topics
                if topic.name in self.topics
            }
        found = {}
        for topic in self.topics:
            match = _INTERNAL.fullmatch(topic.removeprefix(f"{self.group}-"))
            if topic.startswith(f"{self.group}-") and match and match["kind"] == kind:
                found[match["store"]] = topic
        return found

    def inputs(self, committed: Mapping[TopicPartition, object]) -> tuple[str, ...]:
        """The topics that the group reads, without internal topics.

        The plan names these topics. Without a plan, they are ``reads``, and the topics with committed offsets.
        """
        internal = {*self.internal("repartition").values(), *self.internal("changelog").values()}
        topics = {*self.reads, *(tp.topic for tp in committed)}
        if self.plan is not None:
            topics = {topic for sub in self.plan.subtopologies for topic in sub.source_topics}
            topics.update(filter(self.plan.pattern_of, self.topics))
            internal |= {topic.name for topic in self.plan.internal_topics}
        return tuple(sorted(topics - internal))
