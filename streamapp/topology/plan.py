"""`Plan`: a topology prepared for one application, with its sub-topologies, internal topics and stores.

A plan is immutable, and picklable so that Spark can send it to its executors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

from streamapp._base.names import persistent_name, persistent_serde_names
from streamapp._base.offset_reset import OffsetReset
from streamapp.config import StreamsConfig
from streamapp.errors import CopartitionError, TopologyError
from streamapp.state.spec import StoreSpec
from streamapp.topology.nodes import USER_PROCESSOR, Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["GlobalStore", "InternalTopic", "Plan", "Subtopology"]

_OF_USERS = {USER_PROCESSOR, "TableTransformValues"}
"""The names of operators with functions of users, which may write to any of their stores."""
_OF_BROKERS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


@dataclass(frozen=True)
class InternalTopic:
    """A repartition or changelog topic. If ``partitions`` is None, its partition count follows from other topics
    (`Plan.partition_counts`)."""

    name: str
    kind: Literal["repartition", "changelog"]
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GlobalStore:
    """A store that every process fills with the records of all partitions of a topic."""

    spec: StoreSpec
    topic: str
    source: SourceNode
    processor: ProcessorNode

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True)
class Subtopology:
    """A connected part of a topology. Its task number p processes partition p of each of its source topics."""

    id: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...]
    repartition_topics: tuple[InternalTopic, ...]
    changelog_topics: Mapping[str, InternalTopic]
    copartition_groups: tuple[frozenset[str], ...] = ()

    @cached_property
    def sources(self) -> tuple[SourceNode, ...]:
        return tuple(n for n in self.nodes if isinstance(n, SourceNode))

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """The full names of the topics that the sub-topology reads, including repartition topics, in the order of the
        sources.

        Topics that a pattern finds are not included, because they are not known before the start.
        """
        return tuple(dict.fromkeys(t for s in self.sources for t in s.topics))

    def pattern_of(self, topic: str) -> str | None:
        """The pattern of a source that matches a topic. None: no pattern matches, or a source names the topic.

        Patterns do not match topics in which brokers keep their own records.
        """
        patterns = (source.pattern for source in self.sources if source.pattern is not None)
        named = topic in self.source_topics or topic in _OF_BROKERS
        return None if named else next((p.pattern for p in patterns if p.fullmatch(topic)), None)

    @cached_property
    def sink_topics(self) -> tuple[str, ...]:
        """The full names of the topics that sinks write to, without topics that a function chooses."""
        sinks = (n.topic for n in self.nodes if isinstance(n, SinkNode))
        return tuple(dict.fromkeys(t for t in sinks if isinstance(t, str)))

    @property
    def name(self) -> str:
        """A readable name: the source topics or patterns, joined by +."""
        return "+".join(self.source_topics) or "+".join(s.pattern.pattern for s in self.sources if s.pattern)

    @staticmethod
    def merge(subs: Sequence[Subtopology]) -> Subtopology:
        """Several sub-topologies as one, for a runner that runs them in one task."""
        return Subtopology(
            id=min((sub.id for sub in subs), default=0),
            nodes=tuple(n for sub in subs for n in sub.nodes),
            stores=tuple(s for sub in subs for s in sub.stores),
            repartition_topics=tuple(t for sub in subs for t in sub.repartition_topics),
            changelog_topics={k: v for sub in subs for k, v in sub.changelog_topics.items()},
        )

    def in_order(self, names: Iterable[str]) -> Subtopology:
        """The same sub-topology with its nodes in the order of ``names``, and its stores in the order of their nodes.

        The order of nodes decides which of two punctuators with equal times is called first. The order of stores
        decides which record cache a commit flushes first.
        """
        place = {name: number for number, name in enumerate(names)}
        nodes = sorted(self.nodes, key=lambda node: place[node.name])
        of_nodes = dict.fromkeys(
            name for node in nodes if isinstance(node, ProcessorNode) for name in node.stores
        )
        specs = {spec.name: spec for spec in self.stores}
        stores = tuple(specs[name] for name in of_nodes)
        return replace(self, nodes=tuple(nodes), stores=stores)

    @cached_property
    def sources_above(self) -> Mapping[str, frozenset[str]]:
        """Node -> the names of the sources whose records reach the node."""
        above: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            inherited = (above[parent] for parent in node.parents)
            above[node.name] = frozenset([node.name] if isinstance(node, SourceNode) else chain(*inherited))
        return above

    @cached_property
    def writers(self) -> Mapping[str, tuple[ProcessorNode, ...]]:
        """Store -> the nodes that write the store.

        Among the operators of the DSL, the first one with the store writes, and the others read. Each processor of a
        user may write.
        """
        found: dict[str, tuple[ProcessorNode, ...]] = {}
        of_users: set[str] = set()
        for node in self.nodes:
            if not isinstance(node, ProcessorNode):
                continue
            for store in node.stores:
                if store not in found and node.operator_name in _OF_USERS:
                    of_users.add(store)
                if store not in found or store in of_users:
                    found[store] = (*found.get(store, ()), node)
        return found

    @cached_property
    def origins(self) -> Mapping[str, frozenset[str]]:
        """Store -> the names of the sources whose records reach the `writers` of the store."""
        above = self.sources_above
        return {
            store: frozenset(chain(*(above[node.name] for node in nodes)))
            for store, nodes in self.writers.items()
        }

    @cached_property
    def repartitioned(self) -> Mapping[str, str]:
        """Repartition topic that the sub-topology reads -> the words that describe its records: the serdes of keys and
        values."""
        found = {}
        for topic in self.repartition_topics:
            source = next(each for each in self.sources if topic.name in each.topics)
            found[topic.name] = persistent_serde_names(source.key_serde, source.value_serde)
        return found

    def store(self, name: str) -> StoreSpec:
        """The store with this name, which the sub-topology must have."""
        return next(spec for spec in self.stores if spec.name == name)

    def source_of(self, topic: str) -> SourceNode | None:
        """The source node that reads a topic."""
        for source in self.sources:
            if topic in source.topics or (source.pattern is not None and source.pattern.fullmatch(topic)):
                return source
        return None


@dataclass(frozen=True)
class Plan:
    """A topology prepared for one application: topics have their full names, and nodes are divided into
    sub-topologies."""

    config: StreamsConfig
    subtopologies: tuple[Subtopology, ...]
    global_stores: tuple[GlobalStore, ...]

    @property
    def application_id(self) -> str:
        return self.config.application_id

    @property
    def backfill_group(self) -> str:
        """The consumer group in which a backfill on Spark leaves the plan's fingerprint. The group has no members."""
        return f"{self.application_id}-backfill"

    @cached_property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        """All repartition topics, and all changelogs except those that are source topics at the same time."""
        topics: dict[str, InternalTopic] = {}
        for sub in self.subtopologies:
            for topic in sub.repartition_topics:
                topics[topic.name] = topic
        for sub in self.subtopologies:
            for topic in sub.changelog_topics.values():
                if topic.name not in sub.source_topics:
                    topics[topic.name] = topic
        return tuple(topics.values())

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """The external topics that the application reads, including those of global stores.

        Topics that a pattern finds are not included.
        """
        internal = {t.name for t in self.internal_topics}
        topics = [t for sub in self.subtopologies for t in sub.source_topics if t not in internal]
        return tuple(dict.fromkeys(topics + [g.topic for g in self.global_stores]))

    @cached_property
    def sink_topics(self) -> tuple[str, ...]:
        """The topics that sinks write, including repartition topics, in the order of the sub-topologies."""
        return tuple(dict.fromkeys(topic for sub in self.subtopologies for topic in sub.sink_topics))

    @property
    def written_topics(self) -> frozenset[str]:
        """`sink_topics`, and the dead-letter topic if there is one. Changelogs are not included."""
        letters = self.config.dead_letter_queue_topic
        return frozenset(self.sink_topics) | (frozenset() if letters is None else {letters})

    @property
    def writes(self) -> bool:
        """True if workers may write a record: a result, a change of a store or a dead letter."""
        sinks = any(isinstance(node, SinkNode) for sub in self.subtopologies for node in sub.nodes)
        return sinks or bool(self.internal_topics) or self.config.dead_letter_queue_topic is not None

    def offset_reset(self, topic: str) -> OffsetReset:
        """The place at which tasks begin to read a partition of a source topic without a committed offset.

        Repartition topics begin with the oldest record, because all their records come from this application. (Kafka
        Streams takes ``auto.offset.reset`` for these topics, too.) The pattern of a source does not match repartition
        topics.
        """
        if any(topic == internal.name for internal in self.internal_topics):
            return "earliest"
        for sub in self.subtopologies:
            if (source := sub.source_of(topic)) is not None and source.offset_reset is not None:
                return source.offset_reset
        return self.config.auto_offset_reset

    def fed_by(self, topics: Iterable[str]) -> list[Subtopology]:
        """The sub-topologies that records of the topics reach, directly or over sinks whose topics the topology also
        reads.

        Topics that a function names for each record are not followed.
        """
        reached: list[Subtopology] = []
        names, before = set(topics), -1
        while len(reached) > before:
            before = len(reached)
            reached = [
                sub for sub in self.subtopologies if any(sub.source_of(topic) is not None for topic in names)
            ]
            names |= {topic for sub in reached for topic in sub.sink_topics}
        return reached

    @cached_property
    def store_subtopology(self) -> Mapping[str, Subtopology]:
        """The sub-topology that owns each store."""
        return {spec.name: sub for sub in self.subtopologies for spec in sub.stores}

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes when existing state on disk or existing repartition topics no longer fit the topology."""
        parts = []
        for sub in self.subtopologies:
            for spec in sub.stores:
                serdes = f"{persistent_name(spec.key_serde)}/{persistent_name(spec.value_serde)}"
                layout = spec.kind.layout(spec.persistent)
                parts.append(f"store {sub.id} {spec.name} {layout} {serdes}")
            parts.extend(f"repartition {sub.id} {t.name} {t.partitions}" for t in sub.repartition_topics)
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]

    @cached_property
    def task_names(self) -> str:
        """A hash that is the same for two plans if the ids of tasks, such as ``0_3``, mean the same tasks in both."""
        parts = [self.fingerprint]
        for sub in self.subtopologies:
            patterns = [source.pattern.pattern for source in sub.sources if source.pattern]
            parts.append(f"{sub.id} {sorted([*sub.source_topics, *patterns])}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def topic_roles(self) -> Mapping[str, str]:
        """Source topic or pattern -> a hash of the stores of its tasks, and of the repartition topics that they read
        and write, with their serdes.

        Two versions of an application may share the partitions of a topic only if both have the same hash. Otherwise
        the tables of one version lack the records that the other version processes. Or one version cannot read the
        records of the other.
        """
        repartitioned = {
            name: words for sub in self.subtopologies for name, words in sub.repartitioned.items()
        }
        roles = {}
        for sub in self.subtopologies:
            parts = {f"store {spec.name}: {spec.changelog_rows}" for spec in sub.stores}
            names = sub.repartitioned.keys() | (repartitioned.keys() & set(sub.sink_topics))
            parts.update(f"repartition {name}: {repartitioned[name]}" for name in names)
            role = hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]
            patterns = [source.pattern.pattern for source in sub.sources if source.pattern]
            roles.update(dict.fromkeys([*sub.source_topics, *patterns], role))
        return roles

    def pattern_of(self, topic: str) -> str | None:
        """The pattern that matches a topic. None: no pattern matches, a source names the topic, or it is internal."""
        if topic in self._named:
            return None
        return next(filter(None, (sub.pattern_of(topic) for sub in self.subtopologies)), None)

    def reader_of(self, topic: str) -> Subtopology | None:
        """The sub-topology that reads a topic. A pattern finds no internal topics."""
        named = (sub for sub in self.subtopologies if topic in sub.source_topics)
        by_pattern = (sub for sub in self.subtopologies if topic not in self._named and sub.pattern_of(topic))
        return next(chain(named, by_pattern), None)

    @cached_property
    def _named(self) -> frozenset[str]:
        """The internal topics, and the topics that sources name."""
        named = {topic for sub in self.subtopologies for topic in sub.source_topics}
        return frozenset(named.union(topic.name for topic in self.internal_topics))

    @cached_property
    def pattern_sources(self) -> tuple[SourceNode, ...]:
        """The sources that read all topics that match a pattern."""
        return tuple(source for sub in self.subtopologies for source in sub.sources if source.pattern)

    def check_patterns(self, topics: Iterable[str]) -> None:
        """Raises `TopologyError` if a topic matches the patterns of two sources: only one source can read a topic."""
        if len(self.pattern_sources) < 2:
            return
        internal = {topic.name for topic in self.internal_topics}
        for topic in topics:
            found = [s for s in self.pattern_sources if s.pattern and s.pattern.fullmatch(topic)]
            if len(found) > 1 and topic not in internal:
                listed = " and ".join(f"{s.pattern.pattern} of source {s.name}" for s in found if s.pattern)
                raise TopologyError(
                    f"topic {topic} matches the patterns {listed}, but a topic has one source at most. "
                    "Change the patterns so that they exclude each other, or read both by one pattern and "
                    "split() the stream"
                )

    def partition_counts(self, external: Mapping[str, int]) -> dict[str, int]:
        """The partition counts of all internal topics. ``external`` has the counts of the topics that users create.

        ``external`` may also have the counts of repartition topics that exist, because an earlier version or a Java
        application has created them. Such a topic keeps its count, unless the topology fixes another one. A new
        repartition topic has the count that ``repartition(partitions=...)`` gives. Otherwise its count is the largest
        one among the source topics of the sub-topologies that write to it.

        Topics that are joined by key or co-grouped get the same count. The count of a topic that users create, or of
        ``partitions=``, decides, otherwise the largest count. A changelog has as many partitions as its sub-topology
        has tasks.

        Raises `CopartitionError` if topics that are joined or co-grouped have different counts, and these counts are
        fixed. Raises `TopologyError` for a source topic that ``external`` lacks, and for an internal topic whose count
        follows from no other topic.
        """
        missing = [t for t in self.source_topics if t not in external]
        if missing:
            raise TopologyError(
                f"source topic{'s' if len(missing) > 1 else ''} {', '.join(sorted(missing))} "
                f"{'do' if len(missing) > 1 else 'does'} not exist; create {'them' if len(missing) > 1 else 'it'} "
                f"before starting {self.application_id}"
            )
        counts = dict(external)
        repartition = {t.name: t for sub in self.subtopologies for t in sub.repartition_topics}
        counts.update({t.name: t.partitions for t in repartition.values() if t.partitions is not None})
        groups = [g for sub in self.subtopologies for g in sub.copartition_groups]
        for group in groups:
            fixed = self._fixed_count(group, counts, repartition)
            if fixed is not None:
                counts.update(dict.fromkeys(group, fixed))
        self._derive_repartition_counts(counts, repartition)
        for group in groups:
            if self._fixed_count(group, counts, repartition) is None:
                counts.update(dict.fromkeys(group, max(counts[t] for t in group)))
        result = {name: counts[name] for name in repartition}
        for sub in self.subtopologies:
            tasks = max((counts[t] for t in sub.source_topics), default=0)
            for changelog in sub.changelog_topics.values():
                if changelog.name not in sub.source_topics:
                    result[changelog.name] = tasks
        return result

    def _derive_repartition_counts(
        self, counts: dict[str, int], repartition: Mapping[str, InternalTopic]
    ) -> None:
        pending = [name for name in repartition if name not in counts]
        while pending:
            progressed = []
            for name in pending:
                sources = self._sources_of_writers(name)
                if sources and all(t in counts for t in sources):
                    counts[name] = max(counts[t] for t in sources)
                    progressed.append(name)
            if not progressed:
                # Each of these topics gets its records from another one, in a cycle, as in foreign-key joins. The
                # counts that are known decide.
                known = {n: [counts[t] for t in self._sources_of_writers(n) if t in counts] for n in pending}
                progressed = [name for name in pending if known[name]]
                counts.update({name: max(known[name]) for name in progressed})
            if not progressed:
                raise TopologyError(
                    f"the partition count of {', '.join(pending)} cannot be derived: nothing else is written to "
                    "them; give one of them partitions=... with repartition()"
                )
            pending = [name for name in pending if name not in progressed]

    def _sources_of_writers(self, topic: str) -> list[str]:
        return [t for sub in self.subtopologies if topic in sub.sink_topics for t in sub.source_topics]

    @staticmethod
    def _fixed_count(
        group: frozenset[str], counts: Mapping[str, int], repartition: Mapping[str, InternalTopic]
    ) -> int | None:
        """The partition count that a group of joined topics must have; None if no topic of the group has a fixed count.

        External topics have a fixed count, and so have repartition topics for which the user gave one. Raises
        `CopartitionError` if two fixed counts differ.
        """
        fixed = {t: counts[t] for t in group if t not in repartition or repartition[t].partitions is not None}
        if len(set(fixed.values())) > 1:
            listed = ", ".join(f"{t} has {n}" for t, n in sorted(fixed.items()))
            raise CopartitionError(
                f"topics that are joined by key or co-grouped must have the same number of partitions, but {listed}. "
                "Create them alike, or put repartition(partitions=...) before the join"
            )
        return next(iter(fixed.values()), None)
