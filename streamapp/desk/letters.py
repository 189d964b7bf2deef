"""A dead letter as its topic has it, and the record that the letter becomes again when it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from streamapp.engine.failures import LETTER
from streamapp.errors import StreamsError
from streamapp.records import Headers, OutputRecord

__all__ = ["REPLAY", "Group", "Letter", "grouped"]

_KAFKA = "__streams.errors."
REPLAY = "__streamapp.replay."
"""Headers of a replayed record: the letter that the record was, its operator, and how often it has come back."""


@dataclass(frozen=True)
class Letter:
    """One dead letter; ``id`` is ``<partition>-<offset>`` in the dead-letter topic. Times are ms since the epoch."""

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
        """A header of the error without its prefix, such as ``message`` or ``operator``; empty if it is missing."""
        known = dict(self.headers)
        value = known.get(f"{_KAFKA}{name}", known.get(f"{LETTER}{name}"))
        return "" if value is None else value.decode(errors="replace")

    @property
    def cause(self) -> str:
        """The exception's type."""
        return self.said("exception") or "unknown"

    @property
    def operator(self) -> str:
        return self.said("operator") or "unknown"

    @property
    def origin(self) -> str:
        """The record's first place, as ``topic-partition at offset``."""
        return f"{self.said('topic')}-{self.said('partition')} at {self.said('offset')}"

    @property
    def lacks_record(self) -> bool:
        """True if the letter names a source but has no record, as after a wait in an operator's buffer."""
        known = self.said("topic") not in ("", "null") and self.said("offset").isdecimal()
        return self.key is None and self.value is None and not self.edited and known

    @property
    def own_headers(self) -> Headers:
        """The headers that the record had before it failed."""
        return tuple(each for each in self.headers if not each[0].startswith((_KAFKA, LETTER)))

    def with_record(self, key: bytes | None, value: bytes | None) -> Letter:
        """The letter with an edited record."""
        return replace(self, key=key, value=value, edited=True)

    def replayed(self, dead_letters: str) -> OutputRecord:
        """The record that a replay writes: where it came from, at its time, with its headers and its provenance.

        Raises `StreamsError` for a letter that does not say where it came from.
        """
        topic = self.said("topic")
        if topic in ("", "null"):
            raise StreamsError(
                f"letter {self.id} does not say which topic it came from (a punctuator or another producer made it), so there is "
                "nowhere to replay it to; discard it"
            )
        before = dict(self.own_headers).get(f"{REPLAY}times")
        provenance: Headers = (
            (f"{REPLAY}letter", f"{dead_letters}-{self.partition} at {self.offset}".encode()),
            (f"{REPLAY}operator", self.operator.encode()),
            (f"{REPLAY}edited", b"true" if self.edited else b"false"),
            (f"{REPLAY}times", str(int(before or b"0") + 1).encode()),
        )
        kept = tuple(each for each in self.own_headers if not each[0].startswith(REPLAY))
        time, partition = self.said("timestamp"), self.said("partition")
        return OutputRecord(
            topic,
            self.key,
            self.value,
            int(time) if time else self.timestamp,
            kept + provenance,
            int(partition) if partition.isdecimal() else None,
        )


@dataclass
class Group:
    """Letters of one operator and cause. ``first`` and ``last`` are times in ms since the epoch."""

    operator: str
    cause: str
    topic: str
    count: int
    first: int
    last: int
    example: str
    """The id of the last letter."""
    message: str


def grouped(
    letters: Iterable[Letter], matches: Callable[[Letter], bool] = lambda letter: True
) -> list[Group]:
    """Letters by operator, cause and topic; the largest group first.

    >>> letter = Letter(0, 7, 500, b"N1", b"?", (("__streams.errors.exception", b"ValueError"),))
    >>> [(group.cause, group.count, group.example) for group in grouped([letter])]
    [('ValueError', 1, '0-7')]
    """
    groups: dict[tuple[str, str, str], Group] = {}
    for letter in filter(matches, letters):
        name = letter.operator, letter.cause, letter.said("topic")
        group = groups.get(name)
        if group is None:
            group = groups[name] = Group(*name, 0, letter.timestamp, letter.timestamp, letter.id, "")
        group.count += 1
        group.first, group.last = min(group.first, letter.timestamp), max(group.last, letter.timestamp)
        group.example, group.message = letter.id, letter.said("message")
    return sorted(groups.values(), key=lambda group: -group.count)
