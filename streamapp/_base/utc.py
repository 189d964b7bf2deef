"""Times for people."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["utc"]


def utc(ms: int) -> str:
    """A time in ms since the epoch, as text in UTC. Python has no date for times after the year 9999.

    >>> utc(1_386_380_110_000), utc(1_386_380_110_000_000_000)
    ('2013-12-07 01:35:10', '1386380110000000000 ms')
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
