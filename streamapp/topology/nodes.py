"""The nodes of a topology, as immutable data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamapp.on_error import Answer, Chooser
from streamapp.serdes.base import Serde

__all__ = ["Node", "ProcessorNode", "SinkNode", "SourceNode"]


@dataclass(frozen=True)
class SourceNode:
    """Reads topics (or, with ``pattern``, every topic whose whole name matches)."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    timestamp_extractor: Callable[..., int] | None = None
    parents: tuple[str, ...] = ()
    on_error: Answer | Chooser | None = None
    """None: the configuration's handler."""


@dataclass(frozen=True)
class ProcessorNode:
    """One step: an `Operator`, or a supplier of processors; ``stores`` are the names it may use."""

    name: str
    operator: Any
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkNode:
    """Writes to a topic, or to the topic that a function names for each record."""

    name: str
    topic: str | Callable[..., str]
    parents: tuple[str, ...]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    partitioner: Callable[..., int | None] | None = None
    on_error: Answer | Chooser | None = None
    stores: tuple[str, ...] = field(default=(), init=False)


Node = SourceNode | ProcessorNode | SinkNode
