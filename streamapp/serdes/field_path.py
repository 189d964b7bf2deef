"""Errors that name the path from a value to the part that does not fit, for example ``legs[0].at``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamapp.serdes.types import excerpt

__all__ = ["Misfit", "item_part", "key_part", "path_of", "reason"]

_MOST_PATH = 300


class Misfit(ValueError):
    """A part of a value does not fit. ``parts`` are the steps from the value to this part, the outermost first.

    >>> str(Misfit("5 is not a str", ["legs", item_part(0), "dest"]))
    'legs[0].dest: 5 is not a str'
    """

    def __init__(self, why: str, parts: Iterable[str] = ()) -> None:
        super().__init__(why)
        self.parts: list[str] = list(parts)

    @property
    def why(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{path_of(self.parts)}: {self.why}" if self.parts else self.why


def path_of(parts: Iterable[str]) -> str:
    """A path as text: names of fields with points between them, and the indexes of items and keys of entries in
    brackets. A long path is shown without its middle."""
    path = "".join(part if part[:1] == "[" else f".{part}" for part in parts).removeprefix(".")
    half = _MOST_PATH // 2
    return path if len(path) <= _MOST_PATH else f"{path[:half]}...{path[-half:]}"


def item_part(number: int) -> str:
    return f"[{number}]"


def key_part(key: Any) -> str:
    return f"[{excerpt(key)}]"


def reason(error: BaseException) -> str:
    """The text of an error. For a KeyError, the text is its reason without quotation marks."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
