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
    """A node that reads topics, or with ``pattern`` every topic whose whole name matches."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    timestamp_extractor: Callable[..., int] | None = None
    parents: tuple[str, ...] = ()
    on_error: Answer | Chooser | None = None
    """The answer to records that cannot be decoded. If None, ``deserialization_exception_handler`` decides."""


@dataclass(frozen=True)
class ProcessorNode:
    """A node that processes records: ``operator`` is an `Operator`, or a supplier of a user's processors.

    ``stores`` are the names of the stores that the node may use.
    """

    name: str
    operator: Any
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkNode:
    """A node that writes to a topic. If ``topic`` is a function, it chooses the topic of each record."""

    name: str
    topic: str | Callable[..., str]
    parents: tuple[str, ...]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    partitioner: Callable[..., int | None] | None = None
    on_error: Answer | Chooser | None = None
    stores: tuple[str, ...] = field(default=(), init=False)


Node = SourceNode | ProcessorNode | SinkNode
