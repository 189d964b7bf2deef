"""Marks of dead letters: replayed, discarded or edited. Beside each dead-letter topic, a compacted topic has the marks
of its letters.

A replay writes its records and their marks in one transaction, so a crash neither loses nor repeats a replay.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from streamapp._base.names import NO_TOPIC_ID
from streamapp.errors import StreamsError

__all__ = ["Marks", "marks_topic"]


def marks_topic(dead_letters: str) -> str:
    """The name of the topic with the marks of a dead-letter topic.

    >>> marks_topic("dead")
    'dead-desk'
    """
    return f"{dead_letters}-desk"


@dataclass
class Marks:
    """Id of a letter -> its mark. Call `apply` for each record of the marks' topic, in order.

    A dead-letter topic that is created anew, or that a tool copies to another cluster, has other letters with the same
    ids. So each mark names the topic of its letter. Marks of another topic than ``topic_id`` do not count. A mark
    without an id does, because brokers may give no ids (`NO_TOPIC_ID`).

    >>> marks, anew = Marks("A1"), Marks("B2")
    >>> mark = marks.marked("0-17", "discarded", now_ms=500)
    >>> anew.apply(b"0-17", mark)
    >>> marks.state("0-17"), anew.state("0-17")
    ('discarded', 'open')
    """

    topic_id: str = NO_TOPIC_ID
    """Kafka's id of the dead-letter topic."""
    by_letter: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Takes the mark in one record of the topic. Raises `StreamsError` for a record that is not a mark."""
        try:
            letter = (key or b"").decode()
            self.by_letter.pop(letter, None)
            if value is not None and self._counts(mark := dict(json.loads(value))):
                self.by_letter[letter] = mark
        except (ValueError, TypeError) as error:
            raise StreamsError(
                f"the topic of the desk's marks has a record that is not a mark, with key {key!r}: {error}. "
                "Only the desk may write to this topic"
            ) from error

    def _counts(self, mark: dict[str, Any]) -> bool:
        topic_id = mark.get("topic_id", NO_TOPIC_ID)
        return topic_id == self.topic_id or NO_TOPIC_ID in (topic_id, self.topic_id)

    def state(self, letter: str) -> str:
        """The state of a letter: ``open``, ``replayed`` or ``discarded``."""
        return str(self.by_letter.get(letter, {}).get("state", "open"))

    def marked(self, letter: str, state: str, now_ms: int, why: str = "") -> bytes:
        """The new mark after a replay or a discard, as JSON. The mark keeps an earlier edit."""
        mark = dict(self.by_letter.get(letter, {}))
        mark |= {"state": state, "at": now_ms, "why": why}
        if state == "replayed":
            mark["times"] = int(mark.get("times", 0)) + 1
        return self._note(letter, mark)

    def edited(self, letter: str, key: bytes | None, value: bytes | None, now_ms: int) -> bytes:
        """The new mark after an edit, as JSON. The letter is open again."""
        mark = dict(self.by_letter.get(letter, {}))
        mark |= {"state": "open", "edited_at": now_ms, "key": _text(key), "value": _text(value)}
        return self._note(letter, mark)

    def edit_of(self, letter: str) -> tuple[bytes | None, bytes | None] | None:
        """The edited key and value; None for a letter without an edit."""
        mark = self.by_letter.get(letter, {})
        return (_bytes(mark["key"]), _bytes(mark["value"])) if "edited_at" in mark else None

    def _note(self, letter: str, mark: dict[str, Any]) -> bytes:
        self.by_letter[letter] = mark = {**mark, "topic_id": self.topic_id}
        return json.dumps(mark, separators=(",", ":")).encode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
