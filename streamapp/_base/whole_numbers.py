"""The check of settings that are whole numbers, such as counts of records, bytes and times in ms."""

from __future__ import annotations

from streamapp.errors import ConfigError

__all__ = ["check_whole"]


def check_whole(value: object, what: str, least: int = 1) -> None:
    """Raises `ConfigError` if the value is no int, or less than ``least``. ``what`` is the name of the setting.

    >>> check_whole(1.5, "buffer_records")
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: buffer_records has to be an int of at least 1, not 1.5
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{what} has to be an int of at least {least}, not {value!r}")
