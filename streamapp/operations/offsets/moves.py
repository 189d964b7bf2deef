"""Plans new offsets for a group. `Change.carry_out` commits a plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from streamapp._base.counted import counted
from streamapp.broker.consumer_groups import check_at_rest, commit_for
from streamapp.engine.metadata import BACKFILL
from streamapp.errors import ConfigError, StreamsError
from streamapp.operations.offsets.positions import FromFile, Position, ShiftBy, Target, positions
from streamapp.operations.offsets.subject import Subject
from streamapp.operations.offsets.tables import Contradiction, contradictions
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import created_anew
from streamapp.runners.worker.topics import prepare_topics
from streamapp.topology.plan import Plan

__all__ = ["Change", "Move", "chosen_positions", "plan_copy", "plan_reset"]


@dataclass(frozen=True)
class Move:
    """The new offset ``to`` of one partition.

    ``asked`` is the offset that the target wants; it may lie outside the log.
    """

    at: Position
    to: int
    asked: int

    @property
    def remark(self) -> str:
        if self.asked == self.to:
            return ""
        return f"{self.asked} was asked for, but the log has {self.at.start} to {self.at.end}"


@dataclass(frozen=True)
class Change:
    """A plan of new offsets. Nothing is committed before `carry_out`."""

    subject: Subject
    moves: tuple[Move, ...]
    tables: tuple[Contradiction, ...]
    make_topics_of: Plan | None = None
    """The plan of an application that gets its first offsets, or None.

    Internal topics that do not exist are created before the offsets are committed.
    """

    @property
    def new_topics(self) -> tuple[str, ...]:
        """The internal topics that `carry_out` creates, empty."""
        topics = () if self.make_topics_of is None else self.make_topics_of.internal_topics
        return tuple(topic.name for topic in topics if topic.name not in self.subject.topics)

    def carry_out(self) -> None:
        """Commits all offsets in one request. Brokers refuse the request if the group has members. For an
        application with a topology that has no offsets yet, first creates its internal topics.

        Raises `StreamsError` if the group has members, or if the request fails.
        """
        check_at_rest(self.subject.admin, self.subject.group, self.subject.session_timeout_ms)
        if self.make_topics_of is not None:
            prepare_topics(self.make_topics_of, self.subject.admin)
        new = {move.at.partition: move.to for move in self.moves}
        commit_for(self.subject.admin, self.subject.group, new, self.subject.metadata)


def plan_reset(subject: Subject, target: Target, topics: Collection[str] = ()) -> Change:
    """New offsets of a group without members, for all of its inputs or some topics (``name`` or ``name:0,1``).

    `FromFile` may also name other partitions in which the group has an offset, and partitions of repartition topics. An
    offset outside the log is replaced by the nearer end of the log. Partitions that keep their offset are left out, and
    keep the metadata of their commit. But workers refuse an offset if its topic was deleted and created anew, or if
    another tool has set the offset (`Position.refused`). So the plan commits such an offset anew. With ``ShiftBy(0)``,
    this also holds for repartition topics. If an application has no offsets yet, its missing internal topics are
    created with the first offsets. Raises `StreamsError` if the group has members, or if a backfill is not complete.
    """
    check_at_rest(subject.admin, subject.group, subject.session_timeout_ms)
    committed = subject.committed()
    if any(metadata.startswith(BACKFILL) for _, metadata in committed.values()):
        raise StreamsError(
            f"a backfill of {subject.group} is not complete, and the group's offsets hold its progress: "
            "repeat the same `streamapp backfill` command first"
        )
    chosen = chosen_positions(
        subject, topics, inputs_only=not isinstance(target, FromFile), and_refused=target == ShiftBy(0)
    )
    if not chosen:
        raise ConfigError(
            f"the group {subject.group} has committed nothing, so its topics are not known: check the name of the "
            "group, or name topics with --topic"
        )
    asked = target.offsets(subject, chosen)
    at = {each.partition: each for each in chosen}
    moves = tuple(
        Move(at[tp], max(at[tp].start, min(at[tp].end, offset)), offset)
        for tp, offset in sorted(asked.items())
    )
    # A new commit of the same offset has other metadata, and workers take the offset.
    moves = tuple(move for move in moves if move.to != move.at.committed or move.at.refused)
    # The first offsets of a topology, for example after `streamapp reset`: with offsets, and without its internal
    # topics, a worker would not start. Agents of the application may have offsets already. A topology whose inputs have
    # lost their offsets may still have offsets in repartition topics.
    subtopologies = () if subject.plan is None else subject.plan.subtopologies
    between = {topic.name for sub in subtopologies for topic in sub.repartition_topics}
    begun = between.union(subject.inputs(committed)) & {tp.topic for tp in committed}
    return Change(subject, moves, _contradicted(subject, moves), None if begun else subject.plan)


def plan_copy(subject: Subject, copy: str, target: Target | None, plan: Plan | None = None) -> Change:
    """Offsets for a new group ``copy``: those that ``target`` chooses, or without ``target`` those of the group
    ``subject``.

    The members of ``subject`` may run meanwhile. ``plan`` is the plan of an application with the id ``copy``. This
    second application gets its own, empty internal topics, so its tables contain only records after the new offsets.
    Raises `StreamsError` if ``copy`` has members or offsets. Without ``target``, raises the error also if a topic was
    deleted and created anew after the commit. The copy would not have the metadata by which workers refuse the offsets.
    """
    new = Subject(copy, subject.client, plan, config=subject.config)
    check_at_rest(new.admin, copy, new.session_timeout_ms)
    if new.committed():
        raise StreamsError(
            f"the group {copy} has committed offsets already: name a group that does not exist"
        )
    chosen = chosen_positions(subject, inputs_only=True)
    if target is None and (anew := [each.partition for each in chosen if each.anew]):
        raise StreamsError(
            f"{created_anew(anew[0].topic, subject.group)}. Give the copy a target, such as --to-earliest. If a tool "
            "has copied topics and offsets from another cluster, the offsets are right: give --shift-by 0"
        )
    asked = (
        target.offsets(subject, chosen)
        if target is not None
        else {each.partition: each.committed for each in chosen if each.committed is not None}
    )
    if not asked:
        raise ConfigError(
            f"the group {subject.group} has committed nothing to copy: give the copy a target, such as --to-earliest"
        )
    at = {each.partition: each for each in chosen}
    moves = tuple(
        Move(Position(tp, None, at[tp].start, at[tp].end), max(at[tp].start, min(at[tp].end, offset)), offset)
        for tp, offset in sorted(asked.items())
    )
    return Change(new, moves, (), plan)


def chosen_positions(
    subject: Subject, topics: Collection[str] = (), *, inputs_only: bool = False, and_refused: bool = False
) -> list[Position]:
    """The positions of ``topics``, given as ``name`` or ``name:0,1``.

    Without ``topics``, these are all positions of the group; with ``inputs_only``, the positions in its inputs. With
    ``and_refused``, the result also has positions in other topics that workers refuse. An example are repartition
    topics that a tool has copied from another cluster.
    """
    found = positions(subject, [text.partition(":")[0] for text in topics])
    if not topics:
        inputs = subject.inputs({each.partition: each for each in found if each.committed is not None})
        return [
            each
            for each in found
            if not inputs_only or each.partition.topic in inputs or (and_refused and each.refused)
        ]
    chosen: set[TopicPartition] = set()
    for text in topics:
        name, _, numbers = text.partition(":")
        there = {each.partition for each in found if each.partition.topic == name}
        try:
            wanted = {TopicPartition(name, int(each)) for each in numbers.split(",")} if numbers else there
        except ValueError:
            raise ConfigError(
                f"--topic takes NAME or NAME:0,1 with partition numbers, not {text!r}"
            ) from None
        if not wanted or not wanted <= there:
            raise ConfigError(
                f"there is no {text} at {subject.servers}: the topic has {counted(len(there), 'partition')}"
            )
        chosen |= wanted
    return [each for each in found if each.partition in chosen]


def _contradicted(subject: Subject, moves: tuple[Move, ...]) -> tuple[Contradiction, ...]:
    """The tables that do not fit the moves. A partition without a committed offset has no records in tables."""
    known = [
        (move.at.partition.topic, move.to, move.at.committed)
        for move in moves
        if move.at.committed is not None
    ]
    back = {topic for topic, to, committed in known if to < committed}
    forward = {topic for topic, to, committed in known if to > committed}
    return contradictions(subject, back, forward)
