"""The readers of topics whose serdes the desk knows: topology, global tables and consumers, but no agents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streamapp.desk.letters import Letter
from streamapp.serdes.base import Serde

__all__ = ["Reader", "readers_of"]


@dataclass(frozen=True)
class Reader:
    """A part of an application that reads topics, in the consumer group ``group``."""

    group: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    def wrote(self, letter: Letter) -> bool:
        """True if the letter came from this reader."""
        topic = letter.said("topic")
        named = topic in self.topics or (
            self.pattern is not None and self.pattern.fullmatch(topic) is not None
        )
        return named and letter.group == self.group

    def serde(self, letter: Letter, is_key: bool) -> Serde[Any]:
        """The serde of the keys or values of the letter's topic."""
        return (self.key_serde if is_key else self.value_serde).bind(letter.said("topic"), is_key)


def readers_of(app: Any) -> tuple[Reader, ...]:
    """The readers of an `App`, or of a single consumer. Agents are left out: Faust decodes their records.

    >>> from streamapp.consumer import SyncReliableConsumer
    >>> [(reader.group, reader.topics) for reader in readers_of(SyncReliableConsumer("mail", "orders", print))]
    [('mail', ('orders',))]
    """
    return (*_of_topology(getattr(app, "streams", None)), *_of_consumers(app))


def _of_topology(streams: Any) -> Iterator[Reader]:
    if streams is None:
        return
    plan = streams.plan
    sources = [source for sub in plan.subtopologies for source in sub.sources]
    for source in (*sources, *(store.source for store in plan.global_stores)):
        yield Reader(plan.application_id, source.topics, source.pattern, source.key_serde, source.value_serde)


def _of_consumers(app: Any) -> Iterator[Reader]:
    of_app = getattr(app, "_app_consumers", None)
    alone = getattr(app, "_consuming", None)
    found: Iterable[Any] = of_app.options if of_app is not None else () if alone is None else (alone.options,)
    for options in found:
        yield Reader(options.name, tuple(options.topics), None, *options.serdes)
