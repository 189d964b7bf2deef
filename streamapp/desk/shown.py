"""Dead letters as text for people, in a terminal and over HTTP."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from streamapp._base.utc import utc
from streamapp.desk.letters import Letter
from streamapp.desk.marks import Marks

__all__ = ["Part", "described", "shown"]


class Texts(Protocol):
    """Makes a text of the key or value of a letter (`LetterTexts`)."""

    def part(self, letter: Letter, is_key: bool) -> Part: ...


class Part(NamedTuple):
    """The key or value of a letter, for people."""

    text: str
    form: str
    """The format of the bytes, such as ``string``, ``avro, id 7`` or ``bytes``."""
    problem: str = ""
    """The reason for which the bytes cannot be read; empty if there is none."""


def described(letter: Letter, marks: Marks, texts: Texts | None = None) -> dict[str, Any]:
    """The fields of a letter for people, without the stack trace.

    ``texts`` decodes key and value. Without ``texts``, key and value are shown as bytes.
    """
    mark = marks.by_letter.get(letter.id, {})
    return {
        "letter": letter.id,
        "state": marks.state(letter.id),
        "replays": mark.get("times", 0),
        "note": mark.get("why", ""),
        "edited": letter.edited,
        "time": utc(letter.timestamp),
        "application": letter.said("application"),
        "group": letter.group,
        "version": letter.said("version"),
        "operator": letter.operator,
        "task": letter.said("task"),
        "attempt": letter.said("attempt"),
        "cause": letter.cause,
        "message": letter.said("message"),
        "topic": letter.said("topic"),
        "partition": letter.said("partition"),
        "offset": letter.said("offset"),
        "timestamp": letter.said("timestamp"),
        **_side("key", letter, texts),
        **_side("value", letter, texts),
        "headers": ", ".join(f"{name}={shown(value)}" for name, value in letter.own_headers),
    }


def _side(name: str, letter: Letter, texts: Texts | None) -> dict[str, str]:
    is_key = name == "key"
    if texts is None:
        return {name: shown(letter.key if is_key else letter.value, 200 if is_key else 2_000)}
    part = texts.part(letter, is_key)
    problem = {f"{name}_problem": part.problem} if part.problem else {}
    return {name: part.text, f"{name}_as": part.form, **problem}


def shown(data: bytes | None, most: int = 200) -> str:
    """Bytes as text, cut after ``most`` characters, with "..." at the cut. None gives "null".

    Bytes that are not UTF-8 are escaped. If a character is not printable, for example a line end, all bytes beyond
    printable ASCII are escaped.

    >>> shown(b"N1"), shown(None), shown(bytes((0, 255)))
    ('N1', 'null', '\\\\x00\\\\xff')
    """
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    text = text if text.isprintable() else repr(data)[2:-1]
    return text if len(text) <= most else f"{text[:most]}..."
