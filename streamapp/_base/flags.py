"""A check of arguments that are True or False."""

from __future__ import annotations

from typing import Any

from streamapp.errors import ConfigError

__all__ = ["check_flags"]


def check_flags(owner: str, **flags: Any) -> None:
    """Raises `ConfigError` for a flag that is neither True nor False. ``owner`` has the flags, for the error.

    Any other object would count as True or False, for example the settings that Java's ``withLoggingEnabled`` takes.

    >>> check_flags("store seen", caching=False, logging={"retention.ms": "5"})
    Traceback (most recent call last):
    ...
    streamapp.errors.ConfigError: logging of store seen has to be True or False, not {'retention.ms': '5'}
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ConfigError(f"{name} of {owner} has to be True or False, not {flag!r}")
