"""Text of records and exceptions, for terminals and logs."""

from __future__ import annotations

import re

__all__ = ["printable"]

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, marks that turn the direction of writing, and halves of characters."""


def printable(text: str) -> str:
    """The text with escapes in place of characters that a terminal obeys, or cannot write. Tabs and newlines stay.

    >>> print(printable("a \\x1b[31mred\\x1b[0m flight"))
    a \\x1b[31mred\\x1b[0m flight
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
