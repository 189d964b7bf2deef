"""`LetterFilter` selects the dead letters of a command."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from streamapp.desk.letters import Letter

__all__ = ["LetterFilter"]


@dataclass(frozen=True)
class LetterFilter:
    """Selects the letters that match every given field.

    ``cause`` is the type of an exception, with or without its module. ``since`` (inclusive) and ``until``
    (exclusive) are milliseconds since 1970.

    >>> letter = Letter(0, 1, 5, b"k", b"v", (("__streams.errors.exception", b"ValueError"),))
    >>> LetterFilter(cause="ValueError").matches(letter)
    True
    """

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
            (self.operator is None or letter.operator == self.operator)
            and (self.cause is None or f".{letter.cause}".endswith(f".{self.cause}"))
            and (self.topic is None or letter.said("topic") == self.topic)
            and (self.key is None or letter.key == self.key.encode())
            and (self.since is None or letter.timestamp >= self.since)
            and (self.until is None or letter.timestamp < self.until)
            and (not self.ids or letter.id in self.ids)
        )
