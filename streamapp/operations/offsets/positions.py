"""Positions of a group in the logs that it reads, and targets for new positions."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka.admin import OffsetSpec

from streamapp._base.counted import counted
from streamapp.broker.requests import at_time, list_offsets
from streamapp.engine.store_notes import noted_changelogs
from streamapp.errors import ConfigError
from streamapp.operations.offsets.subject import Subject
from streamapp.records import TopicPartition
from streamapp.runners.earlier_topics import changelogs_anew, committed_in_others, noted_by_agents
from streamapp.runners.lost_offsets import offsets_from_outside

__all__ = [
    "FromFile",
    "Position",
    "ShiftBy",
    "Target",
    "ToEarliest",
    "ToLatest",
    "ToTime",
    "as_csv",
    "positions",
]

_SECONDS = 30.0


@dataclass(frozen=True)
class Position:
    """The committed offset of a group in one partition, or None; ``start`` and ``end`` are the offsets of the log."""

    partition: TopicPartition
    committed: int | None
    start: int
    end: int
    owner: str = ""
    """Client id and host of the member that has the partition."""
    anew: bool = False
    """True if the offset was committed in an earlier topic of this name, as its metadata says."""
    outside: bool = False
    """True if another tool has set the offset, and the topic may feed tables (`Subject.feeds_tables`)."""
    changelog: str = ""
    """A changelog that was deleted and created anew since the commit, as its metadata says; or an empty text."""

    @property
    def refused(self) -> bool:
        """True if workers refuse the offset, unless no table has rows."""
        return self.anew or self.outside or bool(self.changelog)

    @property
    def lag(self) -> int | None:
        """`behind` the end of the log; None without a committed offset."""
        return None if self.committed is None else self.behind(self.end)

    def behind(self, end: int) -> int:
        """The number of offsets from the position up to ``end``. Records that were deleted unread do not count. Without
        a committed offset, the position is the first record.

        >>> Position(TopicPartition("flights", 0), 5, 10, 20).lag
        10
        """
        return max(0, end - max(self.committed or 0, self.start))

    @property
    def remark(self) -> str:
        """The reason why the committed offset does not fit the log, or an empty text.

        >>> Position(TopicPartition("flights", 0), 5, 10, 20).remark
        'before the first record: 5 were deleted unread'
        """
        if self.committed is None:
            return ""
        if self.anew:
            return (
                "committed before the topic was deleted and created anew; or copied from another cluster, then: "
                "offsets reset --shift-by 0 --keep-tables"
            )
        if self.committed < self.start:
            return f"before the first record: {self.start - self.committed} were deleted unread"
        if self.committed > self.end:
            return "beyond the end of the log: was the topic deleted and created anew?"
        if self.outside:
            return (
                "set by another tool, or by plain Faust: tables may have other records. To keep both: offsets reset "
                "--shift-by 0"
            )
        if self.changelog:
            return (
                f"committed before {self.changelog} was deleted and created anew: the table lacks rows. To keep its "
                "present rows: offsets reset --shift-by 0 --keep-tables"
            )
        return ""


def positions(
    subject: Subject, topics: Iterable[str] = (), without: Collection[TopicPartition] = ()
) -> list[Position]:
    """The position of the group in each partition of its inputs, of its repartition topics and of ``topics``.

    The result is sorted by topic and partition.

    Other partitions with committed offsets are included. Partitions in ``without`` are left out; brokers give no
    offsets of a partition without a leader.
    """
    committed = subject.committed()
    wanted = {*committed}
    for topic in (*subject.inputs(committed), *subject.internal("repartition").values(), *topics):
        wanted |= {TopicPartition(topic, number) for number in range(subject.topics.get(topic, 0))}
    there = sorted(tp for tp in wanted.difference(without) if tp.partition < subject.topics.get(tp.topic, 0))
    starts = list_offsets(subject.admin, there, OffsetSpec.earliest(), seconds=_SECONDS)
    ends = list_offsets(subject.admin, there, OffsetSpec.latest(), seconds=_SECONDS)
    owners = {
        tp: f"{member.client_id} {member.host}"
        for member in subject.look().members
        for tp in member.partitions
    }
    others = committed_in_others(
        subject.admin, {tp: committed[tp] for tp in there if tp in committed}, _SECONDS
    )
    outside = {tp for tp in offsets_from_outside(committed) if subject.feeds_tables(tp.topic)}
    texts = {tp: metadata for tp, (_, metadata) in committed.items()}
    noted = noted_by_agents(texts)
    if subject.plan is not None:
        noted |= noted_changelogs(subject.plan, texts)
    changelogs = changelogs_anew(subject.admin, noted, subject.topics, _SECONDS)
    return [
        Position(
            tp,
            committed[tp][0] if tp in committed else None,
            starts[tp],
            ends[tp],
            owners.get(tp, ""),
            tp in others,
            tp in outside,
            changelogs.get(tp, ""),
        )
        for tp in there
    ]


@dataclass(frozen=True)
class ToEarliest:
    """The first record that the log still has."""

    def offsets(self, subject: Subject, at: list[Position]) -> dict[TopicPartition, int]:
        return {each.partition: each.start for each in at}


@dataclass(frozen=True)
class ToLatest:
    """The end of the log."""

    def offsets(self, subject: Subject, at: list[Position]) -> dict[TopicPartition, int]:
        return {each.partition: each.end for each in at}


@dataclass(frozen=True)
class ToTime:
    """The first record at or after a timestamp (milliseconds since 1970); the end of the log, if there is none."""

    time_ms: int

    def offsets(self, subject: Subject, at: list[Position]) -> dict[TopicPartition, int]:
        partitions = [each.partition for each in at]
        found = list_offsets(subject.admin, partitions, at_time(self.time_ms), seconds=_SECONDS)
        return {
            each.partition: found[each.partition] if found[each.partition] >= 0 else each.end for each in at
        }


@dataclass(frozen=True)
class ShiftBy:
    """A number of offsets forward, or back if negative. Partitions without a committed offset stay without."""

    records: int

    def offsets(self, subject: Subject, at: list[Position]) -> dict[TopicPartition, int]:
        return {each.partition: each.committed + self.records for each in at if each.committed is not None}


@dataclass(frozen=True)
class FromFile:
    """The offsets from lines ``topic,partition,offset`` of `as_csv` or ``kafka-consumer-groups --export``."""

    text: str

    def offsets(self, subject: Subject, at: list[Position]) -> dict[TopicPartition, int]:
        wanted = self._read(subject.group)
        there = {each.partition for each in at}
        missing = sorted(wanted.keys() - there)
        if missing:
            raise ConfigError(
                f"the file has {missing[0].topic}-{missing[0].partition}, which does not exist or is not among the "
                f"chosen topics (as {len(missing)} of its {counted(len(wanted), 'partition')}). Remove these lines, or "
                "name the topics with --topic"
            )
        return wanted

    def _read(self, group: str) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for number, row in enumerate(csv.reader(io.StringIO(self.text)), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) == 4 and cells.pop(0) != group:  # Kafka's format for several groups
                continue
            try:
                topic, partition, offset = cells[0], int(cells[1]), int(cells[2])
                if len(cells) != 3 or partition < 0 or offset < 0:
                    raise ValueError
            except (IndexError, ValueError):
                raise ConfigError(
                    f"line {number} of the file is {','.join(row)!r}: write lines topic,partition,offset, "
                    "like `streamapp offsets export` and kafka-consumer-groups --export"
                ) from None
            if found.setdefault(TopicPartition(topic, partition), offset) != offset:
                raise ConfigError(
                    f"line {number} of the file has another offset of {topic}-{partition}: keep one line"
                )
        if not found:
            raise ConfigError(
                f"the file has no offsets of the group {group}: choose a file with lines of this group"
            )
        return found


Target = ToEarliest | ToLatest | ToTime | ShiftBy | FromFile


def as_csv(offsets: Mapping[TopicPartition, int]) -> str:
    """The offsets as lines for `FromFile` and ``kafka-consumer-groups --from-file``.

    >>> as_csv({TopicPartition("flights", 1): 7})
    'flights,1,7\\n'
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((*tp, offset) for tp, offset in sorted(offsets.items()))
    return out.getvalue()
