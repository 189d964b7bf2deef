"""What an application left in Kafka: outputs, changelogs, internal topics and their settings."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from ..topic_reader import read_topic
from .flights import OUTPUTS
from .handover import Application

__all__ = ["ByKey", "InternalTopic", "Left", "Written", "last_of_each_key", "left_by", "read"]


class Written(NamedTuple):
    partition: int
    value: bytes | None
    timestamp: int


ByKey = dict[bytes | None, list[Written]]
Table = dict[bytes | None, bytes]


class InternalTopic(NamedTuple):
    partitions: int
    settings: dict[str, str]
    """Those that were given to it."""


class Left(NamedTuple):
    """What an application has left in Kafka. The names of its internal topics are without its id."""

    java_log: str
    """What the Java side said, first of all its description of the topology."""
    outputs: dict[str, ByKey]
    internal_topics: dict[str, InternalTopic]
    changelogs: dict[str, Table]
    application: Application


def left_by(app: Application) -> Left:
    internal = internal_topics(app.bootstrap, app.id)
    changelogs = {_neutral(name, app): _table(app, name) for name in internal if name.endswith("-changelog")}
    return Left(
        next((log.read_text() for log in app.logs if log.stem.endswith("java")), ""),
        {name: read(app.bootstrap, f"{app.prefix}{name}") for name in OUTPUTS},
        {_neutral(name, app): topic for name, topic in internal.items()},
        changelogs,
        app,
    )


def _neutral(name: str, app: Application) -> str:
    """Names of stores may hold that of a source topic."""
    return name.replace(app.prefix, "")


def _table(app: Application, changelog: str) -> Table:
    """Buffered records say which topic they are from; all ids are as long as each other."""
    table = last_of_each_key(read(app.bootstrap, f"{app.id}-{changelog}"))
    return {key: value.replace(app.id.encode(), b"application") for key, value in table.items()}


def read(bootstrap: str, topic: str) -> ByKey:
    """All committed records of a topic: key -> its records, in order."""
    found: ByKey = defaultdict(list)
    for message in read_topic(bootstrap, topic):
        written = Written(message.partition(), message.value(), message.timestamp()[1])
        found[message.key()].append(written)
    return dict(found)


def last_of_each_key(records: ByKey) -> Table:
    """The table that a topic holds."""
    last = {key: written[-1].value for key, written in records.items()}
    return {key: value for key, value in last.items() if value is not None}


def internal_topics(bootstrap: str, application: str) -> dict[str, InternalTopic]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    prefix = f"{application}-"
    found = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=10).topics.items()
        if name.startswith(prefix)
    }
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
    settings = {
        resource.name: {
            name: entry.value
            for name, entry in future.result().items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, future in admin.describe_configs(resources).items()
    }
    return {name.removeprefix(prefix): InternalTopic(count, settings[name]) for name, count in found.items()}
