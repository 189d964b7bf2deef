"""Checks of names against Kafka's rules, guesses for misspelt names, and names that stay when a class is renamed."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping

from streamapp._base.counted import counted
from streamapp.errors import TopologyError

__all__ = [
    "HASH_LETTERS",
    "NO_TOPIC_ID",
    "check_name",
    "check_pattern",
    "check_topic_name",
    "did_you_mean",
    "of_topics",
    "persistent_name",
    "persistent_serde_name",
    "persistent_serde_names",
    "short_hash",
    "unknown_attribute",
]

HASH_LETTERS = 8
"""The length of a `short_hash`."""
NO_TOPIC_ID = "A" * 22
"""The id that brokers without ids of topics (before KIP-516) answer for each topic."""

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
        raise TopologyError(
            f"{what} {name[:40]}... has {counted(len(name), 'character')}; Kafka allows {_MAX_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        raise TopologyError(
            f'{what} "{name}" is illegal: it has a character other than ASCII letters, digits, ".", "_" and "-"'
        )
    return name


check_topic_name = check_name


def check_pattern(pattern: object, what: str) -> None:
    """Raises `TopologyError` for a pattern of topics that is not a compiled pattern of text.

    >>> check_pattern(re.compile("flights-.*"), "source in")
    """
    if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
        raise TopologyError(f"{what} needs a pattern of text, as re.compile makes one, not {pattern!r}")


def of_topics(node: str, *topics: str) -> str:
    """The name of a source or sink in errors. Users know the topics better than a generated name.

    >>> of_topics("KSTREAM-SOURCE-0000000000", "flights"), of_topics("all", "flights", "charters")
    ('KSTREAM-SOURCE-0000000000 (topic flights)', 'all (topics flights, charters)')
    """
    return f"{node} ({'topic' if len(topics) == 1 else 'topics'} {', '.join(topics)})" if topics else node


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar known name, or "" if no known name is similar.

    >>> did_you_mean("web_prt", ["web_port", "web_host"])
    '; did you mean web_port?'
    """
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_attribute(owner: object, name: str, hints: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that an object or a class does not have, with a guess at the right name.

    ``hints`` has advice for names that users of other libraries try. A name in Java's spelling leads to Python's.

    >>> from streamapp import StreamsBuilder
    >>> unknown_attribute(StreamsBuilder, "globalTable", {})
    AttributeError('StreamsBuilder has no globalTable; did you mean global_table?')
    """
    owner_name = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    if name in hints:
        return AttributeError(f"{owner_name} has no {name}; {hints[name]}")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    public = [known for known in dir(owner) if not known.startswith("_")]
    return AttributeError(f"{owner_name} has no {name}{did_you_mean(snake, public)}")


def persistent_name(part: object) -> str:
    """The name under which snapshots and state folders remember an operator or a serde.

    A class may have an attribute ``persistent_name``, which stays the same when the class is renamed. So old state
    still fits. For other classes, such as a user's own serde, the name of the class is used. A subclass does not
    inherit ``persistent_name``, because the subclass may write other bytes.

    >>> class Prices:
    ...     persistent_name = "prices"
    >>> class OldPrices(Prices): ...
    >>> persistent_name(Prices()), persistent_name(OldPrices())
    ('prices', 'OldPrices')
    """
    kind = type(part)
    name = kind.__dict__.get("persistent_name", kind.__name__)
    return str(name)


def persistent_serde_name(serde: object, *, with_sizes: bool = False) -> str:
    """The `persistent_name` of a serde, with that of the serde inside.

    With ``with_sizes``, the name has the size of windows, which the bytes do not have.

    >>> from streamapp import StringSerde
    >>> from streamapp.serdes import TimeWindowedSerde
    >>> minutes = TimeWindowedSerde(StringSerde(), 60_000)
    >>> persistent_serde_name(minutes), persistent_serde_name(minutes, with_sizes=True)
    ('TimeWindowedSerde(StringSerde)', 'TimeWindowedSerde(StringSerde, 60000 ms)')
    """
    inner, name = getattr(serde, "inner", None), persistent_name(serde)
    if inner is None:
        return name
    size = getattr(serde, "window_size_ms", None) if with_sizes else None
    end = "" if size is None else f", {size} ms"
    return f"{name}({persistent_serde_name(inner, with_sizes=with_sizes)}{end})"


def persistent_serde_names(key: object, value: object) -> str:
    """The names of the serdes of keys and values, with the size of windows.

    >>> from streamapp import LongSerde, StringSerde
    >>> persistent_serde_names(StringSerde(), LongSerde())
    'StringSerde/LongSerde'
    """
    return f"{persistent_serde_name(key, with_sizes=True)}/{persistent_serde_name(value, with_sizes=True)}"


def short_hash(text: str) -> str:
    """A hash of a text, for the metadata of committed offsets. The hash of a text must never change, because later
    releases read the metadata.

    >>> short_hash("orders"), len(short_hash("orders")) == HASH_LETTERS
    ('733649f3', True)
    """
    return hashlib.blake2s(text.encode(), digest_size=HASH_LETTERS // 2).hexdigest()
