"""The place at which reading of a partition begins if the group has no usable offset (``auto.offset.reset``)."""

from __future__ import annotations

import re
from typing import Any, Literal

from streamapp._base.durations import Duration, to_ms
from streamapp.errors import ConfigError

__all__ = ["OffsetReset", "check_offset_reset", "read_offset_reset"]

OffsetReset = Literal["earliest", "latest", "none"] | Duration
"""The place at which reading of a partition begins, if the group has no offset that the log still has:

- ``"earliest"``: the oldest record
- ``"latest"``: the end of the log, so only later records are read
- a duration (timedelta, or milliseconds): the first record that is at most so old (KIP-1106)
- ``"none"``: nowhere; the application ends with an error, and an operator has to set the offsets
"""

_NAMES = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,3}))?S)?)?", re.IGNORECASE)


def check_offset_reset(reset: Any, what: str) -> None:
    """Raises `ConfigError` unless ``reset`` is an `OffsetReset`. ``what`` is the name of the setting.

    >>> check_offset_reset("newest", "auto_offset_reset")
    Traceback (most recent call last):
        ...
    streamapp.errors.ConfigError: auto_offset_reset must be one of earliest, latest, none, or a duration, not 'newest'
    """
    if isinstance(reset, str):
        if reset not in _NAMES:
            raise ConfigError(f"{what} must be one of {', '.join(_NAMES)}, or a duration, not {reset!r}")
    elif to_ms(reset, what) < 0:
        raise ConfigError(f"{what} must not be a negative duration, got {reset!r}")


def read_offset_reset(text: str) -> OffsetReset:
    """The `OffsetReset` of Kafka's text, such as ``latest`` or ``by_duration:PT1H30M``.

    The text after ``by_duration:`` is a duration of ISO 8601 in days, hours, minutes and seconds. Raises `ConfigError`
    for another one. Any other text is returned as it is.

    >>> read_offset_reset("by_duration:P1DT2H"), read_offset_reset("latest")
    (93600000, 'latest')
    """
    if not text.startswith(_BY_DURATION):
        return text  # type: ignore[return-value]
    found = _ISO.fullmatch(text.removeprefix(_BY_DURATION))
    parts = found.groups() if found else ()
    if not any(parts):
        raise ConfigError(
            f"auto.offset.reset has to name a duration of ISO 8601 after {_BY_DURATION}, for example "
            f"{_BY_DURATION}PT1H, not {text!r}"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in parts[:4])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + int((parts[4] or "0").ljust(3, "0"))
