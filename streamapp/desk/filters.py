"""Which letters a command is about."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from streamapp.desk.letters import Letter

__all__ = ["LetterFilter"]


@dataclass(frozen=True)
class LetterFilter:
    """Letters that fit every field that is given. ``cause`` is an exception's type, with or without its module; ``since``
    and ``until`` are ms since the epoch, the second exclusive.

    >>> LetterFilter(cause="ValueError").matches(Letter(0, 1, 5, b"k", b"v", (("__streams.errors.exception", b"ValueError"),)))
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
        """True if the letter matches every filter."""
        return (
            (self.operator is None or letter.operator == self.operator)
            and (self.cause is None or f".{letter.cause}".endswith(f".{self.cause}"))
            and (self.topic is None or letter.said("topic") == self.topic)
            and (self.key is None or letter.key == self.key.encode())
            and (self.since is None or letter.timestamp >= self.since)
            and (self.until is None or letter.timestamp < self.until)
            and (not self.ids or letter.id in self.ids)
        )
