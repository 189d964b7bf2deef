"""Dead letters, and the records that a replay makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from streamapp.engine.judging import LETTER, ONLY_GROUP, REPLAY
from streamapp.errors import StreamsError
from streamapp.records import Headers, OutputRecord

__all__ = ["Group", "Letter", "check_id", "grouped"]

_KAFKA = "__streams.errors."
_ID = re.compile(r"(0|[1-9]\d{0,8})-(0|[1-9]\d{0,17})", re.ASCII)
"""The id of a letter, with numbers that Kafka can have. Marks have this text as key, so a letter has only one id."""

_TASK = re.compile(r"-?\d+_-?\d+", re.ASCII)
"""The task of a topology: the numbers of its sub-topology and of its partition. Global tables have the number -1."""


def check_id(id: str) -> tuple[int, int]:
    """Partition and offset of the letter with this id. Raises `StreamsError` for a text that is no id.

    >>> check_id("0-17")
    (0, 17)
    """
    found = _ID.fullmatch(id)
    if found is None:
        raise StreamsError(f"{id!r} is not the id of a letter: give partition-offset, such as 0-17")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Letter:
    """One dead letter. ``id`` is ``<partition>-<offset>`` in the dead-letter topic; times are in ms since 1970."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    edited: bool = False

    @property
    def id(self) -> str:
        return f"{self.partition}-{self.offset}"

    def said(self, name: str) -> str:
        """The value of the letter's error header with this name; empty if the header is missing.

        ``name`` is the header's name without the prefix, such as ``message``.
        """
        known = dict(self.headers)
        value = known.get(f"{_KAFKA}{name}", known.get(f"{LETTER}{name}"))
        return "" if value is None else value.decode(errors="replace")

    @property
    def cause(self) -> str:
        """The type of the exception; "unknown" if the letter does not name the type."""
        return self.said("exception") or "unknown"

    @property
    def operator(self) -> str:
        return self.said("operator") or "unknown"

    @property
    def group(self) -> str:
        """The consumer group whose reader failed: the group of a consumer (`App.consume`), or else the application id.
        Empty if the letter names no application, because another program has written the letter."""
        task = self.said("task")
        # The task of a consumer is its group with the partition, and the task of a topology is two numbers.
        if task and _TASK.fullmatch(task) is None:
            return task.rpartition("_")[0]
        return self.said("application")

    @property
    def origin(self) -> str:
        """The place of the failed record, as ``topic-partition at offset``; "no input record" if there was none."""
        if not self._source:
            return "no input record"
        return f"{self._source}-{self.said('partition')} at {self.said('offset')}"

    @property
    def _source(self) -> str:
        """The topic of the failed record; empty if a punctuator failed. For a punctuator, letters of earlier versions
        have the text "null"."""
        topic = self.said("topic")
        return "" if topic == "null" else topic

    @property
    def place(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the failed record. None: the letter does not name all three."""
        partition, offset = _number(self.said("partition"), 9), _number(self.said("offset"), 18)
        if not self._source or partition is None or offset is None:
            return None
        return self._source, partition, offset

    @property
    def lacks_record(self) -> bool:
        """True if the letter has no key and value, but names the place of its record. `FailureDesk.whole` then reads
        the record."""
        known = self._source != "" and self.said("offset") != ""
        return self.key is None and self.value is None and not self.edited and known

    @property
    def own_headers(self) -> Headers:
        """The headers of the record itself, without the error headers of this letter.

        The record may be a dead letter, too, and keeps its own error headers.
        """
        removed: set[str] = set()
        kept: list[tuple[str, bytes | None]] = []
        for each in reversed(self.headers):
            if each[0].startswith((_KAFKA, LETTER)) and each[0] not in removed:
                removed.add(each[0])
            else:
                kept.append(each)
        return tuple(reversed(kept))

    def with_record(self, key: bytes | None, value: bytes | None) -> Letter:
        """The letter with another key and value."""
        return replace(self, key=key, value=value, edited=True)

    def replayed(self, dead_letters: str, only_group: bool = False) -> OutputRecord:
        """The record that a replay writes, with its original topic, partition, timestamp and headers.

        Headers with the prefix `REPLAY` name the letter. With ``only_group``, a header names the group of the letter,
        and consumers of other groups pass over the record. Raises `StreamsError` for a letter without a source topic.
        """
        topic = self._source
        if not topic:
            raise StreamsError(
                f"letter {self.id} names no source topic, so it cannot be replayed; discard the letter. A punctuator, "
                "or another producer, wrote it"
            )
        before = _number((dict(self.own_headers).get(f"{REPLAY}times") or b"").decode(errors="replace"), 9)
        provenance: Headers = (
            (f"{REPLAY}letter", f"{dead_letters}-{self.partition} at {self.offset}".encode()),
            (f"{REPLAY}operator", self.operator.encode()),
            (f"{REPLAY}edited", b"true" if self.edited else b"false"),
            (f"{REPLAY}times", str((before or 0) + 1).encode()),
        )
        if only_group:
            if not self.group:
                raise StreamsError(
                    f"letter {self.id} names no consumer group, because another program has written the letter: replay "
                    "the letter for all readers of its topic"
                )
            provenance = (*provenance, (ONLY_GROUP, f"{topic} {self.group}".encode()))
        kept = tuple(each for each in self.own_headers if not each[0].startswith(REPLAY))
        time = _number(self.said("timestamp"), 18, signed=True)
        return OutputRecord(
            topic,
            self.key,
            self.value,
            self.timestamp if time is None else time,
            kept + provenance,
            _number(self.said("partition"), 9),
        )


def _number(text: str, digits: int, *, signed: bool = False) -> int | None:
    """The number in a header. None: another producer has written a text that is no number, or that is too long.

    >>> _number("17", 9), _number("-", 9), _number("12345678901", 9), _number("-1", 9)
    (17, None, None, None)
    """
    number = rf"{'-?' if signed else ''}\d{{1,{digits}}}"
    return int(text) if re.fullmatch(number, text, re.ASCII) else None


@dataclass
class Group:
    """The letters with the same consumer group, operator, cause and topic, counted.

    ``first`` and ``last`` are the earliest and the latest timestamp, in milliseconds since 1970.
    """

    group: str
    operator: str
    cause: str
    topic: str
    count: int
    first: int
    last: int
    example: str
    """The id of the letter that is last by partition and offset. ``message`` belongs to this letter."""
    message: str


def grouped(
    letters: Iterable[Letter], matches: Callable[[Letter], bool] = lambda letter: True
) -> list[Group]:
    """Groups letters by consumer group, operator, cause and topic; the largest group comes first.

    >>> letter = Letter(0, 7, 500, b"N1", b"?", (("__streams.errors.exception", b"ValueError"),))
    >>> [(group.cause, group.count, group.example) for group in grouped([letter])]
    [('ValueError', 1, '0-7')]
    """
    groups: dict[tuple[str, str, str, str], Group] = {}
    for letter in filter(matches, letters):
        name = letter.group, letter.operator, letter.cause, letter.said("topic")
        group = groups.get(name)
        if group is None:
            group = groups[name] = Group(*name, 0, letter.timestamp, letter.timestamp, letter.id, "")
        group.count += 1
        group.first, group.last = min(group.first, letter.timestamp), max(group.last, letter.timestamp)
        group.example, group.message = letter.id, letter.said("message")
    return sorted(groups.values(), key=lambda group: -group.count)
