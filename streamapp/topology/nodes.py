"""The nodes of a topology, as immutable data."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from streamapp._base.names import persistent_name
from streamapp._base.offset_reset import OffsetReset
from streamapp.on_error import Answer, Chooser
from streamapp.serdes.base import Serde

__all__ = ["USER_PROCESSOR", "Node", "ProcessorNode", "SinkNode", "SourceNode"]

USER_PROCESSOR = "ProcessorOperator"
"""The name of all users' processors in a snapshot, whether their supplier is a class, a function or a lambda."""


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
    offset_reset: OffsetReset | None = None
    """The place at which reading begins without a committed offset. If None, ``auto_offset_reset`` decides."""


@dataclass(frozen=True)
class ProcessorNode:
    """A node that processes records: ``operator`` is an `Operator`, or a supplier of a user's processors.

    ``stores`` are the names of the stores that the node may use.
    """

    name: str
    operator: Any
    parents: tuple[str, ...]
    stores: tuple[str, ...] = ()

    @property
    def operator_name(self) -> str:
        """The persistent name of the operator; `USER_PROCESSOR` for a user's processor."""
        operator = self.operator
        while hasattr(operator, "operator"):  # a ttl, or an answer to exceptions
            operator = operator.operator
        return persistent_name(operator) if hasattr(operator, "persistent_name") else USER_PROCESSOR


Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]
"""Chooses the partition of a record. The arguments are topic, key, value and the number of partitions.

Several partitions get the record each. No partition drops the record (KIP-837). If the result is None, Kafka's default
partitioner chooses."""


@dataclass(frozen=True)
class SinkNode:
    """A node that writes to a topic. If ``topic`` is a function, it chooses the topic of each record."""

    name: str
    topic: str | Callable[..., str]
    parents: tuple[str, ...]
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    partitioner: Partitioner | None = None
    on_error: Answer | Chooser | None = None
    stores: tuple[str, ...] = field(default=(), init=False)


Node = SourceNode | ProcessorNode | SinkNode
