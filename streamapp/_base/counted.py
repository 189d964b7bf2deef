"""Numbers of things in messages."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str | None = None) -> str:
    """The number and its noun; ``many`` has the words for other numbers than 1, by default ``one`` with an s.

    Words behind the noun may follow its number:

    >>> counted(1, "record"), counted(25_000, "record")
    ('1 record', '25,000 records')
    >>> counted(1, "record waits", "records wait"), counted(2, "record waits", "records wait")
    ('1 record waits', '2 records wait')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
