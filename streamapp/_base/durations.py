"""Converts durations, which users write as timedelta or int, to the milliseconds that the engine uses."""

from __future__ import annotations

from datetime import timedelta

from streamapp.errors import ConfigError

__all__ = ["Duration", "to_ms"]

Duration = timedelta | int
"""A span of time: a `datetime.timedelta`, or an int of milliseconds."""

_MILLISECOND = timedelta(milliseconds=1)
_MAX_MS = 2**63 - 1


def to_ms(duration: Duration, what: str) -> int:
    """The duration in whole milliseconds. ``what`` is the name of the duration in an error.

    Raises `ConfigError` for fractions of a millisecond, for more than 64 bits, and for other types than int and
    timedelta. A negative duration is allowed here; the caller checks the sign.

    >>> to_ms(timedelta(seconds=1.5), "size")
    1500
    """
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, _MILLISECOND)
        if rest:
            raise ConfigError(f"{what} has to be a whole number of milliseconds, got {duration!r}")
        return whole
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise ConfigError(f"{what} has to be a timedelta or an int of milliseconds, got {duration!r}")
    if abs(duration) > _MAX_MS:
        raise ConfigError(f"{what} has to fit in 64 bits of milliseconds, got {duration!r}")
    return duration
