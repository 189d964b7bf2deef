"""`LetterFilter` and `select` choose the dead letters of a command."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import astuple, dataclass

from streamapp.desk.letters import Letter, check_id
from streamapp.desk.marks import Marks
from streamapp.errors import StreamsError

__all__ = ["LetterFilter", "select"]

_SHOWN = 5
"""The most ids in one message."""


@dataclass(frozen=True)
class LetterFilter:
    """Selects the letters that match every given field.

    ``application`` and ``group`` are the application and the consumer group whose reader failed. ``cause`` is the type
    of an exception, with or without its module. ``since`` (inclusive) and ``until`` (exclusive) are limits of the
    timestamp of the letter itself, in milliseconds since 1970.

    >>> letter = Letter(0, 1, 5, b"k", b"v", (("__streams.errors.exception", b"ValueError"),))
    >>> LetterFilter(cause="ValueError").matches(letter)
    True
    """

    application: str | None = None
    group: str | None = None
    operator: str | None = None
    cause: str | None = None
    topic: str | None = None
    key: str | None = None
    since: float | None = None
    until: float | None = None
    ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(field not in (None, ()) for field in astuple(self))

    def matches(self, letter: Letter) -> bool:
        """True if the letter matches every given field."""
        return (
            (self.application is None or letter.said("application") == self.application)
            and (self.group is None or letter.group == self.group)
            and (self.operator is None or letter.operator == self.operator)
            and (self.cause is None or f".{letter.cause}".endswith(f".{self.cause}"))
            and (self.topic is None or letter.said("topic") == self.topic)
            and (self.key is None or letter.key == self.key.encode())
            and (self.since is None or letter.timestamp >= self.since)
            and (self.until is None or letter.timestamp < self.until)
            and (not self.ids or letter.id in self.ids)
        )


def select(
    letters: Iterable[Letter],
    marks: Marks,
    matches: Callable[[Letter], bool],
    named: Collection[str] = (),
    *,
    force: bool = False,
) -> Iterator[Letter]:
    """The matching letters that are open; with ``force``, all matching letters.

    ``named`` are the ids that a user has given. Raises `StreamsError` after the last letter if an id has no letter.
    Raises this error also if no matching letter is open, but a named one is replayed or discarded already.

    >>> letter = Letter(0, 1, 5, b"k", b"v", ())
    >>> [each.id for each in select([letter], Marks(), lambda letter: True, ["0-1"])]
    ['0-1']
    """
    for id in named:
        check_id(id)
    absent, closed, found = set(named), list[str](), False
    for letter in letters:
        asked = letter.id in absent
        absent.discard(letter.id)
        if not matches(letter):
            continue
        if force or marks.state(letter.id) == "open":
            found = True
            yield letter
        elif asked:
            closed.append(f"{letter.id} ({marks.state(letter.id)})")
    if absent:
        raise StreamsError(
            f"there is no letter {_some(sorted(absent))}: `streamapp dlq list --each --all` shows the ids of letters"
        )
    if closed and not found:
        raise StreamsError(f"not open: {_some(closed)}. Only a replay with force takes such letters again")


def _some(ids: list[str]) -> str:
    rest = len(ids) - _SHOWN
    return ", ".join(ids[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")
