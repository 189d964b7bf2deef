"""Which names Kafka allows for topics, and so for everything that becomes part of a topic's name; and which one was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from streamapp.errors import TopologyError

__all__ = ["check_name", "check_topic_name", "did_you_mean"]

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_LENGTH = 249


def check_name(name: str, what: str = "name") -> str:
    """Returns the name, or raises `TopologyError` saying why Kafka would refuse it."""
    if not isinstance(name, str):
        raise TopologyError(f"{what} must be a string, not {type(name).__name__}")
    if not name:
        raise TopologyError(f"{what} must not be empty")
    if name in (".", ".."):
        raise TopologyError(f'{what} must not be "{name}"')
    if len(name) > _MAX_LENGTH:
        raise TopologyError(f"{what} {name[:40]}... has {len(name)} characters; Kafka allows {_MAX_LENGTH}")
    if not _LEGAL.fullmatch(name):
        raise TopologyError(
            f'{what} "{name}" is illegal: it has a character other than ASCII letters, digits, ".", "_" and "-"'
        )
    return name


check_topic_name = check_name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to the message about a name that is not known: the known one that is like it, if there is one.

    >>> did_you_mean("web_prt", ["web_port", "web_host"])
    '; did you mean web_port?'
    """
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
