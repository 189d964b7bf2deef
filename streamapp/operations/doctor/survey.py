"""`Survey`: the facts about a cluster that the checks look at. The survey asks the cluster when a check first needs a
fact."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import OffsetSpec

from streamapp._base.counted import counted
from streamapp.broker.consumer_groups import GroupLook, offsets_partition
from streamapp.broker.protocol import OpenTransaction, feature_levels, open_transactions_of
from streamapp.broker.requests import ask, describe_brokers, describe_topic_settings, list_offsets
from streamapp.config import StreamsConfig
from streamapp.engine.metadata import BACKFILL
from streamapp.engine.operators.expiry import Expiring
from streamapp.engine.operators.table import TableSource
from streamapp.engine.topic_notes import noted_as_own
from streamapp.errors import BrokerError, StreamsError
from streamapp.operations.doctor.client_files import ClientFile
from streamapp.operations.doctor.left_retries import left_retries
from streamapp.operations.doctor.samples import Sample, sample
from streamapp.operations.doctor.worker_reports import WorkerReport
from streamapp.operations.offsets.positions import Position, positions
from streamapp.operations.offsets.subject import Subject
from streamapp.records import TopicPartition
from streamapp.runners.lost_offsets import (
    NO_OFFSET,
    fed_changelogs,
    lost_offsets,
    names_of,
    offsets_from_outside,
)
from streamapp.runners.worker.agents.topics import changelogs_of_agents, outputs_of_agents, topics_of_agents
from streamapp.topology.nodes import Node, ProcessorNode
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["Broker", "Partition", "Role", "Survey", "Topic"]

T = TypeVar("T")
Role = Literal["input", "output", "repartition", "changelog", "dead letters", "kafka"]

_SECONDS = 30.0
_OFFSETS = "__consumer_offsets"
_OF_KAFKA = (_OFFSETS, "__transaction_state")


@dataclass(frozen=True)
class Broker:
    id: int
    address: str
    rack: str | None
    config: Mapping[str, str]
    """The settings; empty if this client has no right to read them."""


@dataclass(frozen=True)
class Partition:
    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Topic:
    name: str
    role: Role
    partitions: tuple[Partition, ...]
    config: Mapping[str, str]

    @property
    def replication(self) -> int:
        """The smallest number of replicas of its partitions."""
        return min((len(each.replicas) for each in self.partitions), default=0)

    @property
    def policies(self) -> set[str]:
        """The clean-up policies; empty if this client has no right to read settings."""
        policies = self.config.get("cleanup.policy")
        return set() if policies is None else {each.strip() for each in policies.split(",")}

    def number(self, name: str) -> int | None:
        """A setting as a number; None if this client has no right to read settings."""
        value = self.config.get(name)
        return None if value is None else int(value)


class Survey:
    """The state of a group and its cluster, for the checks of the doctor.

    ``outage_ms`` is the outage that the application has to survive without the loss of a record (``--outage``). Checks
    compare the settings of topics and brokers with this time.

    The survey asks Kafka for most facts only once, and keeps the answers. ``unseen`` lists the facts that the survey
    could not see, mostly for lack of a right (ACL). So the doctor can name the facts that no check has looked at. If
    Kafka does not answer, most methods raise `BrokerError`, and some note the missing fact in ``unseen``.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        outage_ms: int = 86_400_000,
        clients: Sequence[ClientFile] = (),
        reports: Sequence[WorkerReport] = (),
        app: Any = None,
    ) -> None:
        self.subject: Subject = subject
        self.plan: Plan | None = subject.plan
        self.config: StreamsConfig | None = subject.config
        self.outage_ms: int = outage_ms
        self.clients: Sequence[ClientFile] = clients
        self.reports: Sequence[WorkerReport] = reports
        self.app: Any = app
        self.unseen: list[str] = []
        self._hidden: set[str] = set()
        """Topics that exist, but that this client may not describe."""

    @cached_property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers that are up. A broker whose settings are not visible has no rack here, either."""
        nodes = self.subject.brokers
        answers = describe_brokers(self.subject.admin, nodes, seconds=_SECONDS)
        configs = self._configs({f"broker {id}": answer for id, answer in answers.items()})
        found = {}
        for id, address in nodes.items():
            config = configs.get(f"broker {id}", {})
            found[id] = Broker(id, address, config.get("broker.rack"), config)
        return found

    def broker_setting(self, name: str) -> dict[int, str]:
        """The value of a setting on each broker that shows it."""
        return {id: broker.config[name] for id, broker in self.brokers.items() if name in broker.config}

    @cached_property
    def topics(self) -> Mapping[str, Topic]:
        """The existing topics of the application, and Kafka's own topics of offsets and transactions."""
        there = self.subject.topics  # asked first: has the clearest error for brokers that do not answer
        roles = self._roles()
        self._look_for_hidden({*roles, *self._internal} - there.keys())
        roles = {name: role for name, role in roles.items() if name in there}
        if not roles:
            return {}
        answers = ask(self.subject.admin.describe_topics, TopicCollection(list(roles)), seconds=_SECONDS)
        configs = self._configs(describe_topic_settings(self.subject.admin, roles, seconds=_SECONDS))
        found = {}
        for name, answer in answers.items():
            try:
                partitions = answer.result().partitions
            except KafkaException as exc:
                self.unseen.append(f"the topic {name}: {exc.args[0].str()}")
                continue
            found[name] = Topic(
                name,
                roles[name],
                tuple(
                    Partition(
                        each.id,
                        None if each.leader is None or each.leader.id < 0 else each.leader.id,
                        tuple(node.id for node in each.replicas),
                        tuple(node.id for node in each.isr),
                    )
                    for each in partitions
                ),
                configs.get(name, {}),
            )
        return found

    @property
    def _internal(self) -> set[str]:
        return set() if self.plan is None else {topic.name for topic in self.plan.internal_topics}

    @cached_property
    def missing(self) -> Mapping[str, Collection[str]]:
        """The missing internal topics and changelogs of agents, each with its input topics that have committed offsets.

        A worker creates these topics before its first commit. So a topic that is missing beside committed offsets of
        its inputs has been deleted. Missing topics whose inputs have no committed offsets are left out.
        """
        read = {tp.topic for tp, (offset, _) in self.subject.committed().items() if offset > 0}
        there = self.topics.keys() | self._hidden | self.subject.topics.keys()
        subtopologies = () if self.plan is None else self.plan.subtopologies
        found: defaultdict[str, set[str]] = defaultdict(set)
        for sub in subtopologies:
            for name in self._internal.intersection(sub.sink_topics) - there:
                found[name] |= read & self._sources(sub)
        repartitions = dict(found)
        for sub in subtopologies:
            sources = self._sources(sub)
            # With a topic, brokers delete its committed offsets. So the inputs of its repartition count, too.
            inputs = (read & sources).union(*(repartitions.get(topic, ()) for topic in sources))
            for name in {topic.name for topic in sub.changelog_topics.values()} - there:
                found[name] |= inputs
        if self.app is not None:
            for name in set(changelogs_of_agents(self.app)) - there:
                found[name] |= read.intersection(topics_of_agents(self.app))
        return {name: sorted(topics) for name, topics in found.items() if topics}

    @cached_property
    def missing_inputs(self) -> list[str]:
        """The missing topics that the topology reads by their names, and that no worker creates."""
        if self.plan is None:
            return []
        there = self.topics.keys() | self._hidden | self.subject.topics.keys()
        return sorted(set(self.plan.source_topics) - there)

    def _sources(self, sub: Subtopology) -> set[str]:
        patterns = [source.pattern for source in sub.sources if source.pattern is not None]
        named = {name for name in self.subject.topics if any(each.fullmatch(name) for each in patterns)}
        return {*sub.source_topics, *named}

    def _look_for_hidden(self, names: Collection[str]) -> None:
        """Notes topics that exist, but that this client may not describe.

        In a list of all topics, brokers leave such topics out. A request for the name of such a topic gets an error.
        """
        if not names:
            return
        answers = ask(self.subject.admin.describe_topics, TopicCollection(sorted(names)), seconds=_SECONDS)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._hidden.add(name)
                    self.unseen.append(f"the topic {name}: {exc.args[0].str()}")

    def of_role(self, *roles: Role) -> list[Topic]:
        return [topic for topic in self.topics.values() if topic.role in roles]

    @property
    def own_topics(self) -> list[Topic]:
        """The topics of the application, without Kafka's own topics."""
        return [topic for topic in self.topics.values() if topic.role != "kafka"]

    @cached_property
    def group(self) -> GroupLook:
        look = self.subject.look()
        # The group of an App may not have begun yet. Kafka calls groups of another protocol dead, too (KIP-1071).
        if self.app is None and look.state == "dead" and not self.subject.committed():
            self.unseen.append(f"the group {look.name}: there is no such group; check the name")
        return look

    @cached_property
    def positions(self) -> Sequence[Position]:
        return positions(self.subject, without=self.leaderless)

    @cached_property
    def leaderless(self) -> frozenset[TopicPartition]:
        """Partitions without a leader; no broker answers requests about them."""
        return frozenset(
            TopicPartition(topic.name, each.number)
            for topic in self.topics.values()
            for each in topic.partitions
            if each.leader is None
        )

    @cached_property
    def global_topics(self) -> frozenset[str]:
        """The topics of global tables, which each worker reads as a whole. The group has no positions in them."""
        return frozenset(() if self.plan is None else (store.topic for store in self.plan.global_stores))

    @cached_property
    def records(self) -> Mapping[TopicPartition, Sample]:
        """The last records of the inputs and of the global topics."""
        inputs = {topic.name for topic in self.of_role("input")}
        read = self.positions
        if self.global_topics:
            read = positions(self.subject, self.global_topics, without=self.leaderless)
        found = [each for each in read if each.partition.topic in inputs]
        samples, problems = sample(self.subject.client, found)
        self.unseen += problems
        return samples

    @cached_property
    def left_retries(self) -> Mapping[str, int]:
        """The number of records that wait for a retry which the topology does not make any more, by topic."""
        if self.plan is None:
            return {}
        found, problems = left_retries(self.subject)
        self.unseen += problems
        return found

    @cached_property
    def rows_without_offsets(self) -> Mapping[str, str]:
        """The changelogs with rows whose offsets are lost, with the lost inputs in words, or with the size of the log.

        The group may have no offset at all, or lack those that its other offsets note. Records of aborted transactions
        do not count, because a restore does not read them.
        """
        if not any(each.committed is not None for each in self.positions):
            found = self._with_records(topic.name for topic in self.of_role("changelog"))
            if found and self.subject.committed():  # the first commit may have come meanwhile
                return {}
            return {name: f"the log has {counted(count, 'offset')}" for name, count in found.items()}
        if self.plan is None or not (lost := lost_offsets(self.plan, self._committed_inputs(self.plan))):
            return {}
        fed = fed_changelogs(self.plan, {tp.topic for tp in lost}, self.subject.topics)
        found = self._with_records({tp.topic for tp in fed})
        committed = self._committed_inputs(self.plan)  # asked again, as above
        names = names_of(lost & lost_offsets(self.plan, committed), committed)
        return {name: f"no committed offset in {', '.join(names)}" for name in found if names}

    def _committed_inputs(self, plan: Plan) -> dict[TopicPartition, tuple[int, str]]:
        """The offset of each input with its metadata (negative: none). Empty while a backfill is unfinished."""
        committed = self.subject.committed()
        if any(text.startswith(BACKFILL) for _, text in committed.values()):
            return {}
        inputs = [
            each.partition for each in self.positions if plan.reader_of(each.partition.topic) is not None
        ]
        return {tp: committed.get(tp, NO_OFFSET) for tp in inputs}

    @cached_property
    def from_outside(self) -> Sequence[Position]:
        """The positions that another tool than streamapp has set, although tables that they feed have rows."""
        return [*self._from_outside_of_tasks(), *self._from_outside_of_agents()]

    def _from_outside_of_agents(self) -> Sequence[Position]:
        """Agents with tables also take over offsets of plain Faust, unless a note names the topic (`check_tables`)."""
        if self.app is None or not (logs := changelogs_of_agents(self.app)):
            return ()
        topics = topics_of_agents(self.app)
        committed = {tp: at for tp, at in self.subject.committed().items() if tp.topic in topics}
        moved = offsets_from_outside(committed)
        noted = noted_as_own((text for _, text in committed.values()), {tp.topic for tp in moved})
        found = [each for each in self.positions if each.partition in moved and each.partition.topic in noted]
        return found if found and self._with_records(logs) else ()

    def _from_outside_of_tasks(self) -> Sequence[Position]:
        if self.plan is None:
            return ()
        plan, counts = self.plan, self.subject.topics
        fed = {
            each: {tp.topic for tp in fed_changelogs(plan, [each.partition.topic], counts)}
            for each in self.positions
            if each.outside
        }
        with_rows = self._with_records(frozenset().union(*fed.values())) if fed else {}
        found = [each for each, changelogs in fed.items() if with_rows.keys() & changelogs]
        # Asked again: a worker that begins with such offsets commits them again, with metadata, before the first row.
        still = offsets_from_outside(self.subject.committed()) if found else {}
        return [each for each in found if each.partition in still]

    def _with_records(self, changelogs: Iterable[str]) -> dict[str, int]:
        """The offsets in the log of each of these topics that has committed records."""
        wanted = set(changelogs)
        there = [
            each
            for each in positions(self.subject, wanted, without=self.leaderless)
            if each.partition.topic in wanted
        ]
        samples, problems = sample(self.subject.client, there, first=True)
        self.unseen += problems
        return {
            name: sum(each.end - each.start for each in there if each.partition.topic == name)
            for name in sorted({tp.topic for tp, found in samples.items() if found.keys})
        }

    @cached_property
    def read_as_streams(self) -> frozenset[str]:
        """The topics that the topology reads as streams. A table reads its topic with a `TableSource` alone.

        Topics that serve as changelogs, for example those of read-only stores, are left out.
        """
        found = set[str]()
        for sub in self.plan.subtopologies if self.plan is not None else ():
            tables = {node.name for node in sub.nodes if _reads_table(node)}
            for source in sub.sources:
                if any(source.name in node.parents and node.name not in tables for node in sub.nodes):
                    pattern = source.pattern
                    found |= {*source.topics, *(t for t in self.topics if pattern and pattern.fullmatch(t))}
            found -= {topic.name for topic in sub.changelog_topics.values()}
        return frozenset(found)

    @cached_property
    def stable_ends(self) -> Mapping[TopicPartition, int]:
        """The last stable offset of each partition of the application. Readers of committed records read up to this
        offset.

        The partition of ``__consumer_offsets`` for the group is also there, if this client may see the topic.
        """
        own = {TopicPartition(t.name, p.number) for t in self.own_topics for p in t.partitions}
        return self._ends((own | self._of_offsets) - self.leaderless, read_committed=True)

    @property
    def _of_offsets(self) -> set[TopicPartition]:
        """The partition with the group's committed offsets, as a set of at most one."""
        topic = self.topics.get(_OFFSETS)
        if topic is None:
            return set()
        return {TopicPartition(_OFFSETS, offsets_partition(self.subject.group, len(topic.partitions)))}

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._ends(partitions, read_committed=False)

    @cached_property
    def transactions(self) -> Sequence[OpenTransaction] | None:
        """The open transactions of the cluster; None if this client cannot see them."""
        return self._seen("open transactions", lambda: open_transactions_of(self.subject.settings))

    @property
    def hides_transactions(self) -> bool:
        """Brokers may hide transactions from this client: they have an authorizer, or do not show their settings."""
        configs = [broker.config for broker in self.brokers.values()]
        return any(not config or config.get("authorizer.class.name") for config in configs)

    @cached_property
    def features(self) -> Mapping[str, int] | None:
        """The feature levels of the cluster; None if this client cannot see them."""
        return self._seen("feature levels", lambda: feature_levels(self.subject.settings))

    @property
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def _seen(self, what: str, look: Callable[[], T]) -> T | None:
        try:
            return look()
        except StreamsError as error:
            self.unseen.append(f"{what}: {error}")
            return None

    def _ends(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        return list_offsets(
            self.subject.admin,
            partitions,
            OffsetSpec.latest(),
            read_committed=read_committed,
            seconds=_SECONDS,
        )

    def _configs(self, answers: Mapping[str, Future[Mapping[str, Any]]]) -> dict[str, Mapping[str, str]]:
        """The settings by name of a resource. Refused answers go to ``unseen``."""
        found: dict[str, Mapping[str, str]] = {}
        for name, answer in answers.items():
            try:
                entries = answer.result().values()
            except KafkaException as exc:
                if exc.args[0].code() == KafkaError._TIMED_OUT:
                    raise BrokerError(
                        f"the settings of {name} did not arrive within {_SECONDS:g} s: check that all brokers run"
                    ) from exc
                self.unseen.append(f"the settings of {name}: {exc.args[0].str()}")
                continue
            found[name] = {entry.name: entry.value for entry in entries if entry.value is not None}
        return found

    def _roles(self) -> dict[str, Role]:
        roles: dict[str, Role] = dict.fromkeys(_OF_KAFKA, "kafka")
        subject = self.subject
        inputs = subject.inputs({} if self.plan is not None else subject.committed())
        if self.plan is not None:
            roles |= {topic: "output" for sub in self.plan.subtopologies for topic in sub.sink_topics}
            roles |= dict.fromkeys(self.global_topics, "input")
        if self.config is not None and self.config.dead_letter_queue_topic is not None:
            roles[self.config.dead_letter_queue_topic] = "dead letters"
        if self.app is not None:
            roles |= dict.fromkeys(outputs_of_agents(self.app), "output")
            roles |= dict.fromkeys(changelogs_of_agents(self.app), "changelog")
            roles |= dict.fromkeys(topics_of_agents(self.app), "input")
            roles |= {topic: "input" for each in self.app.consumers for topic in each.topics}
        roles |= dict.fromkeys(inputs, "input")
        roles |= dict.fromkeys(subject.internal("repartition").values(), "repartition")
        roles |= dict.fromkeys(subject.internal("changelog").values(), "changelog")
        return roles


def _reads_table(node: Node) -> bool:
    """True for the node that makes a table of the records of its topic, also if the rows of the table expire."""
    operator = node.operator if isinstance(node, ProcessorNode) else None
    while isinstance(operator, Expiring):
        operator = operator.operator
    return isinstance(operator, TableSource)
