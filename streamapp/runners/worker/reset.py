"""Takes an application back to its beginning, like Kafka Streams' application reset tool, and deletes local state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.consumer_groups import check_at_rest, look_at_group, read_committed_offsets
from streamapp.broker.requests import (
    REQUEST_SECONDS,
    LastingAdmin,
    ask,
    ask_controller,
    broker_error,
    find_cluster,
)
from streamapp.config import StreamsConfig
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.worker.agents.topics import changelogs_of_agents, regrouped_by_agents, topics_of_agents
from streamapp.state.directory import delete_state
from streamapp.topology.plan import Plan

__all__ = ["Reset", "plan_reset"]

_SECONDS = 30.0
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this client DELETE on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant this client DELETE on the group",
}


@dataclass(frozen=True)
class Reset:
    """Deletes internal topics, the offsets of the group, and the state on this machine.

    ``backfilled`` is a second group, whose offsets have the fingerprint of a backfill's topology in their metadata.
    None: there is no such group, because no backfill has ended since the last reset.

    ``topics`` are the internal topics of the topology. ``of_agents`` are the topics that agents made for their tables
    and for ``group_by``. The reset deletes these topics, too: agents compute their records anew, and old records would
    count twice. ``folder`` is the folder of the topology's state on this machine, and ``tables`` that of the tables of
    agents. None: there is no such folder.

    ``read_again`` are the topics that agents read from the beginning after the reset. ``staying`` are the functions of
    `App.consume`, whose consumer groups the reset does not touch. ``dead_letters`` is the topic of dead letters, if
    there is one.
    """

    group: str
    backfilled: str | None
    topics: tuple[str, ...]
    of_agents: tuple[str, ...]
    folder: Path | None
    tables: Path | None
    read_again: tuple[str, ...]
    staying: tuple[str, ...]
    dead_letters: str | None
    _admin: LastingAdmin

    def __str__(self) -> str:
        """The topics, offsets and folders that the reset deletes, one a line, and then the consequences.

        >>> print(Reset("flights", None, ("flights-counts-changelog",), (), None, None, (), (), None, None))
        topic   flights-counts-changelog
        offsets of the consumer group flights
        """
        topics = [f"topic   {topic}" for topic in self.topics]
        made = [f"topic   {topic}, made by agents" for topic in self.of_agents]
        groups = [f"offsets of the consumer group {group}" for group in self._groups]
        folders = [f"folder  {folder}" for folder in (self.folder, self.tables) if folder is not None]
        return "\n".join([*topics, *made, *groups, *folders, *self._consequences])

    @property
    def _consequences(self) -> list[str]:
        said = []
        if self.read_again:
            said.append(
                f"Agents read these topics again from the beginning: {', '.join(self.read_again)}. Records that agents "
                "have written into one of these topics then count twice, unless you delete the topic"
            )
        if self.of_agents:
            said.append(
                "Rows that timers, pages or commands have written into tables of agents do not come back"
            )
        if self.dead_letters is not None:
            said.append(
                f"Dead letters in {self.dead_letters} stay, but their records come again. So discard open letters: "
                f"streamapp dlq discard APPLICATION --application {self.group}"
            )
        if self.staying:
            said.append(
                f"The groups of consumers stay where they are: {', '.join(self.staying)}. To move one of them: "
                "streamapp offsets reset --group NAME"
            )
        return said

    @property
    def _groups(self) -> list[str]:
        return [*([] if self.backfilled is None else [self.backfilled]), self.group]

    def carry_out(self) -> None:
        """Deletes the state on this machine, then the topics, then the committed offsets.

        The offsets go last: a worker with tables that starts meanwhile finds offsets but no changelogs, and ends with
        an error. Raises `StreamsError` when a worker has started meanwhile, or when brokers refuse a request. Another
        reset can delete the rest.
        """
        if self.folder is not None:
            delete_state(self.folder)
        if self.tables is not None:
            shutil.rmtree(self.tables)
        if topics := [*self.topics, *self.of_agents]:
            deleted = ask_controller(self._admin.delete_topics, topics, seconds=_SECONDS)
            for topic, answer in deleted.items():
                _passes(answer.result, f"the topic {topic}", KafkaError.UNKNOWN_TOPIC_OR_PART)
        for group in self._groups:
            ((_, answer),) = ask(self._admin.delete_consumer_groups, [group], seconds=_SECONDS).items()
            _passes(answer.result, f"the consumer group {group}", KafkaError.GROUP_ID_NOT_FOUND)


def plan_reset(app: Any, admin: LastingAdmin) -> Reset:
    """Prepares the reset of an application that has a topology or agents. Raises `StreamsError` while the application
    has workers.

    The reset deletes the internal topics of the present topology, and the topics that the present agents have made.
    Internal topics that only an older version used stay, and so does the state on other machines.
    """
    config: StreamsConfig = app.config
    plan: Plan | None = app.streams.plan if hasattr(app, "streams") else None
    group = config.application_id
    existing = find_cluster(admin, client_of(config), seconds=REQUEST_SECONDS).topics
    check_at_rest(admin, group, config.session_timeout_ms)
    left = plan is not None and look_at_group(admin, plan.backfill_group).state != "dead"
    every = [TopicPartition(name, p) for name, topic in existing.items() for p in topic.partitions]
    committed = {tp.topic for tp in read_committed_offsets(client_of(config), group, every)}
    regrouped = regrouped_by_agents(app, existing, committed)
    changelogs, letters = changelogs_of_agents(app), config.dead_letter_queue_topic
    return Reset(
        group,
        plan.backfill_group if plan is not None and left else None,
        _among(existing, [] if plan is None else [topic.name for topic in plan.internal_topics]),
        _among(existing, [*changelogs, *regrouped]),
        None if plan is None else _if_present(Path(config.state_dir) / group),
        _if_present(app.conf.tabledir) if changelogs else None,
        _among(existing, topics_of_agents(app)),
        tuple(consumer.name for consumer in app.consumers),
        letters if letters in existing else None,
        admin,
    )


def _among(existing: Collection[str], topics: Collection[str]) -> tuple[str, ...]:
    return tuple(topic for topic in dict.fromkeys(topics) if topic in existing)


def _if_present(folder: Path) -> Path | None:
    return folder if folder.exists() else None


def _passes(result: Callable[[], object], what: str, absent: int) -> None:
    try:
        result()
    except KafkaException as exc:
        if exc.args[0].code() != absent:
            text = f"{what} could not be deleted: {exc.args[0].str()}"
            raise broker_error(text, exc.args[0], _RIGHTS) from exc
